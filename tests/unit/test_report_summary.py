"""What the summary counts, and over which runs it averages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_samples import (
    agent_stage,
    failure,
    finished,
    metrics,
    mixed_trial,
    repair,
    score,
    trial,
)

from orchestrator.cli import main
from orchestrator.records.failures import TABLE, Attribution, FailureClass
from orchestrator.records.schema import (
    RepairOutcome,
    RunRecord,
    RunSpec,
    RunStatus,
    ScoreRecord,
    TrialRecord,
    Usage,
)
from orchestrator.records.store import TrialStore
from orchestrator.report.summary import ModelView, Outcome, summarise, summarise_store

CASE = Path(__file__).parents[1] / "cases" / "07" / "runs.jsonl"
# The recorded runs name their endings in their own words.
CASE_CLASSES = {
    "pickle_main_class": "unpicklable-artifact",
    "missing_module": "undeclared-dependency",
    "harness_error: docker daemon unreachable": "engine-unavailable",
    "timeout": "timeout",
    "no_submission": "no-entry-point",
    "wrong_schema": "output-schema",
}


def recorded_case() -> tuple[TrialRecord, list[RunRecord]]:
    plan, runs = [], []
    for line in CASE.read_text().splitlines():
        row = json.loads(line)
        spec = RunSpec(
            run_id=f"{row['model']}-{row['run']}", model=row["model"], index=len(plan) % 5, seed=1
        )
        plan.append(spec)
        if row["outcome"] == "scored":
            runs.append(finished(spec, score=score(row["f1"])))
        elif row["outcome"] != "not_started":
            runs.append(finished(spec, failure=failure(CASE_CLASSES[row["outcome"]])))
    return trial(["A", "B"], 5, plan), runs


def only_model(records: list[RunRecord]) -> ModelView:
    plan = [record.spec for record in records]
    (model,) = summarise(trial(["m"], len(plan), plan), records).models
    return model


def specs(count: int) -> list[RunSpec]:
    return [RunSpec(run_id=f"m-{n:02d}", model="m", index=n, seed=n) for n in range(count)]


def test_ten_runs_of_every_ending_give_the_known_figures() -> None:
    summary = summarise(*recorded_case())
    a, b = summary.models
    assert (a.planned, a.valid, a.scored, a.failed) == (5, 4, 2, 2)
    assert a.harness == ["A-5"]
    assert a.not_started == []
    assert a.mean_scored is not None
    assert (a.mean_scored.value, a.mean_scored.n) == (pytest.approx(0.767, abs=1e-12), 2)
    assert a.mean_with_failures is not None
    assert a.mean_with_failures.value == pytest.approx(0.3835, abs=1e-12)
    assert a.mean_with_failures.n == 4
    assert [(c.failure_class.value, c.runs) for c in a.failures if c.valid] == [
        ("undeclared-dependency", ["A-4"]),
        ("unpicklable-artifact", ["A-3"]),
    ]
    assert (b.planned, b.valid, b.scored, b.failed) == (5, 4, 1, 3)
    assert b.harness == []
    assert b.not_started == ["B-10"]
    assert b.mean_scored is not None
    assert (b.mean_scored.value, b.mean_scored.n) == (0.502, 1)
    assert b.mean_with_failures is not None
    assert b.mean_with_failures.value == pytest.approx(0.1255, abs=1e-12)
    assert b.mean_with_failures.n == 4
    assert {c.failure_class for c in b.failures} == {
        FailureClass.TIMEOUT,
        FailureClass.NO_ENTRY_POINT,
        FailureClass.OUTPUT_SCHEMA,
    }
    assert (summary.planned, summary.finished, summary.complete) == (10, 9, False)
    assert summary.harness_failures == ["A-5"]


@pytest.mark.parametrize("failure_class", list(FailureClass))
def test_the_table_alone_decides_what_is_in_the_denominator(failure_class: FailureClass) -> None:
    good, bad = specs(2)
    model = only_model([
        finished(good, score=score(0.8)),
        finished(bad, failure=failure(failure_class)),
    ])  # fmt: skip
    row = TABLE[failure_class]
    assert model.scored == 1
    assert model.failed == (1 if row.valid else 0)
    assert model.mean_with_failures is not None
    assert model.mean_with_failures.n == (2 if row.valid else 1)
    assert model.mean_with_failures.value == (0.4 if row.valid else 0.8)
    assert model.harness == (
        [bad.run_id] if not row.valid and row.attribution is Attribution.HARNESS else []
    )
    assert model.task_faults == (
        [bad.run_id] if not row.valid and row.attribution is Attribution.TASK else []
    )
    assert [(c.failure_class, c.attribution, c.runs) for c in model.failures] == [
        (failure_class, row.attribution, [bad.run_id])
    ]


@pytest.mark.parametrize(
    ("status", "where"),
    [
        (RunStatus.PLANNED, "not_started"),
        (RunStatus.RUNNING, "running"),
        (RunStatus.INTERRUPTED, "interrupted"),
    ],
)
def test_unfinished_runs_are_in_no_denominator(status: RunStatus, where: str) -> None:
    (spec,) = specs(1)
    model = only_model([RunRecord(spec=spec, status=status, score=score(0.9))])
    assert getattr(model, where) == [spec.run_id]
    assert (model.planned, model.valid, model.scored, model.failed) == (1, 0, 0, 0)
    assert model.mean_with_failures is None
    assert model.mean_scored is None
    assert model.best is None
    assert model.failures == []


def test_a_run_without_a_record_has_not_started() -> None:
    record = trial(["m"], 2)
    (model,) = summarise(record, []).models
    assert model.not_started == ["m-01", "m-02"]


def test_a_record_outside_the_plan_is_left_out() -> None:
    record = trial(["m"], 1)
    stranger = RunSpec(run_id="x-01", model="x", index=0, seed=1)
    (model,) = summarise(record, [finished(stranger, score=score(1.0))]).models
    assert (model.model, model.scored) == ("m", 0)


def test_the_scores_failure_decides_where_the_run_has_none_of_its_own() -> None:
    (spec,) = specs(1)
    model = only_model([finished(spec, score=score(0.0, failed="timeout"))])
    assert (model.scored, model.failed) == (0, 1)
    assert model.runs[0].failure is not None
    assert model.runs[0].failure.failure_class is FailureClass.TIMEOUT


def test_a_harness_failure_voids_a_run_whatever_score_it_reached() -> None:
    (spec,) = specs(1)
    model = only_model([finished(spec, score=score(0.8), failure=failure("scorer-error"))])
    assert model.harness == [spec.run_id]
    assert (model.valid, model.mean_scored) == (0, None)
    assert model.runs[0].score is None


def test_a_score_that_was_reached_stands_beside_a_failure_of_the_model() -> None:
    (spec,) = specs(1)
    model = only_model([finished(spec, score=score(0.8), failure=failure("budget-exhausted"))])
    assert (model.scored, model.failed, model.best) == (1, 0, 0.8)
    assert model.failures == []
    assert model.runs[0].failure is not None


def test_a_finished_run_that_holds_nothing_is_our_defect() -> None:
    (spec,) = specs(1)
    model = only_model([finished(spec)])
    assert model.harness == [spec.run_id]
    assert model.runs[0].failure is not None
    assert "neither a score nor a failure" in model.runs[0].failure.sentence


def test_repairs_and_leaks_are_counted_over_valid_runs_only() -> None:
    scored, failed, void = specs(3)
    model = only_model([
        finished(
            scored,
            score=score(0.8, leak="used"),
            repairs=[repair(RepairOutcome.RESCUED), repair(RepairOutcome.UNCHANGED)],
        ),
        finished(failed, failure=failure("timeout"), repairs=[repair(RepairOutcome.REGRESSED)]),
        finished(
            void,
            failure=failure("engine-unavailable"),
            score=score(0.8, leak="used"),
            repairs=[repair(RepairOutcome.RESCUED)],
        ),
    ])  # fmt: skip
    assert model.repairs == {
        RepairOutcome.RESCUED: 1,
        RepairOutcome.REGRESSED: 1,
        RepairOutcome.IMPROVED: 0,
        RepairOutcome.WORSENED: 0,
        RepairOutcome.UNCHANGED: 1,
    }
    assert model.leak == {"used": 1}


def test_own_estimate_is_set_against_the_truth() -> None:
    (spec,) = specs(1)
    (run,) = only_model([finished(spec, score=score(0.5, expected=0.95))]).runs
    assert run.expected_f1 == 0.95
    assert run.estimate_error == pytest.approx(0.45)


def test_usage_is_all_that_was_used_whatever_became_of_the_run() -> None:
    usage = Usage(calls=2, prompt_tokens=100, reply_tokens=50, model_s=3.5, load_s=1.0)
    first, second = specs(2)
    stages = [agent_stage("explore", usage=usage)]
    model = only_model([
        finished(first, failure=failure("engine-unavailable"), stages=stages),
        RunRecord(spec=second, status=RunStatus.RUNNING, stages=stages),
    ])  # fmt: skip
    assert model.usage == usage + usage
    assert model.duration_s == 100.0 + 30.0


def test_the_measure_is_f1_only_where_every_score_is_one() -> None:
    (spec,) = specs(1)
    other = ScoreRecord(tree="t", score=0.7, metrics=metrics(0.6))
    plan = trial(["m"], 1, [spec])
    assert summarise(plan, [finished(spec, score=score(0.6))]).measure == "F1"
    assert summarise(plan, [finished(spec, score=other)]).measure == "score"


def test_it_reads_a_trial_from_its_folder_while_it_runs(tmp_path: Path) -> None:
    record, runs = mixed_trial()
    store = TrialStore(tmp_path / record.trial_id)
    store.save_trial(record)
    for run in runs:
        store.save_run(run)
    summary = summarise_store(store, alive=True)
    assert summary == summarise(record, runs)
    assert (summary.finished, summary.planned) == (5, 9)
    outcomes = {run.run_id: run.outcome for model in summary.models for run in model.runs}
    assert outcomes["qwen3-coder-30b-a3b-02"] is Outcome.RUNNING
    assert outcomes["qwen3-coder-30b-a3b-03"] is Outcome.NOT_STARTED
    dead = summarise_store(store, alive=False)
    outcomes = {run.run_id: run.outcome for model in dead.models for run in model.runs}
    assert outcomes["qwen3-coder-30b-a3b-02"] is Outcome.INTERRUPTED
    assert dead.finished == 5


def test_orch_report_as_json_holds_all_of_it_in_plain_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (spec,) = specs(1)
    nasty = "\x1b[31mred \x9b2J \u202eevil"
    store = TrialStore(tmp_path / "runs" / "t")
    store.save_trial(trial(["m"], 1, [spec]))
    store.save_run(finished(spec, failure=failure("runtime-error", nasty)))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    main.main(["report", "latest", "--json"])
    text = capsys.readouterr().out
    assert text.isascii()
    assert all(char == "\n" or char.isprintable() for char in text)
    (model,) = json.loads(text)["models"]
    assert set(model) == set(ModelView.model_fields)
    assert model["runs"][0]["failure"]["sentence"] == nasty


def test_orch_report_prints_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, runs = mixed_trial()
    store = TrialStore(tmp_path / "runs" / record.trial_id)
    store.save_trial(record)
    for run in runs:
        store.save_run(run)
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    main.main(["report", record.trial_id[:10]])
    assert "5 of 9 runs so far" in capsys.readouterr().out
