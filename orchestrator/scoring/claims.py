"""The F1 that a submission says it will have, read by transparent rules. Pure.

They are told in docs/grading.md. Where they leave two answers there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orchestrator.scoring.figures import (
    AHEAD,
    EXPECTS,
    F1,
    alone,
    clean,
    denies,
    expects,
    figures,
    other,
)
from orchestrator.scoring.prose import MAX_SENTENCE, Sentence, lines, plain, sentences

_DECLARED = re.compile(r"[\W_\d]*expected[\W_]+(?:spam[\W_]+)?f[-_ ]?1\b")
_STRUCK = re.compile(r"~~[^~\n]*~~")
_REPORT = re.compile(r"\s*precision\s+recall\s+f1-score\s+support\s*")
_REPORT_ROW = re.compile(r"\s*(\S.*?)\s+((?:[01]\.\d+\s+){1,3})\d+\s*")
_POSITIVE = ("1", "1.0", "true", "spam", "positive")
_ON_THE_WAY = re.compile(r"\btrain\w*|\bvalid\w*|\bcross\b|\bcv\b|\bfolds?\b|\bbaseline\b")
_NO_COLUMN = re.compile(r"±|\bstd\b|\bsd\b|threshold|target|baseline|support|train|delta|change")


def expected_f1(document: str) -> float | None:
    """The F1 that a document expects, in [0, 1]; None where it gives none or contradicts itself.

    The first of these that gives a figure decides, and only if all its figures agree: a line that
    begins with "Expected F1"; what speaks of an expectation; what speaks of data to come; whatever
    else names F1.
    """
    text, reported = _without_reports(_STRUCK.sub("", "\n".join(lines(document))))
    found = sentences(text)
    for values in (
        _declared(text),
        _expected(found),
        _ahead(found),
        [*_mentioned(found), *reported],
    ):
        different = set(values)
        if different:
            return different.pop() if len(different) == 1 else None
    return None


def _without_reports(text: str) -> tuple[str, list[float]]:
    """The text without tables as scikit-learn prints them, and their F1 of the positive class."""
    kept: list[str] = []
    values: list[float] = []
    inside = False
    for line in text.splitlines():
        if _REPORT.fullmatch(line.lower()):
            inside = True
        elif not inside:
            kept.append(line)
        elif row := _REPORT_ROW.fullmatch(line):
            numbers = row[2].split()
            if len(numbers) == 3 and row[1].strip("'\"").lower() in _POSITIVE:
                values.append(float(numbers[2]))
        elif line.strip():
            inside = False
            kept.append(line)
    return "\n".join(kept), values


def _declared(text: str) -> Iterator[float]:
    for line in text.splitlines():
        bare = clean(plain(line[:MAX_SENTENCE]))
        if _DECLARED.match(bare):
            yield from _first(figures(bare))


def _expected(found: Sequence[Sentence]) -> Iterator[float]:
    for each in found:
        text = clean(each.text)
        if each.cells:
            yield from _row(each, EXPECTS)
        elif (said := expects(text)) is not None:
            yield from _first(_around(text, said.start()))
        elif EXPECTS.search(each.heading):
            if F1.match(text) and not _ON_THE_WAY.search(text):
                yield from _first(figures(text))
            elif F1.search(each.heading) and (value := alone(text)) is not None:
                yield value


def _ahead(found: Sequence[Sentence]) -> Iterator[float]:
    for each in found:
        text = clean(each.text)
        if each.cells:
            yield from _row(each, AHEAD)
        elif said := AHEAD.search(text):
            yield from _first(_around(text, said.start()))


def _mentioned(found: Sequence[Sentence]) -> Iterator[float]:
    for each in found:
        text = clean(each.text)
        if each.cells:
            yield from _row(each, None)
        elif not denies(text):
            yield from figures(text, tight=each.code)


def _around(text: str, place: int) -> list[float]:
    """Figures behind a place, else the last before it, unless the sentence takes that back."""
    behind = list(figures(text, place))
    return behind or ([] if denies(text) else list(figures(text))[-1:])


def _first(values: Iterator[float] | Sequence[float]) -> Iterator[float]:
    for value in values:
        yield value
        return


def _row(row: Sentence, wanted: re.Pattern[str] | None) -> Iterator[float]:
    """F1 in a row of a table: its label or the header of the column names it, and one of them, or
    the heading, speaks of what is `wanted`."""
    label = row.cells[0][1]
    if other(label):
        return
    named = F1.search(label) is not None
    for header, cell in row.cells[1:]:
        text = clean(cell)
        in_header = F1.search(header) is not None
        if not (named or in_header) or other(header) or _NO_COLUMN.search(header):
            continue
        around = f"{label} {header}"
        if wanted is not None and not wanted.search(around):
            in_heading = wanted.search(row.heading) and not _ON_THE_WAY.search(around)
            if not in_heading:
                continue
        if (value := alone(text)) is not None:
            yield value
