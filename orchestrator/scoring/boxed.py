"""Tracebacks that `rich` draws in boxes, as the interpreter would print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOP = re.compile(r"^╭─+ (?:Traceback|Exception Group Traceback) \(most recent call last\) ─+╮$")
_FRAME = re.compile(r"^│ (?P<file>\S.*?):(?P<line>\d{1,9}) in (?P<function>\S+) *│$")
_CODE = re.compile(r"^│ +❱ +\d+ (?P<source>.*)│$")


def unboxed(lines: Sequence[str]) -> list[str]:
    """As many lines, so that their numbers stay; those without a box as they are."""
    shown: list[str] = []
    inside = False
    frame: int | None = None
    for line in lines:
        found = _FRAME.match(line) if inside else None
        code = _CODE.match(line) if inside else None
        if _TOP.match(line):
            inside, frame = True, None
            shown.append("Traceback (most recent call last):")
        elif found is not None:
            frame = len(shown)
            shown.append(f'  File "{found["file"]}", line {found["line"]}, in {found["function"]}')
        elif inside and line.startswith("│"):
            shown.append("    ")
            if code is not None and frame is not None:
                # Below its frame, where the interpreter has it; bars guide along its indentation.
                shown[frame + 1] = f"    {code['source'].lstrip('│ ')}"
        elif inside and line.startswith("╰"):
            inside = False
            shown.append("    ")
        else:
            shown.append(line)
    return shown
