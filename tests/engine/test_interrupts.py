"""Trials stopped from outside, at moments that the whole-trial tests don't reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.records.schema import RunStatus
from orchestrator.records.store import list_trials, open_trial
from orchestrator.sandbox.engine import Engine
from orchestrator.stops import STOPS
from orchestrator.trial.lease import living

SCALE = "0.02"


@contextmanager
def trial(
    home: Path, models: str = "scripted/silent", ignored: signal.Signals | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A trial in a process group of its own; `ignored` as `nohup` would have it."""
    command = [
        sys.executable, "-m", "orchestrator.cli", "trial", "spam",
        "--models", models, "--runs", "1", "--scale", SCALE,
    ]  # fmt: skip
    if ignored is not None:
        trap = f"trap '' {ignored.name.removeprefix('SIG')}; exec \"$@\""
        command = ["sh", "-c", trap, "sh", *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"ORCH_HOME": str(home), "NO_COLOR": "1"}, start_new_session=True,
        preexec_fn=stops_heard,
    ) as running:  # fmt: skip
        try:
            yield running
        finally:
            running.kill()


def stops_heard() -> None:
    """However the tests themselves were started (`nohup make test` ignores SIGHUP)."""
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def told_until(running: subprocess.Popen[str], word: str) -> str:
    """What it says up to the first line with `word`, or all when there is none."""
    assert running.stderr is not None
    told = ""
    for line in running.stderr:
        told += line
        if word in line:
            break
    return told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_stop_while_data_are_made_leaves_nothing_half_made(
    engine: Engine, tmp_path: Path, number: signal.Signals
) -> None:
    with trial(tmp_path) as running:
        told = told_until(running, "generating")
        running.send_signal(number)
        told += told_until(running, "no such word")
        assert running.wait(timeout=60) == 130, told
    assert "Traceback" not in told
    assert [path for path in tmp_path.glob("holdout/*/*") if path.name.startswith(".making")] == []
    assert list_trials(tmp_path / "runs") == []


def test_a_signal_after_the_last_word_does_not_change_the_exit_code(
    engine: Engine, tmp_path: Path
) -> None:
    with trial(tmp_path) as running:
        told_until(running, "explore")
        running.send_signal(signal.SIGTERM)
        told = told_until(running, "orch: interrupted")
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 130, told
    (trial_id,) = list_trials(tmp_path / "runs")
    assert engine.owned(trial_id) == []


def test_a_signal_that_was_ignored_at_the_start_stops_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    with trial(tmp_path, ignored=signal.SIGHUP) as running:
        told = told_until(running, "explore")
        running.send_signal(signal.SIGHUP)
        told += told_until(running, "decide")
        running.send_signal(signal.SIGTERM)
        told += told_until(running, "no such word")
        assert running.wait(timeout=60) == 130, told
    assert "  decide" in told


def test_of_two_trials_the_stopped_one_takes_only_its_own(engine: Engine, tmp_path: Path) -> None:
    with trial(tmp_path) as one:
        told_until(one, "explore")
        (kept,) = living(tmp_path / "runs")
        with trial(tmp_path) as other:
            told_until(other, "explore")
            (stopped,) = living(tmp_path / "runs") - {kept}
            assert engine.owned(stopped) != []
            os.killpg(other.pid, signal.SIGINT)
            told = told_until(other, "stopping")
            os.killpg(other.pid, signal.SIGINT)
            told += told_until(other, "no such word")
            assert other.wait(timeout=60) == 130, told
        assert engine.owned(stopped) == []
        assert engine.owned(kept) != []
        told = told_until(one, "no such word")
        assert one.wait(timeout=200) == 0, told
    assert engine.owned(kept) == []
    store = open_trial(tmp_path / "runs", kept)
    assert [run.status for run in store.runs(store.load_trial().plan)] == [RunStatus.FINISHED]
