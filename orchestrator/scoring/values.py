"""What a field of a predictions file says: a label, or a score. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from math import isfinite

WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
_MAX_NUMBER = 100
"""Characters; no program writes a label or a score with more."""
_NUMBER = re.compile(r"^[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$")
_MISSING = ("", "nan", "+nan", "-nan", "na", "n/a", "null", "none", "<na>", "nat")


class Bad(Enum):
    """Why a label can't be taken."""

    MISSING = "empty or NaN"
    FRACTION = "a number between 0 and 1"
    STRANGE = "anything else"


def number(text: str) -> Decimal | None:
    """A plain decimal number, exactly: as a float, 0.99999999999999999999 would be 1."""
    if len(text) > _MAX_NUMBER or not _NUMBER.match(text):
        return None
    return Decimal(text)


class Labels:
    """The spellings of a task's two labels."""

    def __init__(
        self,
        positive: str,
        negative: str,
        positive_words: Sequence[str] = (),
        negative_words: Sequence[str] = (),
    ) -> None:
        # The task's own labels win over a word they collide with.
        spelt = {word.lower(): 0 for word in ("false", *negative_words)}
        spelt |= {word.lower(): 1 for word in ("true", *positive_words)}
        self._spelt = spelt | {negative.lower(): 0, positive.lower(): 1}
        self._plain = (positive, negative)

    def read(self, text: str) -> tuple[int, str] | Bad:
        """(label, how it was spelt, "" for plainly); `text` without spaces around it."""
        label = self._spelt.get(text.lower())
        if label is not None:
            return label, "" if text in self._plain else f"{text!r}"
        if text.lower() in _MISSING:
            return Bad.MISSING
        value = number(text)
        if value is None:
            return Bad.STRANGE
        if value == value.to_integral_value():
            label = self._spelt.get(str(int(value)))
            if label is not None:
                return label, "floats (1.0)" if WHOLE.match(text) else "numbers (1e0)"
        return Bad.FRACTION if 0 < value < 1 else Bad.STRANGE


def finite(text: str) -> float | None:
    """A number of any size, as a float; None for anything else. `text` without spaces around it."""
    value = number(text)
    return None if value is None or not isfinite(found := float(value)) else found
