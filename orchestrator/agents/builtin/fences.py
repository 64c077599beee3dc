"""Fenced blocks in a reply, and where a block that holds a whole file ends.

Markdown alone can't say where a file ends that contains fences of its own length. What decides,
in this order: an info string only ever opens; a fence of more than three marks ends at the first
of its kind; a fence inside an open Python string closes nothing; a text that parses is whole; else
the lines around the fence. Where nothing decides, the answer is "ambiguous", never a guess.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath

from . import edits, names
from .leaks import TOKENS

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})([^\n]*)$")
# Some models' end-of-turn marks leak into the text, as in "```<|im_end|>".
_SPECIAL_TOKEN = re.compile(rf"(?:{TOKENS})+\s*$")
ORDINARY = 3
_DOCUMENTS = frozenset({".md", ".markdown", ".mdx", ".rst", ".adoc"})
_LISTS_OF_FILES = frozenset({".txt", ".gitignore", ".dockerignore", ".cfg", ".ini", ".in"})


@dataclass(frozen=True)
class Fence:
    line: int
    indent: int
    char: str
    length: int
    info: str


class End(Enum):
    """Why a block has no closing line."""

    UNTERMINATED = "unterminated"
    AMBIGUOUS = "ambiguous"


def is_document(path: str) -> bool:
    """Whether the file is prose that may well hold fenced blocks of its own."""
    return PurePosixPath(path).suffix.lower() in _DOCUMENTS


def read_fence(lines: Sequence[str], index: int) -> Fence | None:
    """The fence that stands at this line, if one does (inline ```code``` is none)."""
    match = _FENCE.match(lines[index])
    if match is None:
        return None
    indent, marks, info = match.groups()
    if marks[0] == "`" and "`" in info:
        return None
    info = _SPECIAL_TOKEN.sub("", info).strip()
    return Fence(index, len(indent.expandtabs(4)), marks[0], len(marks), info)


def body(lines: Sequence[str], opener: Fence, end: int) -> str:
    """Text between opener and closing line, without the opener's indentation."""
    taken = [_dedent(line, opener.indent) for line in lines[opener.line + 1 : end]]
    return "\n".join(taken) + "\n" if taken else ""


def find_end(lines: Sequence[str], opener: Fence, path: str, stop: int) -> int | End:
    """Index of the line that closes the block of file `path`, looking no further than `stop`."""
    candidates = list(_candidates(lines, opener, stop))
    if not candidates:
        return _shorter_end(lines, opener, stop)
    suffix = PurePosixPath(path).suffix.lower()
    if not is_document(path) and suffix not in _LISTS_OF_FILES:
        sibling = next((c for c in candidates if _opens_a_sibling(lines, c, stop)), None)
        if sibling is not None:
            candidates = candidates[: candidates.index(sibling)]
            if not candidates:
                return End.UNTERMINATED
    if opener.length > ORDINARY:
        return candidates[0]  # chosen so that nothing in the file could close it
    if suffix == ".py":
        return _python_end(lines, opener, candidates, stop)
    if suffix in (".json", ".toml"):
        whole = [c for c in candidates if _parses(body(lines, opener, c), suffix)]
        return whole[0] if whole else candidates[0]
    return _end_by_neighbours(lines, opener, candidates, stop, document=is_document(path))


def _shorter_end(lines: Sequence[str], opener: Fence, stop: int) -> int | End:
    """A long fence that was closed by an ordinary one, seen by nothing coming after it."""
    ordinary = replace(opener, length=ORDINARY)
    ends = [c for c in _candidates(lines, ordinary, stop) if _nothing_after(lines, c, stop)]
    return ends[0] if ends else End.UNTERMINATED


def first_end(lines: Sequence[str], opener: Fence) -> int | None:
    """The nearest line that can close a block that is no file."""
    return next(_candidates(lines, opener, len(lines)), None)


def edit_end(lines: Sequence[str], opener: Fence, *, sections: bool) -> int | None:
    """The line that closes a block of edits: a bare fence at its margin. What stands in a
    SEARCH/REPLACE section is the file's; a diff's own lines have a sign before them."""
    index = opener.line + 1
    while index < len(lines):
        if sections and edits.is_search(lines[index]):
            after = edits.sections_end(lines, index)
            if after is None:
                return None
            index = after
            continue
        fence = read_fence(lines, index)
        closes = fence is not None and not fence.info and fence.char == opener.char
        if fence is not None and closes and fence.indent <= opener.indent:
            return index
        index += 1
    return None


