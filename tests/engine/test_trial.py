"""Whole trials through the command line, on a small set of the real task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import (
    AgentStage,
    ExecuteStage,
    RepairOutcome,
    RunRecord,
    RunStatus,
    ScoreRecord,
)
from orchestrator.records.store import TrialStore, list_trials, open_trial
from orchestrator.sandbox.engine import Engine

SCALE = "0.02"
MODELS = "scripted/pickle-crash,scripted/undeclared-import,scripted/silent"


def orch(home: Path, *args: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=environment(home),
    )


def environment(home: Path) -> dict[str, str]:
    own = {"ORCH_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "100"}
    return {name: value for name, value in os.environ.items() if "API_KEY" not in name} | own


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def first(engine: Engine, home: Path) -> Iterator[tuple[dict[str, Any], TrialStore]]:
    done = orch(
        home, "trial", "spam", "--models", MODELS, "--runs", "1", "--scale", SCALE, "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    yield summary, TrialStore(home / "runs" / summary["trial_id"])


def run_of(store: TrialStore, model: str) -> RunRecord:
    (spec,) = (spec for spec in store.load_trial().plan if spec.model == f"scripted/{model}")
    return store.load_run(spec.run_id)


def test_every_planned_run_is_finished_and_counted(
    first: tuple[dict[str, Any], TrialStore],
) -> None:
    summary, _ = first
    assert [
        (model["model"], model["planned"], model["valid"], model["scored"], model["failed"])
        for model in summary["models"]
    ] == [
        ("scripted/pickle-crash", 1, 1, 1, 0),
        ("scripted/undeclared-import", 1, 1, 0, 1),
        ("scripted/silent", 1, 1, 0, 1),
    ]


def test_a_crash_is_rescued_by_a_repair_turn_that_saw_the_real_traceback(
    first: tuple[dict[str, Any], TrialStore],
) -> None:
    run = run_of(first[1], "pickle-crash")
    (repair,) = run.repairs
    assert repair.outcome is RepairOutcome.RESCUED
    assert run.score is not None
    assert run.score.failure is None
    assert run.score.score > 0.3
    assert repair.before is not None
    assert (repair.before.score, repair.before.failure) == (0.0, "unpicklable-artifact")
    # Only documents were written after it.
    assert repair.after is not None
    assert repair.after.predictions_sha256 == run.score.predictions_sha256
    assert repair.after.score == run.score.score
    repair_prompt = next(
        (first[1].run_folder(run.spec.run_id) / "prompts").glob("*implement-repair1.md")
    )
    assert "Can't get attribute" in repair_prompt.read_text()


def test_an_undeclared_import_is_the_model_failure_with_the_module_named(
    first: tuple[dict[str, Any], TrialStore],
) -> None:
    run = run_of(first[1], "undeclared-import")
    assert run.failure is not None
    assert run.failure.failure_class == "undeclared-dependency"
    assert run.failure.attribution == "model"
    assert "unidecode" in run.failure.sentence


def test_a_model_that_only_talks_fails_by_its_own_fault(
    first: tuple[dict[str, Any], TrialStore],
) -> None:
    run = run_of(first[1], "silent")
    assert run.failure is not None
    assert (run.failure.failure_class, run.failure.reason) == ("no-edits", "prose-only")
    stages = [stage for stage in run.stages if isinstance(stage, AgentStage)]
    assert all(stage.changes == [] for stage in stages)


def test_the_record_holds_prompts_calls_outputs_and_snapshots(
    first: tuple[dict[str, Any], TrialStore],
) -> None:
    store = first[1]
    run = run_of(store, "pickle-crash")
    folder = store.run_folder(run.spec.run_id)
    prompts = sorted(path.name for path in (folder / "prompts").iterdir())
    assert prompts == [
        "01-explore.md",
        "03-decide.md",
        "04-implement.md",
        "06-implement-repair1.md",
        "08-evaluate.md",
        "09-docs.md",
    ]
    assert [path.name for path in store.calls(run.spec.run_id).files()] == ["calls-0001.jsonl.gz"]
    calls = list(store.calls(run.spec.run_id).read())
    assert [call.stage for call in calls] == [
        "explore", "decide", "implement", "implement", "evaluate", "docs",
    ]  # fmt: skip
    assert all(call.pinned["options.seed"].sent == run.spec.seed for call in calls)
    trees = [stage.tree for stage in run.stages if isinstance(stage, AgentStage)]
    assert len(set(trees)) == len(trees)
    assert run.score is not None
    assert run.score.tree == trees[-1]
    outputs = {path.name for path in (folder / "steps").iterdir()}
    assert "05-check-predict.stderr.txt" in outputs
    trial = store.load_trial()
    assert {image.name for image in trial.images} == {
        "tools", "builder", "scorer", "agent", "gateway",
    }  # fmt: skip
    assert all(image.id.startswith("sha256:") for image in trial.images)


def test_artifacts_of_execute_stages_never_reach_the_submission(
    first: tuple[dict[str, Any], TrialStore],
) -> None:
    store = first[1]
    run = run_of(store, "pickle-crash")
    from orchestrator.sandbox.history import History

    assert run.score is not None
    files = History(store.run_folder(run.spec.run_id) / "history.git").files(run.score.tree)
    assert "train.py" in files
    assert {path.rpartition(".")[2] for path in files} <= {"py", "md", "txt", "csv"}


def test_the_report_is_the_same_from_the_records_and_in_text(
    first: tuple[dict[str, Any], TrialStore], home: Path
) -> None:
    again = orch(home, "report", "latest", "--json")
    assert json.loads(again.stdout)["models"] == first[0]["models"]
    text = orch(home, "report", first[0]["trial_id"]).stdout
    assert "rescued" in text
    assert "undeclared-dependency (model)" in text


def fingerprint(run: RunRecord) -> dict[str, object]:
    """All of a run that must come out the same twice: no durations, no memory, no reuse."""
    assert run.score is not None
    return {
        "trees": [s.tree for s in run.stages if isinstance(s, AgentStage)],
        "outputs": [
            (step.command, step.exit_code, step.stdout, step.stderr)
            for stage in run.stages
            if isinstance(stage, ExecuteStage)
            for step in stage.steps
        ],
        "locks": [
            stage.environment.lock_sha256
            for stage in run.stages
            if isinstance(stage, ExecuteStage) and stage.environment
        ],
        "predictions": run.score.predictions_sha256,
        "metrics": run.score.metrics,
        "leak": run.score.leak,
    }


def test_the_same_trial_twice_gives_the_same_predictions_hashes_and_scores(
    first: tuple[dict[str, Any], TrialStore], home: Path
) -> None:
    again = orch(
        home, "trial", "spam", "--models", "scripted/pickle-crash", "--runs", "1",
        "--scale", SCALE, "--json",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    second = TrialStore(home / "runs" / json.loads(again.stdout)["trial_id"])
    assert fingerprint(run_of(second, "pickle-crash")) == fingerprint(
        run_of(first[1], "pickle-crash")
    )


SURE = """
import argparse, csv
ap = argparse.ArgumentParser()
ap.add_argument("--input"); ap.add_argument("--output"); a = ap.parse_args()
with open(a.output, "w", newline="") as out:
    writer = csv.writer(out); writer.writerow(["message_id", "label"])
    for row in csv.DictReader(open(a.input, newline="")):
        if "http" in row["body"]: writer.writerow([row["message_id"], 1])
