"""Edits fitted to the text of their file: in one place only, or not at all.

An edit fits where its old lines stand exactly. Where they stand nowhere, spaces at the ends of
lines are passed over, then one indentation that all lines lack or have too much. What fits in
several places is refused, unless a diff's own line number names one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .bodies import elision
from .edits import Edit


class Unfit(ValueError):
    """The message says why, to follow the edit's number in a sentence."""

    reason = "did-not-apply"


class Elided(Unfit):
    reason = "elided"


def fitted(text: str | None, edits: Sequence[Edit], *, document: bool) -> str:
    """The text with all edits made, in order. `text` None: there is no such file.

    The file keeps its line ends. Raises Unfit for the first edit that does not fit.
    """
    carriage = text is not None and "\r\n" in text and "\n" not in text.replace("\r\n", "")
    body = (text or "").replace("\r\n", "\n") if carriage else text or ""
    lines = body.split("\n")
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    drift = 0
    for number, edit in enumerate(edits, start=1):
        try:
            _refuse_elision(edit, document=document)
            lines = _made(lines, edit, drift, exists=text is not None)
        except Unfit as exc:
            where = f"edit {number} of {len(edits)} " if len(edits) > 1 else ""
            raise type(exc)(f"{where}{exc}") from None
        drift += len(edit.new) - len(edit.old)
    whole = "\n".join(lines) + ("\n" if ended and lines else "")
    return whole.replace("\n", "\r\n") if carriage else whole


def made_already(text: str, edits: Sequence[Edit]) -> bool:
    """Whether the text has all lines that the edits would put into it."""
    lines = _bare(text.split("\n"))
    return all(edit.new and _exact(lines, _bare(edit.new)) for edit in edits)


def _refuse_elision(edit: Edit, *, document: bool) -> None:
    left_out = elision("\n".join(edit.new), document=document)
    if left_out is not None and left_out not in (line.strip() for line in edit.old):
        raise Elided(f"leaves part of the file out: {left_out}")


def _made(lines: list[str], edit: Edit, drift: int, *, exists: bool) -> list[str]:
    if not any(line.strip() for line in edit.old):
        if any(line.strip() for line in lines):
            raise Unfit("says nothing of where in the file it belongs")
        return list(edit.new)
    if not exists:
        raise Unfit("is for a file that does not exist")
    at, new = _place(lines, edit, drift)
    return [*lines[:at], *new, *lines[at + len(edit.old) :]]


def _place(lines: list[str], edit: Edit, drift: int) -> tuple[int, Sequence[str]]:
    """Where the edit's old lines stand, and its new lines as they must stand there."""
    for found in (
        [(at, edit.new) for at in _exact(lines, edit.old)],
        [(at, edit.new) for at in _exact(_bare(lines), _bare(edit.old))],
        list(_shifted(lines, edit)),
    ):
        if len(found) > 1 and edit.line is not None:
            found = [one for one in found if one[0] == edit.line - 1 + drift] or found
        if len(found) > 1:
            raise Unfit(f"fits in {len(found)} places ({_shown(edit.old)})")
        if found:
            return found[0]
    raise Unfit(f"does not match the file ({_shown(edit.old)})")


def _exact(lines: Sequence[str], old: Sequence[str]) -> list[int]:
    first, length = old[0], len(old)
    return [
        at
        for at in range(len(lines) - length + 1)
        if lines[at] == first and list(lines[at : at + length]) == list(old)
    ]


def _bare(lines: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _shifted(lines: Sequence[str], edit: Edit) -> Iterator[tuple[int, Sequence[str]]]:
    """Places where only an indentation differs, the same for all lines that hold something."""
    old = [line.strip() for line in edit.old]
    stripped = [line.strip() for line in lines]
    for at in _exact(stripped, old):
        there = lines[at : at + len(old)]
        pairs = [(_lead(a), _lead(b)) for a, b in zip(there, edit.old, strict=True) if b.strip()]
        new = _indented(edit.new, pairs)
        if new is not None:
            yield at, new


def _indented(new: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str] | None:
    """`new` as the file indents it. `pairs`: indentation there and in the edit, line by line."""
    there, given = pairs[0]
    if there.endswith(given):
        more = there.removesuffix(given)
        if all(a == more + b for a, b in pairs):
            return [more + line if line.strip() else line for line in new]
    elif given.endswith(there):
        less = given.removesuffix(there)
        fits = all(less + a == b for a, b in pairs)
        if fits and all(line.startswith(less) for line in new if line.strip()):
            return [line.removeprefix(less) for line in new]
    return None


def _lead(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _shown(old: Sequence[str]) -> str:
    first = next(line.strip() for line in old if line.strip())
    return f"it looks for {first[:80]!r}"