def _candidates(lines: Sequence[str], opener: Fence, stop: int) -> Iterator[int]:
    """Bare fences that stand directly in the block, each read as its end or, failing that, as
    the start of a nested block."""
    inner: list[int] = []
    for index in range(opener.line + 1, stop):
        fence = read_fence(lines, index)
        if fence is None or not same_family(opener, fence):
            continue
        if fence.info:
            inner.append(fence.length)
        elif not inner:
            yield index
            inner.append(fence.length)
        elif fence.length >= inner[-1]:
            inner.pop()


def same_family(opener: Fence, fence: Fence) -> bool:
    """Whether the fence could end the block, or begin one that ends as this one does."""
    return (
        fence.char == opener.char
        and fence.length >= opener.length
        and fence.indent <= opener.indent + 3
    )


def _python_end(lines: Sequence[str], opener: Fence, candidates: list[int], stop: int) -> int | End:
    outside = [c for c in candidates if not _inside_string(body(lines, opener, c))]
    if not outside:
        # Broken by its author, or cut off: whole only when nothing at all follows.
        last = candidates[-1]
        alone = len(candidates) == 1 and _nothing_after(lines, last, stop)
        return last if alone else End.UNTERMINATED
    whole = [c for c in outside if _parses(body(lines, opener, c), ".py")]
    return whole[0] if whole else outside[0]


def _inside_string(text: str) -> bool:
    try:
        _parse_python(text)
    except SyntaxError as exc:
        return "unterminated triple-quoted" in (exc.msg or "")
    except (ValueError, RecursionError, MemoryError):
        return False
    return False


def _parses(text: str, suffix: str) -> bool:
    try:
        if suffix == ".py":
            _parse_python(text)
        elif suffix == ".json":
            json.loads(text)
        else:
            tomllib.loads(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _parse_python(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(text)


def _end_by_neighbours(
    lines: Sequence[str], opener: Fence, candidates: list[int], stop: int, *, document: bool
) -> int | End:
    for place, index in enumerate(candidates):
        more = place + 1 < len(candidates)
        role = _role(lines, index, stop)
        if role == "closes" or (role == "unclear" and not (document and more)):
            return index
        if role == "unclear":
            return End.AMBIGUOUS
    last = candidates[-1]
    if len(candidates) == 1 and not _fences_after(lines, opener, last, stop):
        return last
    return End.AMBIGUOUS


def _role(lines: Sequence[str], index: int, stop: int) -> str:
    """What the lines around a bare fence say of it: `opens`, `closes` or `unclear`."""
    if _nothing_after(lines, index, stop) or _header_follows(lines, index, stop):
        return "closes"
    before, after = lines[index - 1].strip(), lines[index + 1].strip()
    if not after:
        return "closes" if before else "unclear"
    if not before or before.endswith(":"):
        return "opens"
    return "unclear"


def _nothing_after(lines: Sequence[str], index: int, stop: int) -> bool:
    return not any(line.strip() for line in lines[index + 1 : stop])


def _header_follows(lines: Sequence[str], index: int, stop: int) -> bool:
    """A file name on its own, then a fence: the next file begins here."""
    rest = [i for i in range(index + 1, min(index + 5, stop)) if lines[i].strip()]
    return (
        len(rest) >= 2
        and names.from_header(lines[rest[0]]) is not None
        and read_fence(lines, rest[1]) is not None
    )


def _opens_a_sibling(lines: Sequence[str], index: int, stop: int) -> bool:
    """Another file's name stands before this bare fence: the block before was never closed."""
    if index + 1 >= stop or not lines[index + 1].strip():
        return False
    name = names.from_header(lines[index - 1])
    return name is not None and any(
        read_fence(lines, later) is not None for later in range(index + 1, stop)
    )


def _fences_after(lines: Sequence[str], opener: Fence, index: int, stop: int) -> bool:
    fences = (read_fence(lines, later) for later in range(index + 1, stop))
    return any(fence is not None and same_family(opener, fence) for fence in fences)


def _dedent(line: str, indent: int) -> str:
    lead = len(line) - len(line.lstrip(" "))
    return line[min(lead, indent) :]