"""


def test_06_a_folder_that_answers_for_the_rows_it_is_sure_of_scores_0(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "predict.py").write_text(SURE)
    done = orch(home, "score", "spam", str(tmp_path), "--scale", SCALE, "--json")
    assert done.returncode == 0, done.stderr
    record = ScoreRecord.model_validate_json(done.stdout)
    assert record.failure is not None
    assert record.failure.failure_class is FailureClass.OUTPUT_SCHEMA
    assert " of 1000 ids missing (" in record.failure.sentence
    assert (record.score, record.metrics, len(record.steps)) == (0.0, None, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_a_trial_keeps_what_is_finished_and_leaves_only_caches(
    engine: Engine, tmp_path: Path, number: signal.Signals
) -> None:
    command = [
        sys.executable, "-m", "orchestrator.cli", "trial", "spam",
        "--models", "scripted/careful", "--runs", "2", "--scale", SCALE,
    ]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(tmp_path), start_new_session=True,
    ) as trial:  # fmt: skip
        assert trial.stderr is not None
        told: list[str] = []
        for line in trial.stderr:
            told.append(line)
            if " implement " in line:
                trial.send_signal(number)
                break
        told += list(trial.stderr)
        assert trial.wait(timeout=120) == 130, "".join(told)
    assert "Traceback" not in "".join(told)
    (trial_id,) = list_trials(tmp_path / "runs")
    assert f"orch report {trial_id}" in told[-1]
    assert engine.owned(trial_id) == []
    store = open_trial(tmp_path / "runs", trial_id)
    statuses = [run.status for run in store.runs(store.load_trial().plan)]
    assert statuses == [RunStatus.INTERRUPTED, RunStatus.PLANNED]
    stages = store.load_run(store.load_trial().plan[0].run_id).stages
    assert [stage.name for stage in stages][:4] == ["explore", "run-explore", "decide", "implement"]


def test_a_killed_trial_leaves_what_clean_finds_and_removes(engine: Engine, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "orchestrator.cli", "trial", "spam",
        "--models", "scripted/silent", "--runs", "1", "--scale", SCALE,
    ]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as trial:
        assert trial.stderr is not None
        for line in trial.stderr:
            if " explore " in line:
                trial.kill()
                break
    (trial_id,) = list_trials(tmp_path / "runs")
    assert engine.owned(trial_id) != []
    listed = orch(tmp_path, "clean", "--dry-run", "--keep-caches", "--json")
    items = [item for item in json.loads(listed.stdout)["items"] if item["trial"] == trial_id]
    assert {item["fate"] for item in items} == {"left-over"}
    assert engine.owned(trial_id) != []
    cleaned = orch(tmp_path, "clean", "--keep-caches")
    assert cleaned.returncode == 0, cleaned.stderr
    assert engine.owned(trial_id) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--models", "scripted/carefull"], "did you mean 'careful'?"),
        (["--models", "what is this"], "is no model reference"),
        (["--models", "openai/gpt-5"], "OPENAI_API_KEY is not set"),
        (["--models", "scripted/noop,scripted/noop"], "twice"),
        (["--models", "tiny:1b", "--ollama-url", "http://127.0.0.1:9"], "127.0.0.1:9"),
    ],
)
def test_what_can_not_work_is_refused_before_any_run(
    home: Path, args: list[str], says: str
) -> None:
    before = list_trials(home / "runs")
    done = orch(home, "trial", "spam", "--scale", SCALE, *args)
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert list_trials(home / "runs") == before
