"""The path of one run: lay the workspace, go through the stages, score what is left."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

from orchestrator.errors import RecordUnwritable
from orchestrator.records.failures import Attribution
from orchestrator.records.schema import (
    AgentStage,
    ExecuteStage,
    Failure,
    RunRecord,
    RunSpec,
    RunStatus,
    ScoreRecord,
    StageRecord,
)
from orchestrator.scoring.repeats import unprobed, with_spread
from orchestrator.scoring.score import score_tree
from orchestrator.task import AgentStageSpec, ExecuteStageSpec
from orchestrator.trial.bench import Bench
from orchestrator.trial.faults import fault, follows_an_interrupt
from orchestrator.trial.judge import decide_run, out_of_budget, repair_record
from orchestrator.trial.pricing import price
from orchestrator.trial.stages import RunDesk, agent_stage, execute_stage, open_desk


class RunEnded(Exception):
    """A failure of the harness's side: the run stops here and counts in no denominator."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


def perform(bench: Bench, spec: RunSpec) -> RunRecord:
    """Do one run from a fresh workspace to its score; the record is saved after every step.

    What the harness or the engine does wrong ends this run only, classified. KeyboardInterrupt
    marks the run as interrupted and goes on up, as does RecordUnwritable. What goes wrong while a
    finished run is cleared away changes nothing in its result.
    """
    record = RunRecord(spec=spec, status=RunStatus.RUNNING, started_at=datetime.now(UTC))
    began = time.monotonic()
    bench.store.save_run(record)
    try:
        with ExitStack() as stack:
            desk = open_desk(bench, spec, stack)
            _stages(desk, record)
            _tell_scoring(desk, "scoring: train, predict on the holdout")
            record.score = _score(desk)
            record.failure = decide_run(record.stages, record.score)
            record.status = RunStatus.FINISHED
            _price(desk, record, record.score)
    except RecordUnwritable:
        raise
    except RunEnded as ended:
        _end(record, ended.failure)
    except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 - a defect of ours costs one run only
        if follows_an_interrupt(exc):
            if record.status is RunStatus.RUNNING:
                record.status = RunStatus.INTERRUPTED
            raise KeyboardInterrupt from None
        _end(record, fault(exc))
    finally:
        record.duration_s = time.monotonic() - began
        record.finished_at = datetime.now(UTC)
        bench.store.save_run(record)
        bench.store.calls(spec.run_id).close_segment()
    _tell_end(bench, record)
    return record


def _end(record: RunRecord, failure: Failure) -> None:
    if record.status is RunStatus.RUNNING:
        record.failure = failure
        record.status = RunStatus.FINISHED


def _stages(desk: RunDesk, record: RunRecord) -> None:
    for stage in desk.bench.task.stage:
        if isinstance(stage, AgentStageSpec):
            _keep(desk, record, agent_stage(desk, stage, stage.prompt, turn=0))
        else:
            done = execute_stage(desk, stage, turn=0)
            _keep(desk, record, done)
            _repairs(desk, record, stage, done)


def _repairs(
    desk: RunDesk, record: RunRecord, stage: ExecuteStageSpec, before: ExecuteStage
) -> None:
    """Hand the real output back while the stage fails and turns are left."""
    if stage.repairs is None or stage.repair_prompt is None:
        return
    writer = desk.agent_stage_spec(stage.repairs)
    for turn in range(1, desk.bench.settings.repair_turns + 1):
        if before.passed:
            return
        tree_before = desk.tree
        repaired = agent_stage(desk, writer, stage.repair_prompt, turn=turn)
        _keep(desk, record, repaired)
        if out_of_budget(repaired) and not repaired.changes:
            return
        after = execute_stage(desk, stage, turn=turn)
        _keep(desk, record, after)
        repair = repair_record(before, after, turn, (tree_before, desk.tree))
        record.repairs.append(repair)
        desk.bench.store.save_run(record)
        before = after


def _score(desk: RunDesk) -> ScoreRecord:
    bench, holdout = desk.scoring, desk.bench.data.holdout
    record = score_tree(bench, desk.history, desk.tree, holdout)
    again = partial(score_tree, unprobed(bench), desk.history, desk.tree, holdout)
    return with_spread(record, desk.bench.settings.repeat, again)


def _price(desk: RunDesk, record: RunRecord, known: ScoreRecord) -> None:
    """The run is finished whatever happens here."""
    if not record.repairs or (record.failure is not None and not record.failure.valid):
        return
    save = partial(desk.bench.store.save_run, record)
    save()
    _tell_scoring(desk, "scoring: before and after each repair turn")
    bench, holdout = unprobed(desk.scoring), desk.bench.data.holdout
    price(record.repairs, known, lambda tree: score_tree(bench, desk.history, tree, holdout), save)


def _keep(desk: RunDesk, record: RunRecord, stage: StageRecord) -> None:
    """Save the stage; end the run where the harness is to blame."""
    record.stages.append(stage)
    desk.bench.store.save_run(record)
    _tell_stage(desk, stage)
    if stage.failure is not None and stage.failure.attribution is Attribution.HARNESS:
        raise RunEnded(stage.failure)


def _label(desk: RunDesk) -> str:
    runs = desk.bench.settings.runs
    return f"{desk.spec.model} {desk.spec.index + 1}/{runs}"


def _tell_stage(desk: RunDesk, stage: StageRecord) -> None:
    name = f"{stage.name} (repair {stage.turn})" if stage.turn else stage.name
    if isinstance(stage, AgentStage):
        what = ", ".join(change.path for change in stage.changes) or "no file changed"
        what += f"; {len(stage.dropped)} did not land" if stage.dropped else ""
    else:
        what = "ok" if stage.passed else ""
    if stage.failure is not None:
        what = f"{stage.failure.failure_class}: {stage.failure.sentence}"
    desk.bench.log.event(
        "stage",
        people=f"{_label(desk):32} {name:22} {stage.duration_s:7.1f} s  {what}",
        run=desk.spec.run_id,
        stage=stage.name,
        turn=stage.turn,
        duration_s=stage.duration_s,
        failure=stage.failure.model_dump(mode="json") if stage.failure else None,
    )


def _tell_scoring(desk: RunDesk, what: str) -> None:
    desk.bench.log.event(
        "scoring",
        people=f"{_label(desk):32} {what}",
        run=desk.spec.run_id,
    )


def _tell_end(bench: Bench, record: RunRecord) -> None:
    outcome = _outcome(record.score, record.failure)
    label = f"{record.spec.model} {record.spec.index + 1}/{bench.settings.runs}"
    bench.log.event(
        "run",
        people=f"{label:32} {'done':22} {record.duration_s:7.1f} s  {outcome}",
        run=record.spec.run_id,
        duration_s=record.duration_s,
        score=record.score.score if record.score else None,
        failure=record.failure.model_dump(mode="json") if record.failure else None,
    )


def _outcome(score: ScoreRecord | None, failure: Failure | None) -> str:
    if failure is not None:
        return f"{failure.failure_class} ({failure.attribution}): {failure.sentence}"
    return f"score {score.score:.3f}" if score else "not scored"
