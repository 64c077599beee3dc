"""One piece of work on the engine: leased while it lives, swept by label when it ends."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from orchestrator.config import Settings
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.trial.lease import Lease
from orchestrator.trial.log import Say


@contextmanager
def session(settings: Settings, engine: Engine, name: str, say: Say) -> Iterator[Owner]:
    """Hold the lease of `name`; whatever ends the block, nothing labelled with it stays behind.

    SIGTERM and SIGHUP end the block as Ctrl-C does. While it cleans, further ones are told to
    wait: the engine calls under way take a second, and cutting them would leave things behind.
    """
    with Lease(settings.runs_dir, name), _signals(say):
        try:
            yield Owner(trial=name)
        finally:
            _hold_signals(say)
            engine.remove(engine.owned(name))


def session_name(kind: str) -> str:
    """A name for work that is no trial, e.g. `score-20260102-030405-1f0c`."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _signals(say: Say) -> Iterator[None]:
    """From here on the first signal raises KeyboardInterrupt, those after it are told to wait."""
    before = {number: signal.getsignal(number) for number in _HANDLED}

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        _hold_signals(say)
        say("stopping: cleaning up, a moment (what is finished is kept)")
        raise KeyboardInterrupt

    for number in _HANDLED:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hold_signals(say: Say) -> None:
    def wait(_number: int, _frame: FrameType | None) -> None:
        say("still cleaning up")

    for number in _HANDLED:
        signal.signal(number, wait)
