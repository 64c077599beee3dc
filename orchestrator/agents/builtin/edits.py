"""Edits of files that exist, out of a block: SEARCH/REPLACE sections and unified diffs.

A block is read here and fitted to its file in `fitting`; what can't be read is a problem in words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import names

_SEARCH = re.compile(r"^<{5,9}\s*(?:SEARCH|ORIGINAL)\b.*$")
_DIVIDER = re.compile(r"^={5,9}\s*$")
_REPLACE = re.compile(r"^>{5,9}\s*(?:REPLACE|UPDATED)\b.*$")
_HUNK = re.compile(r"^@@(?:\s+-(?P<line>\d+)(?:,\d+)?\s+\+\d+(?:,\d+)?\s+@@.*|.*)$")
_OLD = re.compile(r"^--- (?P<path>\S.*?)(?:\t.*)?\s*$")
_NEW = re.compile(r"^\+\+\+ (?P<path>\S.*?)(?:\t.*)?\s*$")
_GIT_LINE = re.compile(
    r"^(?:diff --git |index |(?:old|new|deleted file|new file) mode |similarity |rename |copy )"
)
_NAMES_FIRST = 2
"""So many lines with a file's name may stand in a fence before its first section."""
NOWHERE = "/dev/null"
DIFF_LANGUAGES = frozenset({"diff", "patch", "udiff"})


@dataclass(frozen=True)
class Edit:
    """Lines to be found, and those that take their place. `line` is where a diff says they begin,
    from 1."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int | None = None


@dataclass
class FileEdits:
    """All edits of one block for one file, or why they can't be read."""

    path: str
    edits: list[Edit] = field(default_factory=list)
    problem: str = ""
    cut: bool = False
    """The last section has no end."""


def is_search(line: str) -> bool:
    return _SEARCH.match(line) is not None


def begins_sections(lines: Sequence[str], start: int) -> bool:
    """Whether a block whose text begins at `start` holds sections: its first line opens one, but
    for a file's name."""
    texts = (line for line in lines[start : start + 8] if line.strip())
    for place, line in enumerate(texts):
        if is_search(line):
            return True
        named = names.from_header(line) or names.from_comment(line, "")
        if place == _NAMES_FIRST or named is None:
            return False
    return False


def begins_diff(lines: Sequence[str], start: int) -> bool:
    """Whether the text at `start` is a unified diff by its first lines."""
    rest = [line for line in lines[start : start + 8] if line.strip() and not _GIT_LINE.match(line)]
    if len(rest) >= 2 and _OLD.match(rest[0]) and _NEW.match(rest[1]):
        return True
    return bool(rest) and rest[0].startswith("@@ -") and _HUNK.match(rest[0]) is not None


def sections_end(lines: Sequence[str], start: int) -> int | None:
    """Index of the line after the section that opens at `start`; None where it is cut."""
    divided = False
    for index in range(start + 1, len(lines)):
        divided = divided or _DIVIDER.match(lines[index]) is not None
        if divided and _REPLACE.match(lines[index]):
            return index + 1
    return None


def read_sections(lines: Sequence[str], named: str | None) -> list[FileEdits]:
    """The sections of a block, by file. A line between them that is a file's name holds for those
    that follow. Sections of no known file have the path ""."""
    found: dict[str, FileEdits] = {}
    path, at = named or "", 0
    while at < len(lines):
        if not is_search(lines[at]):
            header = names.from_header(lines[at]) or names.from_comment(lines[at], "")
            path = header.path if header else path
            at += 1
            continue
        end = sections_end(lines, at)
        mine = found.setdefault(path, FileEdits(path))
        if end is None:
            mine.cut = True
            break
        middle = next(i for i in range(at + 1, end) if _DIVIDER.match(lines[i]))
        mine.edits.append(Edit(tuple(lines[at + 1 : middle]), tuple(lines[middle + 1 : end - 1])))
        at = end
    return list(found.values())


def read_diff(lines: Sequence[str], named: str | None) -> list[FileEdits]:
    """The files of a unified diff. `named`: the file, where the diff itself says none."""
    found: list[FileEdits] = []
    current = FileEdits(named or "")
    at = 0
    while at < len(lines):
        header = _header(lines, at)
        if header is not None:
            current = header
            found.append(current)
            at += 2
        elif _HUNK.match(lines[at]):
            if not found:
                found.append(current)
            at = _take_hunk(lines, at, current)
        else:
            if lines[at].startswith(("rename ", "deleted file ")):
                current = FileEdits(named or "", problem="it renames or deletes a file")
            at += 1
    for one in found:
        if not one.edits and not one.problem:
            one.problem = "it holds no hunk"
    return found


def _header(lines: Sequence[str], at: int) -> FileEdits | None:
    """The two lines that name the file, before and after."""
    if at + 1 >= len(lines):
        return None
    old, new = _OLD.match(lines[at]), _NEW.match(lines[at + 1])
    if old is None or new is None:
        return None
    before, after = _bare(old["path"], "a/"), _bare(new["path"], "b/")
    if after == NOWHERE:
        return FileEdits(before, problem="it deletes the file, which this agent does not do")
    if before not in (after, NOWHERE):
        if old["path"] == new["path"]:
            return FileEdits(old["path"])  # a folder that is really called `a`
        return FileEdits(after, problem=f"it renames {before}")
    return FileEdits(after)


def _bare(path: str, prefix: str) -> str:
    return path.strip('"').removeprefix(prefix)


def _take_hunk(lines: Sequence[str], at: int, into: FileEdits) -> int:
    """Read the hunk that opens at `at`; returns the line after it. Counts in its head are not
    looked at: models can't count."""
    match = _HUNK.match(lines[at])
    line = int(match["line"]) if match and match["line"] else None
    old: list[str] = []
    new: list[str] = []
    index = at + 1
    while index < len(lines) and not _HUNK.match(lines[index]) and _header(lines, index) is None:
        text = lines[index]
        if _GIT_LINE.match(text):
            break
        sign, rest = text[:1], text[1:]
        if sign not in ("", " ", "+", "-", "\\"):
            into.problem = into.problem or f"a line of a hunk has no sign before it: {text[:80]}"
        if sign in ("", " ", "-"):
            old.append(rest)
        if sign in ("", " ", "+"):
            new.append(rest)
        index += 1
    trailing = _trailing_blanks(lines[at + 1 : index])
    if trailing:  # between hunks and at the end they are mere layout
        del old[-trailing:], new[-trailing:]
    into.edits.append(Edit(tuple(old), tuple(new), line))
    return index


def _trailing_blanks(hunk: Sequence[str]) -> int:
    count = 0
    for text in reversed(hunk):
        if text:
            break
        count += 1
    return count
