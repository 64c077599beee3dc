"""Strict reading of a predictions file, as people write them: all problems at once, or labels.

Nothing is ever scored over the rows present: a file with any problem gives no labels at all; where
a task says so, rows that are missing count as wrong. What is only spelt otherwise (byte order mark,
line ends, quoting, an index column, `1.0` for `1`) is accepted and listed. docs/grading.md has all.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.scoring.tabular import SAMPLE_CHARS, Notes, Samples, Unreadable, decoded, shown
from orchestrator.scoring.tabular import rows as rows_of
from orchestrator.scoring.values import WHOLE, Bad, Labels, finite

MISSING = -1
"""In place of a label: the file has no row for the id, and the task counts that as wrong."""
INDEX_NAMES = ("", "Unnamed: 0", "index")
"""Headers of a column of row numbers, as data frames write it."""
SPARE_ROWS = 100_000
"""Read beyond one row an id; a file with more is no answer, and reading all of it takes minutes."""
_SEPARATORS = (";", "\t", "|", " ")
_SPELLINGS = 20
"""Of labels, listed at most."""
_LABEL_PROBLEMS = {
    Bad.MISSING: "labels empty or NaN (for {2})",
    Bad.FRACTION: "labels are probabilities where {0} or {1} is wanted ({2})",
    Bad.STRANGE: "labels are neither {0} nor {1} ({2})",
}


@dataclass(frozen=True)
class Columns:
    """What a predictions file must look like."""

    id: str
    label: str
    positive: str = "1"
    negative: str = "0"
    positive_words: tuple[str, ...] = ()
    """Further spellings of the positive label, compared without case."""
    negative_words: tuple[str, ...] = ()
    score: str | None = None
    """A further column that may be there: a number, the higher the surer of the positive label."""
    missing_are_wrong: bool = False
    """An id without a row is a wrong prediction; else it refuses the file."""


@dataclass(frozen=True)
class Read:
    """Labels (1 positive, 0 negative, or MISSING) in the order of the ids asked for, and their
    scores, None for MISSING, where the file has such a column."""

    labels: list[int]
    normalisations: list[str]
    scores: list[float | None] | None = None


@dataclass(frozen=True)
class Refused:
    """Every problem of the file, each with its count and samples."""

    problems: list[str]

    @property
    def sentence(self) -> str:
        return "; ".join(self.problems)


def read(content: bytes, ids: Sequence[str], columns: Columns) -> Read | Refused:
    """The label of each of `ids`, or all that keeps the file from being graded."""
    notes: Notes = {}
    try:
        rows = rows_of(decoded(content, notes), notes)
        header = next(rows, None)
    except Unreadable as problem:
        return Refused([str(problem)])
    except csv.Error as error:
        return Refused([f"the header can't be read: {error}"])
    if header is None:
        return Refused([f"the file is empty ({len(content)} bytes)"])
    places = _places(header[1], columns, notes)
    if isinstance(places, Refused):
        if any(name.strip() in ids for name in header[1][:8]):
            return Refused([f"{places.sentence}; the first row is one of predictions, no header"])
        return places
    reader = _Reader(ids, columns, places, notes)
    try:
        for line, row in rows:
            if reader.count == len(ids) + SPARE_ROWS:
                reader.broken = f"it goes on after {reader.count} rows, which are all that is read"
                break
            reader.take(line, row)
    except csv.Error as error:
        reader.broken = f"it can't be read beyond row {reader.count}: {error}"
    return reader.result()


@dataclass(frozen=True)
class _Places:
    header: list[str]
    id: int
    label: int
    score: int | None


def _places(header: list[str], columns: Columns, notes: Notes) -> _Places | Refused:
    names = _stripped(header)
    wanted = [columns.id, columns.label]
    if columns.score is not None and columns.score in names:
        wanted.append(columns.score)
    known = [name for name in names if name in wanted]
    indexed = names[0] in INDEX_NAMES and names[0] not in wanted
    if sorted(known) != sorted(wanted) or len(names) != len(known) + indexed:
        return Refused([_wrong_header(names, columns)])
    if names != header:
        notes["spaces around column names"] = None
    if indexed:
        notes["an index column"] = None
    if known != wanted:
        notes["other column order"] = None
    score = names.index(wanted[2]) if len(wanted) > 2 else None
    return _Places(names, names.index(columns.id), names.index(columns.label), score)


def _stripped(row: list[str]) -> list[str]:
    return [field.strip() for field in row]


def _wrong_header(names: list[str], columns: Columns) -> str:
    found = ", ".join(ascii(name[:SAMPLE_CHARS]) for name in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    separators = [mark for mark in _SEPARATORS if len(names) == 1 and mark in names[0]]
    hint = f" (separated by {separators[0]!r} instead of a comma)" if separators else ""
    allowed = f", and {columns.score!r} if you like" if columns.score else ""
    wanted = f"{columns.id!r}, {columns.label!r}{allowed}"
    return f"the columns are {found}{more}{hint}; wanted are {wanted}"


class _Reader:
    """Takes rows one by one; memory does not grow with rows that nobody asked for."""

    def __init__(self, ids: Sequence[str], columns: Columns, places: _Places, notes: Notes) -> None:
        self._ids = ids
        self._wanted = frozenset(ids)
        self._whole = all(one.removeprefix("-").isdecimal() for one in ids)
        self._columns = columns
        self._places = places
        self._notes = notes
        self._words = Labels(
            columns.positive, columns.negative, columns.positive_words, columns.negative_words
        )
        self._spelt: dict[str, None] = {}
        self._labels: dict[str, int | None] = {}
        self._scores: dict[str, float | None] = {}
        self._repeated: dict[str, bool] = {}
        """id that comes more than once → whether its labels differ"""
        self.count = 0
        self.broken = ""
        self._ragged, self._headers, self._unknown = Samples(), Samples(), Samples()
        self._bad_labels = {kind: Samples() for kind in Bad}
        self._no_score = Samples()

    def take(self, line: int, row: list[str]) -> None:
        self.count += 1
        places = self._places
        if len(row) != len(places.header):
            self._ragged.add(f"line {line} has {len(row)}")
            return
        if row[places.id].strip() == self._columns.id and _stripped(row) == places.header:
            self._headers.add(f"line {line}")
            return
        one = self._id(row[places.id])
        label = self._label(row[places.label], one)
        score = None if places.score is None else self._score(row[places.score], one)
        # A value that can't be read is a problem already; its row is there nonetheless.
        if one not in self._wanted:
            self._unknown.add(shown(one) or "(empty)")
        elif one in self._labels:
            differs = self._labels[one] != label
            self._repeated[one] = self._repeated.get(one, False) or differs
        else:
            self._labels[one] = label
            self._scores[one] = score

    def _without_spaces(self, text: str) -> str:
        stripped = text.strip()
        if stripped != text:
            self._notes["spaces around values"] = None
        return stripped

    def _id(self, text: str) -> str:
        if text in self._wanted:
            return text
        stripped = self._without_spaces(text)
        if stripped not in self._wanted and self._whole:
            whole = WHOLE.match(stripped)
            if whole and whole.group(1) in self._wanted:
                self._notes["ids written as floats (1.0)"] = None
                return whole.group(1)
        return stripped

    def _label(self, text: str, one: str) -> int | None:
        stripped = self._without_spaces(text)
        found = self._words.read(stripped)
        if isinstance(found, Bad):
            self._bad_labels[found].add(_sample(found, stripped, one))
            return None
        label, spelling = found
        if spelling:
            self._spelt[spelling] = None
        return label

    def _score(self, text: str, one: str) -> float | None:
        stripped = self._without_spaces(text)
        found = finite(stripped)
        if found is None:
            self._no_score.add(f"'{shown(stripped)}' for {shown(one)}")
        return found

    def result(self) -> Read | Refused:
        missing = Samples()
        for one in self._ids:
            if one not in self._labels:
                missing.add(shown(one))
        problems = list(self._problems(missing))
        if problems:
            return Refused(problems)
        notes = [*self._notes, *self._spellings()]
        if missing.count:
            notes.append(f"{self._told(missing)}, each counted as wrong")
        found = [self._labels.get(one) for one in self._ids]
        labels = [MISSING if label is None else label for label in found]
        scored = self._places.score is not None
        return Read(labels, notes, [self._scores.get(one) for one in self._ids] if scored else None)

    def _told(self, missing: Samples) -> str:
        return f"{missing.count} of {len(self._ids)} ids missing ({missing})"

    def _spellings(self) -> Iterator[str]:
        spelt = list(self._spelt)
        yield from (f"labels written as {spelling}" for spelling in spelt[:_SPELLINGS])
        if len(spelt) > _SPELLINGS:
            yield f"labels written in {len(spelt) - _SPELLINGS} other ways"

    def _problems(self, missing: Samples) -> Iterator[str]:
        if self.broken:
            yield self.broken
        if self.count == 0:
            yield f"the file has a header and no rows; {len(self._ids)} are wanted"
            return
        if self._ragged.count:
            width = len(self._places.header)
            yield (
                f"{self._ragged.count} rows with another number of fields than the header's "
                f"{width} ({self._ragged})"
            )
        if self._headers.count:
            yield f"the header comes again {self._headers.count} times ({self._headers})"
        if self._repeated:
            repeated, clashing = Samples(), sum(self._repeated.values())
            for one in self._repeated:
                repeated.add(shown(one))
            clash = f", {clashing} with different labels" if clashing else ""
            yield f"{repeated.count} ids more than once ({repeated}){clash}"
        if self._unknown.count:
            yield f"{self._unknown.count} ids that were not asked for ({self._unknown})"
        if missing.count and not self._columns.missing_are_wrong:
            yield self._told(missing)
        for kind, sentence in _LABEL_PROBLEMS.items():
            if (bad := self._bad_labels[kind]).count:
                said = sentence.format(self._columns.positive, self._columns.negative, bad)
                yield f"{bad.count} {said}"
        if self._no_score.count:
            yield f"{self._no_score.count} scores are no finite number ({self._no_score})"


def _sample(kind: Bad, text: str, one: str) -> str:
    if kind is Bad.MISSING:
        return shown(one)
    value = f"'{shown(text)}'" if kind is Bad.STRANGE else shown(text)
    return f"{value} for {shown(one)}"
