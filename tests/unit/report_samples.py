"""Records of trials for the tests of the report."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import (
    AgentStage,
    DataRecord,
    ExecuteStage,
    Failure,
    LeakProbe,
    Metrics,
    ModelRecord,
    Repair,
    RepairOutcome,
    RunRecord,
    RunSpec,
    RunStatus,
    ScoreRecord,
    TrialRecord,
    TrialSettings,
    Usage,
)
from orchestrator.trial.plan import make_plan

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def trial(models: list[str], runs: int, plan: list[RunSpec] | None = None) -> TrialRecord:
    return TrialRecord(
        trial_id="spam-20260301-120000-ab12",
        orch_version="0.1.0",
        created_at=START,
        task="spam",
        task_sha256="0" * 64,
        settings=TrialSettings(runs=runs, seed=1, repair_turns=1, num_ctx=32768),
        data=DataRecord(seed=1, scale=1.0, generator_sha256="0" * 64, files={}),
        images=[],
        models=[ModelRecord(reference=m, upstream="scripted", name=m) for m in models],
        engine={},
        plan=make_plan(models, runs, 1) if plan is None else plan,
    )


def failure(failure_class: str, sentence: str = "it did not work", stage: str = "") -> Failure:
    return Failure(failure_class=FailureClass(failure_class), sentence=sentence, stage=stage)


def score(
    f1: float, *, expected: float | None = None, leak: str | None = None, failed: str = ""
) -> ScoreRecord:
    probe = LeakProbe(column="moderator_flagged", verdict=leak) if leak else None
    return ScoreRecord(
        tree="t",
        score=f1,
        metrics=None if failed else metrics(f1),
        failure=failure(failed) if failed else None,
        leak=probe,
        expected_f1=expected,
    )


def metrics(f1: float) -> Metrics:
    return Metrics(
        f1=f1,
        precision=0.8,
        recall=0.8,
        flagged_rate=0.2,
        true_rate=0.2,
        accuracy=0.9,
        true_positives=8,
        false_positives=2,
        false_negatives=2,
        true_negatives=38,
        rows=50,
    )


def repair(outcome: RepairOutcome) -> Repair:
    return Repair(
        stage="implement",
        turn=1,
        passed_before=outcome is RepairOutcome.REGRESSED,
        passed_after=outcome is RepairOutcome.RESCUED,
        tree_before="a",
        tree_after="b",
        failed_step_before=0,
        failed_step_after=None,
        outcome=outcome,
    )


def agent_stage(name: str, turn: int = 0, *, usage: Usage | None = None) -> AgentStage:
    return AgentStage(
        name=name,
        turn=turn,
        started_at=START,
        duration_s=30.0,
        tree="t",
        usage=usage or Usage(calls=1, prompt_tokens=1500, reply_tokens=700, model_s=25.0),
    )


def execute_stage(name: str, failed: str = "", turn: int = 0) -> ExecuteStage:
    return ExecuteStage(
        name=name,
        turn=turn,
        started_at=START,
        duration_s=12.0,
        failure=failure(failed, stage=name) if failed else None,
    )


def finished(spec: RunSpec, **fields: object) -> RunRecord:
    record = {"status": RunStatus.FINISHED, "duration_s": 100.0, "started_at": START} | fields
    return RunRecord(spec=spec, **record)  # type: ignore[arg-type]


def mixed_trial() -> tuple[TrialRecord, list[RunRecord]]:
    """Every outcome once or more, still running, with long and short names."""
    models = ["scripted/careful", "scripted/undeclared-import", "qwen3-coder:30b-a3b"]
    record = trial(models, 3)
    specs = {spec.run_id: spec for spec in record.plan}
    careful = [specs[f"scripted-careful-0{n}"] for n in (1, 2, 3)]
    undeclared = [specs[f"scripted-undeclared-import-0{n}"] for n in (1, 2, 3)]
    qwen = [specs[f"qwen3-coder-30b-a3b-0{n}"] for n in (1, 2, 3)]
    module = "train.py line 3 imports lightgbm, which requirements.txt does not declare"
    stages = [
        agent_stage("explore"),
        execute_stage("run-explore"),
        agent_stage("implement"),
        execute_stage("check", "runtime-error"),
        agent_stage("implement", 1),
        execute_stage("check", turn=1),
    ]
    runs = [
        finished(
            careful[0],
            score=score(0.801, expected=0.81, leak="declared-not-used"),
            stages=stages,
            repairs=[repair(RepairOutcome.RESCUED)],
        ),
        finished(careful[1], score=score(0.799, expected=0.95, leak="used"), stages=stages),
        *(
            finished(
                spec,
                failure=failure("undeclared-dependency", module, "check"),
                score=score(0.0, failed="undeclared-dependency"),
                stages=stages,
                repairs=[repair(RepairOutcome.UNCHANGED)],
            )
            for spec in undeclared[:2]
        ),
        finished(
            qwen[0],
            failure=failure("engine-unavailable", "the engine stopped answering", "implement"),
            stages=stages[:3],
        ),
        RunRecord(spec=qwen[1], status=RunStatus.RUNNING, stages=stages[:2], started_at=START),
        RunRecord(spec=careful[2], status=RunStatus.INTERRUPTED, stages=stages[:1]),
    ]
    return record, runs
