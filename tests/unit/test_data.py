import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from orchestrator import stops
from orchestrator.errors import DataInvalid
from orchestrator.task import Task, load_task
from orchestrator.trial import data as data_module
from orchestrator.trial.data import GENERATOR_SECONDS, ensure_data

TASK = """
schema = 1
name = "tiny"
title = "Tiny"
summary = "A small one."
[data]
generator = "generator.py"
seed = 7
[[stage]]
name = "implement"
kind = "agent"
prompt = "prompt.md"
[scorer]
kind = "predictions"
train = { name = "train", command = ["python", "train.py"] }
predict = { name = "predict", command = ["python", "predict.py"] }
id_column = "id"
label_column = "label"
"""
GENERATOR = """
import argparse, pathlib
ap = argparse.ArgumentParser()
ap.add_argument("--out", type=pathlib.Path)
ap.add_argument("--seed"); ap.add_argument("--scale"); a = ap.parse_args()
for name in ("agent/train.csv", "agent/excerpt.csv", "holdout/features.csv", "key/labels.csv"):
    (a.out / name).parent.mkdir(parents=True, exist_ok=True)
    (a.out / name).write_text(f"{name} {a.seed} {a.scale}")
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    folder = tmp_path / "tiny"
    (folder / "repo").mkdir(parents=True)
    (folder / "repo" / "SPEC.md").write_text("a spec")
    (folder / "prompt.md").write_text("do it")
    (folder / "generator.py").write_text(GENERATOR)
    (folder / "task.toml").write_text(TASK)
    return load_task(folder)


def rewrite(task: Task, generator: str) -> None:
    (task.folder / "generator.py").write_text(generator)


def test_data_are_made_once_and_found_again(tmp_path: Path, task: Task) -> None:
    said: list[str] = []
    first = ensure_data(tmp_path / "h", task, 0.5, say=said.append)
    again = ensure_data(tmp_path / "h", task, 0.5, say=said.append)
    assert first == again
    assert said == ["generating the data of tiny (seed 7, scale 0.5)"]
    assert first.holdout.features.read_text() == "holdout/features.csv 7 0.5"
    assert sorted(first.agent_files()) == ["excerpt.csv", "train.csv"]


def test_another_seed_or_scale_is_another_folder(tmp_path: Path, task: Task) -> None:
    made = [ensure_data(tmp_path / "h", task, scale, seed) for scale, seed in ((1, 7), (0.5, 8))]
    assert made[0].folder != made[1].folder


def test_a_changed_generator_makes_its_data_again(tmp_path: Path, task: Task) -> None:
    ensure_data(tmp_path / "h", task)
    rewrite(task, GENERATOR.replace("{name} {a.seed}", "{name} new {a.seed}"))
    said: list[str] = []
    made = ensure_data(tmp_path / "h", task, say=said.append)
    assert made.holdout.features.read_text() == "holdout/features.csv new 7 1"
    assert said == ["the generator of tiny changed: making its data again"]


def test_a_changed_file_is_refused_with_its_path_and_the_mend(tmp_path: Path, task: Task) -> None:
    made = ensure_data(tmp_path / "h", task)
    made.holdout.key.write_text("forged")
    with pytest.raises(DataInvalid, match="changed since it was made; delete") as caught:
        ensure_data(tmp_path / "h", task)
    assert str(made.holdout.key) in str(caught.value)


def test_data_that_differ_from_the_pins_are_refused(tmp_path: Path, task: Task) -> None:
    data = task.data.model_copy(update={"sha256": {"1": {"key/labels.csv": "0" * 64}}})
    pinned = task.model_copy(update={"data": data})
    with pytest.raises(DataInvalid, match=r"task\.toml pins 000"):
        ensure_data(tmp_path / "h", pinned)
    ensure_data(tmp_path / "h", pinned, seed=8)


@pytest.mark.parametrize(
    ("generator", "says"),
    [
        ("raise SystemExit('no disk')", "exit 1: no disk"),
        ("pass", "wrote no agent/excerpt.csv; it must"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
    ],
)
def test_a_generator_that_fails_is_named_and_leaves_nothing(
    tmp_path: Path, task: Task, generator: str, says: str
) -> None:
    rewrite(task, generator)
    with pytest.raises(DataInvalid, match=says) as caught:
        ensure_data(tmp_path / "h", task)
    assert str(task.folder / "generator.py") in str(caught.value)
    assert list((tmp_path / "h" / "tiny").iterdir()) == []


QUICK = """#!/bin/sh
# in place of the interpreter: generator --out OUT …
mkdir -p "$3/agent" "$3/holdout" "$3/key"
for file in agent/excerpt.csv holdout/features.csv key/labels.csv; do echo one > "$3/$file"; done
"""


class StopAt:
    """Sends SIGINT at the nth line that runs in the modules which make data and clean up."""

    files = (data_module.__file__, shutil.__file__, stops.__file__)

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self


def test_a_stop_at_any_line_leaves_nothing_half_made(
    tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = tmp_path / "quick"
    quick.write_text(QUICK)
    quick.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(quick))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    line, stopped = 0, 0
    try:
        while True:
            line += 1
            home = tmp_path / f"h{line}"
            stop = StopAt(line)
            sys.settrace(stop)
            try:
                made = ensure_data(home, task)
            except KeyboardInterrupt:
                stopped += 1
            finally:
                sys.settrace(None)
            left = [path.name for path in home.glob("tiny/*") if path.name.startswith(".")]
            assert left == [], f"line {line}"
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if stop.left > 0:
                break
    finally:
        signal.signal(signal.SIGINT, before)
    assert made.holdout.key.read_text() == "one\n"
    assert stopped == line - 1 > 50


def test_a_stop_ends_the_generator_at_once(tmp_path: Path, task: Task) -> None:
    rewrite(
        task,
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(600)\n",
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            ensure_data(tmp_path / "h", task)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list((tmp_path / "h" / "tiny").iterdir()) == []


def test_what_a_killed_process_left_half_made_is_removed_once_it_is_old(
    tmp_path: Path, task: Task
) -> None:
    parent = tmp_path / "h" / "tiny"
    for name in (".making-old", ".making-new"):
        (parent / name / "data").mkdir(parents=True)
    old = time.time() - 3 * GENERATOR_SECONDS
    os.utime(parent / ".making-old", (old, old))
    ensure_data(tmp_path / "h", task)
    assert sorted(path.name for path in parent.iterdir()) == [".making-new", "seed-7-scale-1"]
