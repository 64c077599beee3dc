"""When a reply says the same for ever: a rule over its tail, in bounded memory and linear time.

A text repeats without end when its tail is exactly periodic: one unit of at most MAX_UNIT
characters, at least MIN_TIMES times in a row, over at least MIN_CHARS characters. Code, tables,
lists and data hold no such tail: rules and rows of zeros are far shorter, and what merely looks
alike (numbered lines, rows of measurements) is not exactly equal. A model that counts while it
loops, or says it in ever new words, is not noticed here; the cap on generated tokens ends it.

Ollama has a rule of its own: after more than SAME_TOKENS tokens in a row that are equal but for
white space it ends the stream, without its last line and without an error.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_UNIT = 4096
MIN_CHARS = 8192
MIN_TIMES = 5
LOOK_EVERY = 2048
"""Characters between two looks; a look costs about as much as copying the tail."""
SAME_TOKENS = 30
_TAIL = max(MIN_CHARS, MIN_TIMES * MAX_UNIT)


@dataclass(frozen=True)
class Repetition:
    """`unit` was said `times` times in a row when it was noticed."""

    unit: str
    times: int

    @property
    def sentence(self) -> str:
        shown = self.unit[:60] + ("…" if len(self.unit) > 60 else "")
        return (
            f"the reply repeats itself without end: {len(self.unit)} characters, at least "
            f"{self.times} times in a row: {shown!r}"
        )


class Watch:
    """One stream of text, piece by piece."""

    def __init__(self) -> None:
        self._tail = ""
        self._new: list[str] = []
        self._waiting = 0
        self._last = ""
        self._same = 0

    def add(self, text: str) -> Repetition | None:
        """What is repeated, once enough of it has come."""
        if not text:
            return None
        self._same = self._same + 1 if text.strip() == self._last else 1
        self._last = text.strip()
        self._new.append(text)
        self._waiting += len(text)
        if self._waiting < LOOK_EVERY:
            return None
        self._tail = (self._tail + "".join(self._new))[-_TAIL:]
        self._new, self._waiting = [], 0
        return repetition(self._tail)

    @property
    def same(self) -> Repetition | None:
        """The piece that all the last ones were, where Ollama would have ended the stream."""
        return Repetition(self._last, self._same) if self._same > SAME_TOKENS else None


def repetition(tail: str) -> Repetition | None:
    """Judge the end of a text; of more than the last 20,480 characters nothing is looked at."""
    if len(tail) < MIN_CHARS:
        return None
    # Backwards, the smallest period is the first place where the beginning is found again. The
    # needle is as long as the longest unit, so that nothing shorter than the period can match.
    backwards = tail[: -_TAIL - 1 : -1]
    unit = backwards.find(backwards[:MAX_UNIT], 1, 2 * MAX_UNIT)
    if unit < 0:
        return None
    length = max(MIN_CHARS, MIN_TIMES * unit)
    if len(backwards) < length or backwards[unit:length] != backwards[: length - unit]:
        return None
    return Repetition(tail[-unit:], length // unit)
