"""One piece of work on the engine: leased while it lives, swept by label when it ends."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from types import FrameType

from orchestrator.config import Settings
from orchestrator.errors import EngineError
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.stops import heard
from orchestrator.trial.lease import Lease
from orchestrator.trial.log import Say


@contextmanager
def session(settings: Settings, engine: Engine, name: str, say: Say) -> Iterator[Owner]:
    """Hold the lease of `name`; whatever ends the block, nothing labelled with it stays behind.

    SIGTERM and SIGHUP end the block as Ctrl-C does, unless they are ignored (`nohup`). While it
    cleans, further ones are told to wait: the engine calls under way take a second, and cutting
    them would leave things behind.
    """
    with Lease(settings.runs_dir, name), _signals(say) as stopped:
        try:
            yield Owner(trial=name)
        except Exception:
            # What failed while an interrupt was clearing away must not hide it.
            if stopped.is_set():
                raise KeyboardInterrupt from None
            raise
        finally:
            _hold_signals(say)
            _sweep(engine, name, say)


def _sweep(engine: Engine, name: str, say: Say) -> None:
    """Remove what carries the name; what stays is told, since the work itself has ended."""
    try:
        freed = engine.remove(engine.owned(name))
        kept = [f"{item.kind} {item.name}: {why}" for item, why in freed.kept]
    except EngineError as exc:
        kept = [str(exc)]
    for what in kept:
        say(f"left behind, `orch clean` removes it: {what}")


def session_name(kind: str) -> str:
    """A name for work that is no trial, e.g. `score-20260102-030405-1f0c`."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@contextmanager
def _signals(say: Say) -> Iterator[Event]:
    """From here on the first signal raises KeyboardInterrupt, those after it are told to wait.

    The event says whether there was one.
    """
    stopped = Event()
    before = {number: signal.getsignal(number) for number in heard()}

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        _hold_signals(say)
        stopped.set()
        say("stopping: cleaning up, a moment (what is finished is kept)")
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hold_signals(say: Say) -> None:
    def wait(_number: int, _frame: FrameType | None) -> None:
        say("still cleaning up")

    for number in heard():
        signal.signal(number, wait)
