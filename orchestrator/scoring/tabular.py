"""A CSV file's bytes → rows, strictly: what it is instead where it is no text, what it holds.

Spellings that change nothing are noted; samples of a file are shown so that what can't be seen in
them is seen.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field

SAMPLES = 3
SAMPLE_CHARS = 40
MAX_FIELD = 1 << 20

Notes = dict[str, None]
"""Spellings that were accepted, in the order found; used as a set."""

_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a zip archive or a workbook",
    b"PAR1": "Parquet",
    b"\x93NUMPY": "an array of NumPy",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
# A mark of UTF-32 begins as one of UTF-16 does.
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class Unreadable(Exception):
    """The file can't be read at all; the text is the problem."""


def decoded(content: bytes, notes: Notes) -> str:
    """The file's text. Raises Unreadable."""
    if not content.removeprefix(codecs.BOM_UTF8).strip():
        raise Unreadable(f"the file is empty ({len(content)} bytes)")
    for magic, what in _FORMATS.items():
        if content.startswith(magic):
            raise Unreadable(f"the file is {what}; plain CSV is wanted")
    for mark, name in _OTHER_MARKS.items():
        if content.startswith(mark):
            raise Unreadable(f"the file is {name}; UTF-8 is wanted")
    if b"\0" in content:
        raise Unreadable(f"the file holds {content.count(0)} NUL bytes; it is no text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise Unreadable(f"the file is not UTF-8 (line {line})") from None
    if content.startswith(codecs.BOM_UTF8):
        notes["byte order mark"] = None
    if "\r" in text:
        notes["line ends other than LF"] = None
    if '"' in text:
        notes["quoted fields"] = None
    return text


def rows(text: str, notes: Notes) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields); blank lines are left out and noted. Raises csv.Error."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for row in reader:
        if row:
            yield reader.line_num, row
        else:
            notes["blank lines"] = None


def shown(text: str) -> str:
    """A sample of a file: cut, and with escapes for what isn't ASCII, since a letter may look like
    another and some can't be seen at all."""
    cut = text[:SAMPLE_CHARS]
    return cut if cut.isascii() and cut.isprintable() else ascii(cut)[1:-1]


@dataclass
class Samples:
    """A count and the first few of what was counted."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, sample: str) -> None:
        self.count += 1
        if len(self.first) < SAMPLES:
            self.first.append(sample)

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.first) else ""
        return f"{', '.join(self.first)}{more}"
