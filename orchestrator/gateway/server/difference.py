"""Where a request departs from the recorded one, in words and lines that a person can read."""

from __future__ import annotations

import json
from typing import Any

CONTEXT = 2
"""Lines shown before the first that differs."""
WIDTH = 160
"""Characters of a line that are shown, the first that differs among them."""
BEFORE = 40

_ABSENT = object()


def difference(
    recorded: dict[str, Any], endpoint: str, body: dict[str, Any], pinned: dict[str, Any]
) -> str:
    """What differs first, "" for nothing: endpoint, the agent's request, then what was pinned.

    The first line is a sentence; where a text differs, the lines around follow: `-` as it was
    recorded, `+` as it is now.
    """
    error = recorded["error"]
    if error is not None and error["cause"] == "refused":
        return f"it was refused when it was recorded: {error['sentence']}"
    if recorded["endpoint"] != endpoint:
        return f"endpoint {recorded['endpoint']} is recorded, {endpoint} is asked"
    return (
        _first(recorded["request"], body, "")
        or _first(_sent(recorded["pinned"]), _sent(pinned), "pinned ")
        or ""
    )


def _sent(pinned: dict[str, Any]) -> dict[str, Any]:
    return {name: change["sent"] for name, change in pinned.items()}


def _first(was: Any, now: Any, path: str) -> str | None:
    """The first difference below `path`, None where both are the same."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in [*was, *(name for name in now if name not in was)]:
            inner = f"{path}.{name}" if path.strip() and not path.endswith(" ") else path + name
            found = _first(was.get(name, _ABSENT), now.get(name, _ABSENT), inner)
            if found:
                return found
        return None
    if isinstance(was, list) and isinstance(now, list):
        for index in range(max(len(was), len(now))):
            one, other = (values[index : index + 1] or [_ABSENT] for values in (was, now))
            found = _first(one[0], other[0], f"{path}[{index}]")
            if found:
                return found
        return None
    if isinstance(was, str) and isinstance(now, str):
        was, now = _storable(was), _storable(now)
    if was == now and isinstance(was, bool) == isinstance(now, bool):
        return None
    if isinstance(was, str) and isinstance(now, str):
        return _text(was, now, path)
    return f"{path} is {_value(was)} in the recording and {_value(now)} now"


def _storable(text: str) -> str:
    """Halves of surrogate pairs as `?`: that is how a record keeps them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _value(value: Any) -> str:
    return "absent" if value is _ABSENT else _clip(json.dumps(value), 0)


def _text(was: str, now: str, path: str) -> str:
    """Both texts differ."""
    before, after = was.split("\n"), now.split("\n")
    number = 0
    while number < min(len(before), len(after)) and before[number] == after[number]:
        number += 1
    lines = [f"{path} differs from the recording in line {number + 1}"]
    for index in range(max(0, number - CONTEXT), number):
        lines.append(f"  {index + 1}   {_clip(before[index], 0)}")
    left = before[number] if number < len(before) else None
    right = after[number] if number < len(after) else None
    column = _column(left or "", right or "")
    for mark, line in (("-", left), ("+", right)):
        shown = "(the text ends before)" if line is None else _clip(line, column)
        lines.append(f"  {number + 1} {mark} {shown}")
    return "\n".join(lines)


def _column(left: str, right: str) -> int:
    """Index of the first character that differs."""
    column = 0
    while column < min(len(left), len(right)) and left[column] == right[column]:
        column += 1
    return column


def _clip(line: str, column: int) -> str:
    """The part of a long line that holds `column`."""
    start = max(0, column - BEFORE) if len(line) > WIDTH else 0
    shown = line[start : start + WIDTH]
    return ("…" if start else "") + shown + ("…" if start + WIDTH < len(line) else "")
