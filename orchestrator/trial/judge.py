"""Verdicts on stages: pure functions over what is on disk and what was reported."""

from collections.abc import Collection, Sequence

from orchestrator.records.failures import Attribution, FailureClass
from orchestrator.records.schema import (
    AgentStage,
    Dropped,
    Evidence,
    ExecuteStage,
    Failure,
    FileChange,
    Repair,
    RepairOutcome,
    ScoreRecord,
    StageRecord,
)
from orchestrator.trial import conduct
from orchestrator.trial.prompts import step_failed


def judge_agent_stage(
    *,
    stage: str,
    expects: Sequence[str],
    present: Collection[str],
    changes: Sequence[FileChange],
    announced: Sequence[str],
    lost: Sequence[str],
    dropped: Sequence[Dropped],
    reported: Failure | None,
) -> Failure | None:
    """Decide from artifacts whether an agent stage did what it was asked.

    `announced` are the files that the agent says it wrote, `lost` those of them that are not on
    disk as it wrote them: the harness's fault, which outranks every verdict on the model. A
    failure that is reported of the harness's side (model server, agent) or by the gateway's record
    comes next, then what is on disk.
    """
    if lost:
        return Failure(
            failure_class=FailureClass.EDIT_DROPPED,
            stage=stage,
            sentence=f"the reply held {', '.join(lost)}, which the workspace does not",
            evidence=[Evidence(source="reply", excerpt=name) for name in lost],
        )
    if reported is not None and (
        reported.attribution is not Attribution.MODEL or reported.failure_class in conduct.CLASSES
    ):
        return reported
    missing = [name for name in expects if name not in present]
    if not changes and (missing or reported is not None or not announced):
        return reported or Failure(
            failure_class=FailureClass.NO_EDITS,
            stage=stage,
            sentence="the reply changed no file",
            reason="; ".join(sorted({item.reason for item in dropped})),
        )
    if missing:
        refused = [f"{item.path}: {item.reason}" for item in dropped]
        return Failure(
            failure_class=FailureClass.ARTIFACT_MISSING,
            stage=stage,
            sentence=f"the stage left no {', '.join(missing)}",
            evidence=[Evidence(source="reply", excerpt=line) for line in refused],
        )
    return reported


def out_of_budget(stage: StageRecord) -> bool:
    failure = stage.failure
    return failure is not None and failure.failure_class is FailureClass.BUDGET_EXHAUSTED


def repair_of(before: ExecuteStage, after: ExecuteStage) -> RepairOutcome:
    """What a repair turn did, by how far the execute stage got before and after it.

    `rescued`: failed, then passed. `improved`/`worsened`: fails at a later/an earlier step.
    `regressed`: passed, then failed. `unchanged`: no difference in how far it got.
    """
    if after.passed:
        return RepairOutcome.UNCHANGED if before.passed else RepairOutcome.RESCUED
    if before.passed:
        return RepairOutcome.REGRESSED
    was, now = failed_step(before), failed_step(after)
    if was == now:
        return RepairOutcome.UNCHANGED
    return RepairOutcome.IMPROVED if now > was else RepairOutcome.WORSENED


def failed_step(stage: ExecuteStage) -> int:
    """Index of the step that failed; -1 where it did not get to the first (no environment)."""
    for index, step in enumerate(stage.steps):
        if step_failed(step):
            return index
    return len(stage.steps) - 1 if stage.steps else -1


def repair_record(
    before: ExecuteStage, after: ExecuteStage, turn: int, trees: tuple[str, str]
) -> Repair:
    return Repair(
        stage=before.name,
        turn=turn,
        passed_before=before.passed,
        passed_after=after.passed,
        tree_before=trees[0],
        tree_after=trees[1],
        failed_step_before=None if before.passed else failed_step(before),
        failed_step_after=None if after.passed else failed_step(after),
        outcome=repair_of(before, after),
    )


def decide_run(stages: Sequence[StageRecord], score: ScoreRecord | None) -> Failure | None:
    """What decided the run: the score's failure, or the stage failure that explains it.

    A submission without an entry point or an artifact failed earlier: when the agent stage that
    should have left it changed nothing, that stage's failure is the cause. A budget that was used
    up decides the run also where what was there by then was scored.
    """
    if score is None:
        return None
    if score.failure is None:
        return next((one.failure for one in stages if out_of_budget(one)), None)
    if score.failure.failure_class not in (
        FailureClass.NO_ENTRY_POINT,
        FailureClass.ARTIFACT_MISSING,
    ):
        return score.failure
    causes = [
        stage.failure
        for stage in stages
        if isinstance(stage, AgentStage)
        and stage.failure is not None
        and stage.missing
        and any(name in score.failure.sentence for name in stage.missing)
    ]
    return causes[-1] if causes else score.failure
