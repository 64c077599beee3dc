"""Strict reading of a predictions file, as people write them: all problems at once, or labels.

Nothing is ever scored over the rows present: a file with any problem gives no labels at all; where
a task says so, rows that are missing count as wrong. What is only spelt otherwise (byte order mark,
line ends, quoting, an index column, `1.0` for `1`) is accepted and listed.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite

MISSING = -1
"""In place of a label: the file has no row for the id, and the task counts that as wrong."""
SAMPLES = 3
SAMPLE_CHARS = 40
INDEX_NAMES = ("", "Unnamed: 0", "index")
"""Headers of a column of row numbers, as data frames write it."""
MAX_FIELD = 1 << 20
SPARE_ROWS = 100_000
"""Read beyond one row an id; a file with more is no answer, and reading all of it takes minutes."""

_WHOLE = re.compile(r"^(-?\d+)\.0+$")
_NUMBER = re.compile(r"^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$")
_MISSING = ("", "nan", "na", "n/a", "null", "none", "<na>")


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
    notes: dict[str, None] = {}
    text = _decoded(content, notes)
    if isinstance(text, Refused):
        return text
    rows = _rows(text, notes)
    try:
        header = next(rows, None)
    except csv.Error as error:
        return Refused([f"the header can't be read: {error}"])
    if header is None:
        return Refused([f"the file is empty ({len(content)} bytes)"])
    places = _places(header[1], columns, notes)
    if isinstance(places, Refused):
        return places
    reader = _Reader(ids, columns, notes)
    try:
        for line, row in rows:
            if reader.count == len(ids) + SPARE_ROWS:
                reader.broken = f"it goes on after {reader.count} rows, which are all that is read"
                break
            reader.take(line, row, len(header[1]), places)
    except csv.Error as error:
        reader.broken = f"it can't be read beyond row {reader.count}: {error}"
    return reader.result()


def _decoded(content: bytes, notes: dict[str, None]) -> str | Refused:
    if not content.strip():
        return Refused([f"the file is empty ({len(content)} bytes)"])
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Refused(["the file is UTF-16; UTF-8 is wanted"])
    if content.startswith(codecs.BOM_UTF8):
        notes["byte order mark"] = None
    if b"\0" in content:
        return Refused([f"the file holds {content.count(0)} NUL bytes; it is no text"])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return Refused([f"the file is not UTF-8 (line {line})"])
    if "\r" in text:
        notes["line ends other than LF"] = None
    if '"' in text:
        notes["quoted fields"] = None
    return text


def _rows(text: str, notes: dict[str, None]) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields); blank lines are left out and noted."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for row in reader:
        if row:
            yield reader.line_num, row
        else:
            notes["blank lines"] = None


@dataclass(frozen=True)
class _Places:
    id: int
    label: int
    score: int | None


def _places(header: list[str], columns: Columns, notes: dict[str, None]) -> _Places | Refused:
    names = [name.strip() for name in header]
    if names != header:
        notes["spaces around column names"] = None
    wanted = [columns.id, columns.label]
    if columns.score is not None and columns.score in names:
        wanted.append(columns.score)
    known = [name for name in names if name in wanted]
    index_columns = [name for name in names[:1] if name in INDEX_NAMES and name not in wanted]
    extra = [name for name in names[len(index_columns) :] if name not in wanted]
    if sorted(known) != sorted(wanted) or extra:
        found = ", ".join(repr(name[:SAMPLE_CHARS]) for name in names[:8])
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        separators = [mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]]
        hint = f" (separated by {separators[0]!r} instead of a comma)" if separators else ""
        allowed = f", and {columns.score!r} if you like" if columns.score else ""
        asked = f"{columns.id!r}, {columns.label!r}{allowed}"
        return Refused([f"the columns are {found}{more}{hint}; wanted are {asked}"])
    if index_columns:
        notes["an index column"] = None
    if known != wanted:
        notes["other column order"] = None
    score = names.index(wanted[2]) if len(wanted) > 2 else None
    return _Places(names.index(columns.id), names.index(columns.label), score)


@dataclass
class _Samples:
    """A count and the first few of what was counted."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, sample: str) -> None:
        self.count += 1
        if len(self.first) < SAMPLES:
            self.first.append(sample[:SAMPLE_CHARS])

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.first) else ""
        return f"{', '.join(self.first)}{more}"


