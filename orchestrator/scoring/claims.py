"""What a submission says of itself, read by transparent rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

_F1 = re.compile(r"\bF[-\s]?1\b", re.IGNORECASE)
_EXPECTS = re.compile(
    r"\bexpect|\bestimat|\bpredict|\banticipat|\bhold[-\s]?out|\bunseen|\bproduction", re.IGNORECASE
)
_NUMBER = r"(?:0?\.\d+|1\.\d+|\d{1,2}(?:\.\d+)?\s*%|100\s*%)"
_VALUE = re.compile(rf"(?<![\w.@])({_NUMBER})(?:\s*(?:-|–|—|to|and)\s*({_NUMBER}))?(?![\w%]|\.\d)")
_SPREAD = re.compile(rf"(?:±|\+/-|\+-)\s*{_NUMBER}")


def expected_f1(text: str) -> float | None:
    """The F1 that a document expects, in [0, 1]; None where it gives none or contradicts itself.

    The rule: of the lines (and rows of tables) that name F1 and an expectation, the first number
    after the first "F1" that follows the expectation, else the last before it; where no line
    speaks of an expectation, the one value that all mentions of F1 agree on. A range counts as
    its middle, a spread after ± is left out, a percentage is divided by 100.
    """
    lines = [line for line in text.splitlines() if _F1.search(line)]
    for line in lines:
        if _EXPECTS.search(line) and (value := _value(line)) is not None:
            return value
    values = set(_values(lines))
    return values.pop() if len(values) == 1 else None


def _values(lines: list[str]) -> Iterator[float]:
    for line in lines:
        if (value := _value(line)) is not None:
            yield value


def _value(line: str) -> float | None:
    plain = _SPREAD.sub("", line.replace("*", "").replace("`", "").replace("~", ""))
    mentions = list(_F1.finditer(plain))
    expects = _EXPECTS.search(plain)
    since = expects.start() if expects else 0
    mention = next((one for one in mentions if one.start() >= since), mentions[-1])
    after = _VALUE.search(plain, mention.end())
    before = list(_VALUE.finditer(plain, 0, mention.start()))
    found = after or (before[-1] if before else None)
    if found is None:
        return None
    ends = [_fraction(part) for part in found.groups() if part]
    middle = sum(ends) / len(ends)
    return round(middle, 6) if 0 <= middle <= 1 else None


def _fraction(text: str) -> float:
    if text.endswith("%"):
        return float(text[:-1]) / 100
    return float(text)
