"""The signals that ask a process to stop, and how work that mustn't be cut holds them back."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heard() -> list[signal.Signals]:
    """What `nohup` or a shell's background job ignores was ignored on purpose."""
    return [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]


class HeldStops:
    """While entered, a stop raises nothing: it calls `on_stop`, and is raised on leaving.

    An exception of a signal can come between any two instructions, those of a clean-up too; so work
    with something to clean up lets none come. Outside the main thread, where none comes, it does
    nothing.
    """

    def __init__(self) -> None:
        self.on_stop: Callable[[], None] = lambda: None
        self._came: int | None = None
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in heard()}
        try:
            for number in self._before:
                signal.signal(number, self._note)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._restore()
        except BaseException:
            # A stop that came between two of them was raised by the first.
            self._restore()
            raise
        if self._came is not None:
            signal.raise_signal(self._came)

    @property
    def stopped(self) -> bool:
        return self._came is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came = number
        self.on_stop()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
