"""What is said to a model whose reply ended before it was whole, and when.

The file in which it was cut is asked for anew from its first line, never joined: a small model
that is told to go on in the middle of a line repeats some of them, leaves some out or opens a new
fence, and none of that can be told from what it meant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

CUT_REASONS = frozenset({"truncated", "ambiguous-fences"})
"""Refusals of blocks of which the end was not found."""
LONGEST_UNIT = 4096
REPEATED_CHARS = 400
REPEATED_TIMES = 5
SHORT_UNIT = 8
SHORT_TIMES = 30
"""One token so often is where servers end a reply by themselves."""


@dataclass(frozen=True)
class Cut:
    """A reply that was cut off. `missing`: files that were begun; `before`: its text up to there,
    without reasoning."""

    missing: tuple[str, ...]
    before: str


def messages(
    cut: Cut, kept: Collection[str], prompt_chars: int, room_chars: int | None
) -> list[dict[str, str]] | None:
    """What follows the prompt; None where it has no room. What the reply said before is left out
    where only that has none."""
    wanted = _wanted(cut, kept)
    for before in (cut.before.strip(), ""):
        said = before or "(The reply was cut off.)"
        if room_chars is None or prompt_chars + len(said) + len(wanted) <= room_chars:
            return [
                {"role": "assistant", "content": said},
                {"role": "user", "content": wanted},
            ]
    return None


def _wanted(cut: Cut, kept: Collection[str]) -> str:
    parts = ["Your reply was cut off before its end."]
    if kept:
        parts.append(f"These files arrived whole and are kept: {_listed(kept)}.")
    if cut.missing:
        it = "it" if len(cut.missing) == 1 else "each of them"
        parts.append(
            f"Not kept, because its end is missing: {_listed(cut.missing)}. Write {it} again as a "
            "whole, from its first line to its last; don't go on in the middle."
        )
    parts.append(
        "Then give the files that were still to come, if there are any. Use the same format: "
        "`### FILE:` and the path, then the file between lines of four backticks. Don't repeat "
        "what is kept. Be brief: no explanations."
    )
    return " ".join(parts)


def _listed(paths: Collection[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def goes_round(text: str) -> bool:
    """Whether the text ends in the same words over and over: asking for more of it is no use."""
    tail = text.rstrip()[-LONGEST_UNIT * REPEATED_TIMES :]
    for unit in range(1, min(LONGEST_UNIT, len(tail) // REPEATED_TIMES) + 1):
        times = max(REPEATED_TIMES, -(-REPEATED_CHARS // unit))
        if unit <= SHORT_UNIT:
            times = SHORT_TIMES
        end = tail[-unit * times :]
        if len(end) == unit * times and end == end[:unit] * times:
            return True
    return False


def exhausted(left: object) -> bool:
    """Whether the wallet's `left` has nothing of something: no call would be let through."""
    amounts: Sequence[object] = list(left.values()) if isinstance(left, dict) else []
    return any(amount is not None and amount == 0 for amount in amounts)