class _Reader:
    """Takes rows one by one; memory does not grow with rows that nobody asked for."""

    def __init__(self, ids: Sequence[str], columns: Columns, notes: dict[str, None]) -> None:
        self._ids = ids
        self._wanted = frozenset(ids)
        self._whole = all(one.lstrip("-").isdigit() for one in ids)
        self._columns = columns
        self._notes = notes
        self._spellings = _spellings(columns)
        self._labels: dict[str, int] = {}
        self._scores: dict[str, float] = {}
        self._repeated: dict[str, bool] = {}
        """id that comes more than once → whether its labels differ"""
        self.count = 0
        self.broken = ""
        self._ragged, self._unknown = _Samples(), _Samples()
        self._empty, self._shares, self._strange = _Samples(), _Samples(), _Samples()
        self._no_score = _Samples()

    def take(self, line: int, row: list[str], width: int, places: _Places) -> None:
        self.count += 1
        if len(row) != width:
            self._ragged.add(f"line {line} has {len(row)}")
            return
        one = self._id(row[places.id])
        label = self._label(row[places.label], one)
        score = None if places.score is None else self._score(row[places.score], one)
        if one not in self._wanted:
            self._unknown.add(one or "(empty)")
        elif one in self._labels:
            differs = self._labels[one] != label
            self._repeated[one] = self._repeated.get(one, False) or differs
        else:
            # A label that can't be read is a problem already; its row is there nonetheless.
            self._labels[one] = MISSING if label is None else label
            if score is not None:
                self._scores[one] = score

    def _id(self, text: str) -> str:
        stripped = text.strip()
        if stripped not in self._wanted and self._whole:
            whole = _WHOLE.match(stripped)
            if whole and whole.group(1) in self._wanted:
                self._notes["ids written as floats (1.0)"] = None
                return whole.group(1)
        return stripped

    def _label(self, text: str, one: str) -> int | None:
        stripped = text.strip()
        value = self._spellings.get(stripped.lower())
        if value is None and (whole := _WHOLE.match(stripped)):
            value = self._spellings.get(whole.group(1))
        if value is not None:
            if stripped not in (self._columns.positive, self._columns.negative):
                kind = "as floats (1.0)" if _WHOLE.match(stripped) else f"as {stripped!r}"
                self._notes[f"labels written {kind}"] = None
            return value
        if stripped.lower() in _MISSING:
            self._empty.add(one)
        elif _NUMBER.match(stripped) and 0 <= float(stripped) <= 1:
            self._shares.add(f"{stripped} for {one}")
        else:
            self._strange.add(f"{stripped!r} for {one}")
        return None

    def _score(self, text: str, one: str) -> float | None:
        stripped = text.strip()
        if _NUMBER.match(stripped) and isfinite(number := float(stripped)):
            return number
        self._no_score.add(f"{stripped!r} for {one}")
        return None

    def result(self) -> Read | Refused:
        missing = _Samples()
        for one in self._ids:
            if one not in self._labels:
                missing.add(one)
        problems = list(self._problems(missing))
        if problems:
            return Refused(problems)
        notes = list(self._notes)
        if missing.count:
            notes.append(f"{self._told(missing)}, each counted as wrong")
        labels = [self._labels.get(one, MISSING) for one in self._ids]
        scores = [self._scores.get(one) for one in self._ids] if self._scores else None
        return Read(labels, notes, scores)

    def _told(self, missing: _Samples) -> str:
        return f"{missing.count} of {len(self._ids)} ids missing ({missing})"

    def _problems(self, missing: _Samples) -> Iterator[str]:
        columns = self._columns
        if self.broken:
            yield self.broken
        if self.count == 0:
            yield f"the file has a header and no rows; {len(self._ids)} are wanted"
            return
        if self._ragged.count:
            yield f"{self._ragged.count} rows with another number of fields ({self._ragged})"
        if self._repeated:
            repeated, clashing = _Samples(), sum(self._repeated.values())
            for one in self._repeated:
                repeated.add(one)
            clash = f", {clashing} with different labels" if clashing else ""
            yield f"{repeated.count} ids more than once ({repeated}){clash}"
        if self._unknown.count:
            yield f"{self._unknown.count} ids that were not asked for ({self._unknown})"
        if missing.count and not columns.missing_are_wrong:
            yield self._told(missing)
        if self._empty.count:
            yield f"{self._empty.count} labels empty or NaN (for {self._empty})"
        if self._shares.count:
            yield (
                f"{self._shares.count} labels are probabilities where {columns.positive} or "
                f"{columns.negative} is wanted ({self._shares})"
            )
        if self._strange.count:
            yield (
                f"{self._strange.count} labels are neither {columns.positive} nor "
                f"{columns.negative} ({self._strange})"
            )
        if self._no_score.count:
            yield f"{self._no_score.count} scores are no finite number ({self._no_score})"


def _spellings(columns: Columns) -> dict[str, int]:
    """Lower-case spelling → label. The task's own labels win over a word they collide with."""
    spelt = {word.lower(): 0 for word in ("false", *columns.negative_words)}
    spelt |= {word.lower(): 1 for word in ("true", *columns.positive_words)}
    spelt |= {columns.negative.lower(): 0, columns.positive.lower(): 1}
    return spelt
