"""Runs replayed through the command line: the same to the byte, or a difference one can read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_ollama import FakeOllama

from orchestrator.config import bundled
from orchestrator.records.schema import RunRecord, StageRecord
from orchestrator.records.store import TrialStore, list_trials
from orchestrator.sandbox.engine import Engine

SCALE = "0.02"
RUN = "scripted-pickle-crash-01"
EXPLORE = """I look first.

### FILE: explore.py
````python
import time

print("it is now", time.time_ns())
````
"""


def orch(home: Path, *args: str, tasks: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=os.environ
        | {"ORCH_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "100"}
        | ({"ORCH_TASKS": str(tasks)} if tasks else {}),
    )


def trial(home: Path, *args: str, tasks: Path | None = None) -> TrialStore:
    done = orch(home, "trial", "spam", "--scale", SCALE, "--json", *args, tasks=tasks)
    assert done.returncode == 0, done.stderr
    return TrialStore(home / "runs" / json.loads(done.stdout)["trial_id"])


@pytest.fixture(scope="module")
def home(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def scripted(home: Path) -> TrialStore:
    return trial(home, "--models", "scripted/pickle-crash", "--runs", "1")


@pytest.fixture(scope="module")
def short(home: Path) -> Path:
    """A folder with the task cut to its first three stages: explore, run it, decide."""
    shutil.copytree(bundled("tasks") / "spam", home / "short" / "spam")
    file = home / "short" / "spam" / "task.toml"
    head, *stages = file.read_text().split("[[stage]]")
    tail = stages[-1][stages[-1].index("[scorer]") :]
    file.write_text("[[stage]]".join([head, *stages[:3]]) + tail)
    return home / "short"


@pytest.fixture(scope="module")
def served(home: Path, short: Path) -> Iterator[TrialStore]:
    """Two runs of a model behind a server that is gone by the time of the replay."""
    with FakeOllama("m") as fake:
        fake.reply, fake.thinking = EXPLORE, "What would help?"
        # The first request loads the model; the last is ended by the limit on the agent's time.
        fake.faults.extend(["", "", "", "", "hang"])
        yield trial(
            home, "--models", "m", "--runs", "2", "--num-ctx", "16384", "--repair-turns", "0",
            "--max-agent-time", "12", "--ollama-url", fake.url, tasks=short,
        )  # fmt: skip


def replay_of(home: Path, compared: dict[str, str]) -> RunRecord:
    trial_id, _, run_id = compared["replay"].partition("/")
    return TrialStore(home / "runs" / trial_id).load_run(run_id)


def _why(stage: StageRecord) -> tuple[str, str, str]:
    failure = stage.failure
    return (
        (stage.name, failure.failure_class, failure.sentence) if failure else (stage.name, "", "")
    )


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    compared = json.loads(done.stdout)
    return {row["what"]: (row["original"], row["replay"]) for row in compared["rows"]}


def test_a_replay_has_the_same_snapshots_lock_predictions_and_score(
    home: Path, scripted: TrialStore
) -> None:
    done = orch(home, "replay", f"{scripted.trial_id}/{RUN}", "--json")
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert compared["same"] is True
    assert compared["notes"] == []
    run = scripted.load_run(RUN)
    assert run.score is not None
    assert run.score.environment is not None
    found = rows(done)
    assert found["predictions sha256"] == (run.score.predictions_sha256,) * 2
    assert found["environment locks"] == (run.score.environment.lock_sha256,) * 2
    assert found["score"] == (str(run.score.score),) * 2
    assert found["model calls"] == ("6", "6")
    assert sum(what.startswith("snapshot ") for what in found) == 6
    trial_id, _, replay_id = compared["replay"].partition("/")
    again = TrialStore(home / "runs" / trial_id)
    (model,) = again.load_trial().models
    assert (model.upstream, model.reference) == ("replay", f"replay/{compared['original']}")
    assert {call.upstream for call in again.calls(replay_id).read()} == {"replay"}
    assert again.load_run(replay_id).spec.seed == run.spec.seed


def test_runs_behind_a_server_replay_each_to_itself_without_it(
    home: Path, served: TrialStore, short: Path
) -> None:
    plan = served.load_trial().plan
    seeds = [spec.seed for spec in plan]
    assert len(set(seeds)) == 2
    timed = served.load_run(plan[1].run_id).stages[-1]
    assert timed.failure is not None
    assert timed.failure.failure_class == "budget-exhausted"
    for spec in plan:
        calls = list(served.calls(spec.run_id).read())
        assert {call.pinned["options.seed"].sent for call in calls} == {spec.seed}
        done = orch(home, "replay", str(served.run_folder(spec.run_id)), "--json", tasks=short)
        assert done.returncode == 0, done.stderr + done.stdout
        compared = json.loads(done.stdout)
        again_run = replay_of(home, compared)
        assert [_why(stage) for stage in again_run.stages] == [
            _why(stage) for stage in served.load_run(spec.run_id).stages
        ]
        # What the program printed is another time; the prompts have the recorded one.
        assert [note.partition(",")[0] for note in compared["notes"]] == ["run-explore"]
        trial_id, _, replay_id = compared["replay"].partition("/")
        again = list(TrialStore(home / "runs" / trial_id).calls(replay_id).read())
        assert [call.request for call in again] == [call.request for call in calls]
        assert [call.thinking for call in again] == [call.thinking for call in calls]
        assert again[0].thinking == "What would help?"


def tampered(home: Path, store: TrialStore, name: str) -> TrialStore:
    """The trial once more, under another name and without the calls of its run."""
    copy = TrialStore(home / "runs" / name)
    copy.save_trial(store.load_trial().model_copy(update={"trial_id": name}))
    copy.save_run(store.load_run(RUN))
    return copy


def test_a_reply_that_was_altered_ends_where_the_prompts_part(
    home: Path, scripted: TrialStore
) -> None:
    copy = tampered(home, scripted, "spam-altered")
    calls = list(scripted.calls(RUN).read())
    assert "import" in calls[0].reply
    calls[0].reply = calls[0].reply.replace("import", "# Altered.\nimport", 1)
    copy.calls(RUN).append(calls)
    done = orch(home, "replay", "spam-altered/pickle-crash", "--json")
    assert done.returncode == 1, done.stderr
    compared = json.loads(done.stdout)
    assert compared["same"] is False
    failure = compared["failure"]
    assert (failure["failure_class"], failure["stage"]) == ("replay-differs", "implement")
    assert failure["sentence"].startswith(
        "implement, call 1: messages[1].content differs from the recording in line "
    )
    assert any(item["excerpt"].endswith(" + # Altered.") for item in failure["evidence"])
    found = rows(done)
    assert found["snapshot explore"][0] != found["snapshot explore"][1]
    assert found["snapshot docs"][1] == "none"


def test_a_prompt_that_was_altered_ends_the_first_stage_in_words(
    home: Path, scripted: TrialStore
) -> None:
    copy = tampered(home, scripted, "spam-otherwise")
    calls = list(scripted.calls(RUN).read())
    calls[0].request["messages"][0]["content"] += "Be brief.\n"
    copy.calls(RUN).append(calls)
    path = copy.run_folder(RUN) / "calls.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v": 1, "run": "cut')
    done = orch(home, "replay", "spam-otherwise/pickle-crash")
    assert done.returncode == 1, done.stderr
    assert "its last line breaks off after 20 bytes" in done.stderr
    assert "replay-differs: explore, call 1: messages[0].content differs" in done.stdout
    assert " - Be brief." in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("allowed", [False, True])
def test_what_drifted_is_refused_by_name_unless_it_is_allowed(
    home: Path, scripted: TrialStore, allowed: bool
) -> None:
    name = f"spam-drifted-{allowed}"
    copy = tampered(home, scripted, name)
    record = copy.load_trial()
    record.images[0].id = "sha256:0"
    copy.save_trial(record)
    before = list_trials(home / "runs")
    done = orch(home, "replay", f"{name}/{RUN}", *(["--allow-drift"] if allowed else []))
    if not allowed:
        assert done.returncode == 2
        assert f"{name}/{RUN} was recorded with another image tools" in done.stderr
        assert list_trials(home / "runs") == before
        return
    # Without its calls it can't get far; what it was allowed is in the record.
    assert done.returncode == 1
    assert "explore: one more call than was recorded" in done.stdout
    assert "note: drift allowed: image tools" in done.stdout


def test_a_replay_among_models_of_other_settings_is_refused(
    home: Path, scripted: TrialStore
) -> None:
    reference = f"replay/{scripted.trial_id}/{RUN}"
    done = orch(home, "trial", "spam", "--models", reference)
    assert done.returncode == 2
    assert "scale is 0.02 in the recording and 1.0 here" in done.stderr
