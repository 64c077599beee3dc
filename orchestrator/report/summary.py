"""What the records of a trial say, as numbers: `summarise`. Pure, and works while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.records.failures import TABLE, Attribution, FailureClass
from orchestrator.records.schema import (
    AgentStage,
    Claim,
    Commit,
    Failure,
    LeakProbe,
    Metrics,
    MissingImport,
    ModelRecord,
    RepairOutcome,
    RunRecord,
    RunSpec,
    RunStatus,
    Spread,
    StageRecord,
    TrialRecord,
    TrialSettings,
    Usage,
)
from orchestrator.records.store import TrialStore
from orchestrator.report.repairs import RepairView, mean_gain, repair_views
from orchestrator.report.said_done import Crossing, SaidDone, counted, crossings

GIB = 1 << 30


class View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcome(StrEnum):
    """What became of a planned run. Only the first two are valid, i.e. in a denominator."""

    SCORED = "scored"
    FAILED = "failed"
    HARNESS = "harness"
    """Ended by a fault of ours; run again on resume."""
    TASK = "task"
    """Ended by a fault of the task that voids the run."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"

    @property
    def valid(self) -> bool:
        return self in (Outcome.SCORED, Outcome.FAILED)

    @property
    def at_end(self) -> bool:
        return self not in (Outcome.RUNNING, Outcome.INTERRUPTED, Outcome.NOT_STARTED)


class FailureView(View):
    failure_class: FailureClass
    attribution: Attribution
    stage: str
    reason: str
    sentence: str
    mend: str
    evidence: list[dict[str, str | int | None]]
    """Each with `source`, `line` (1-based) and `excerpt`."""


class StageView(View):
    name: str
    kind: Literal["agent", "execute"]
    turn: int
    """0 is the stage's own prompt, 1.. are repair turns."""
    duration_s: float
    changed_files: int
    failure: FailureView | None


class RunView(View):
    """One planned run. `f1` and `score` are None unless the run was scored."""

    run_id: str
    model: str
    index: int
    seed: int
    outcome: Outcome
    score: float | None
    f1: float | None
    metrics: Metrics | None
    expected_f1: float | None
    """The submission's own estimate."""
    estimate_error: float | None
    """Own estimate minus truth; positive is too hopeful."""
    leak: LeakProbe | None
    """The gravest of `leaks`."""
    leaks: list[LeakProbe]
    claims: list[Claim]
    """What its text says of those columns, of the metric and of uneven classes."""
    said_done: list[Crossing]
    missing_imports: list[MissingImport]
    """In the code and provided by nothing that is declared; see the failure they cause."""
    spread: Spread | None
    """Over repeated scorings, where the trial was asked for them."""
    commits: list[Commit] | None
    """In the workspace, newest first, where the agent was to make some."""
    repairs: list[RepairOutcome]
    repair_turns: list[RepairView]
    stages: list[StageView]
    usage: Usage
    duration_s: float
    failure: FailureView | None


class FailureCount(View):
    failure_class: FailureClass
    attribution: Attribution
    valid: bool
    """Whether runs that ended so are in the denominator."""
    runs: list[str]


class Mean(View):
    """A mean and the number of runs it is over."""

    value: float
    n: int


class ModelView(View):
    """One model's runs. `valid` = `scored` + `failed`; the other lists hold run ids."""

    model: str
    digest: str | None
    loaded: str
    """Server, memory, CPU/GPU split, load time and context, as far as they are known."""
    notes: list[str]
    planned: int
    valid: int
    scored: int
    failed: int
    harness: list[str]
    task_faults: list[str]
    running: list[str]
    interrupted: list[str]
    not_started: list[str]
    failures: list[FailureCount]
    mean_with_failures: Mean | None
    """Over valid runs, a failed one counting 0."""
    mean_scored: Mean | None
    best: float | None
    repairs: dict[RepairOutcome, int]
    """Outcomes of the repair turns of valid runs; every outcome has its count."""
    repair_gain: float | None
    """What one of them changed the score by, in the mean of those that have both scores."""
    leak: dict[str, int]
    """Verdict of the leak probe → number of valid runs."""
    said_done: dict[SaidDone, int]
    """What is said beside what is done → number of columns probed in valid runs."""
    usage: Usage
    """All runs that began, also those in no denominator: what the trial used."""
    duration_s: float
    """Wall time of those runs, added up."""
    runs: list[RunView]


class TrialSummary(View):
    trial_id: str
    task: str
    orch_version: str
    created_at: datetime
    settings: TrialSettings
    measure: str
    """What `score` is: "F1" where every scored run's score is its F1, else "score"."""
    planned: int
    finished: int
    """Runs at their end, whatever it was; interrupted ones are not."""
    complete: bool
    harness_failures: list[str]
    """Ids of the runs that a fault of ours ended."""
    models: list[ModelView]

    @property
    def exit_code(self) -> int:
        """0; 1 where a run ended by a failure that is no result."""
        counted = [count for model in self.models for count in model.failures]
        return max((TABLE[count.failure_class].exit_code for count in counted), default=0)


def summarise_store(store: TrialStore, *, alive: bool) -> TrialSummary:
    """Summary of a trial from its folder. Raises RecordNotFound, RecordUnreadable.

    `alive` says whether some process works on it: a run that a killed one left as running was
    interrupted.
    """
    trial = store.load_trial()
    return summarise(
        trial, (record if alive else at_rest(record) for record in store.runs(trial.plan))
    )


def at_rest(record: RunRecord) -> RunRecord:
    if record.status is not RunStatus.RUNNING:
        return record
    return record.model_copy(update={"status": RunStatus.INTERRUPTED})


def summarise(trial: TrialRecord, runs: Iterable[RunRecord]) -> TrialSummary:
    """Count and average; a planned run without a record is `not started`.

    Records of runs that the plan does not hold are left out.
    """
    records = {record.spec.run_id: record for record in runs}
    views = [run_view(spec, records.get(spec.run_id)) for spec in trial.plan]
    known = {model.reference: model for model in trial.models}
    models = [
        _model_view(model, known.get(model), [view for view in views if view.model == model])
        for model in dict.fromkeys(spec.model for spec in trial.plan)
    ]
    finished = sum(view.outcome.at_end for view in views)
    all_f1 = all(view.f1 == view.score for view in views if view.outcome is Outcome.SCORED)
    return TrialSummary(
        trial_id=trial.trial_id,
        task=trial.task,
        orch_version=trial.orch_version,
        created_at=trial.created_at,
        settings=trial.settings,
        measure="F1" if all_f1 else "score",
        planned=len(views),
        finished=finished,
        complete=finished == len(views),
        harness_failures=[view.run_id for view in views if view.outcome is Outcome.HARNESS],
        models=models,
    )


def run_view(spec: RunSpec, record: RunRecord | None) -> RunView:
    record = record or RunRecord(spec=spec)
    score, failure = record.score, deciding(record)
    outcome = _outcome(record, failure)
    scored = score if score is not None and outcome is Outcome.SCORED else None
    f1 = scored.metrics.f1 if scored and scored.metrics else None
    expected = score.expected_f1 if score else None
    return RunView(
        run_id=spec.run_id,
        model=spec.model,
        index=spec.index,
        seed=spec.seed,
        outcome=outcome,
        score=scored.score if scored else None,
        f1=f1,
        metrics=scored.metrics if scored else None,
        expected_f1=expected,
        estimate_error=None if f1 is None or expected is None else expected - f1,
        leak=score.leak if score else None,
        leaks=score.leaks if score else [],
        claims=score.claims if score else [],
        said_done=crossings(score),
        missing_imports=score.missing_imports if score else [],
        spread=score.spread if score else None,
        commits=record.commits,
        repairs=[repair.outcome for repair in record.repairs],
        repair_turns=repair_views(record.repairs, record.stages),
        stages=[_stage_view(stage) for stage in record.stages],
        usage=record.usage,
        duration_s=record.duration_s or sum(stage.duration_s for stage in record.stages),
        failure=_failure_view(failure),
    )


def deciding(record: RunRecord) -> Failure | None:
    """The failure that decided a finished run; one without any result is a defect of ours."""
    if record.status is not RunStatus.FINISHED:
        return record.failure
    failure = record.failure or (record.score.failure if record.score else None)
    if failure is None and record.score is None:
        return Failure(
            failure_class=FailureClass.SCORER_ERROR,
            sentence="the record of this finished run holds neither a score nor a failure",
        )
    return failure


def _outcome(record: RunRecord, failure: Failure | None) -> Outcome:
    match record.status:
        case RunStatus.PLANNED:
            return Outcome.NOT_STARTED
        case RunStatus.RUNNING:
            return Outcome.RUNNING
        case RunStatus.INTERRUPTED:
            return Outcome.INTERRUPTED
        case RunStatus.FINISHED:
            pass
    if failure is not None and not failure.valid:
        return Outcome.TASK if failure.attribution is Attribution.TASK else Outcome.HARNESS
    # A failure may leave a score standing (a budget used up after the submission was whole).
    if record.score is not None and record.score.failure is None:
        return Outcome.SCORED
    return Outcome.FAILED


def _failure_view(failure: Failure | None) -> FailureView | None:
    if failure is None:
        return None
    return FailureView(
        failure_class=failure.failure_class,
        attribution=failure.attribution,
        stage=failure.stage,
        reason=failure.reason,
        sentence=failure.sentence,
        mend=failure.mend,
        evidence=[item.model_dump() for item in failure.evidence],
    )


def _stage_view(stage: StageRecord) -> StageView:
    return StageView(
        name=stage.name,
        kind=stage.kind,
        turn=stage.turn,
        duration_s=stage.duration_s,
        changed_files=len(stage.changes) if isinstance(stage, AgentStage) else 0,
        failure=_failure_view(stage.failure),
    )


def _model_view(model: str, known: ModelRecord | None, runs: list[RunView]) -> ModelView:
    def with_outcome(outcome: Outcome) -> list[str]:
        return [run.run_id for run in runs if run.outcome is outcome]

    valid = [run for run in runs if run.outcome.valid]
    scores = [run.score for run in valid if run.score is not None]
    return ModelView(
        model=model,
        digest=known.digest if known else None,
        loaded=_loaded(known) if known else "",
        notes=known.notes if known else [],
        planned=len(runs),
        valid=len(valid),
        scored=len(scores),
        failed=len(valid) - len(scores),
        harness=with_outcome(Outcome.HARNESS),
        task_faults=with_outcome(Outcome.TASK),
        running=with_outcome(Outcome.RUNNING),
        interrupted=with_outcome(Outcome.INTERRUPTED),
        not_started=with_outcome(Outcome.NOT_STARTED),
        failures=_failure_counts(runs),
        mean_with_failures=_mean([run.score or 0.0 for run in valid]),
        mean_scored=_mean(scores),
        best=max(scores, default=None),
        repairs={
            outcome: sum(run.repairs.count(outcome) for run in valid) for outcome in RepairOutcome
        },
        repair_gain=mean_gain(view for run in valid for view in run.repair_turns),
        leak=_leak_counts(valid),
        said_done=counted(crossing for run in valid for crossing in run.said_done),
        usage=sum((run.usage for run in runs), Usage()),
        duration_s=sum(run.duration_s for run in runs),
        runs=runs,
    )


def _loaded(known: ModelRecord) -> str:
    parts = [known.server] if known.server else []
    if known.loaded_bytes:
        parts.append(f"{known.loaded_bytes / GIB:.1f} GiB in memory")
    if known.processor:
        on_gpu = known.processor != "100% CPU" and known.vram_bytes
        vram = f" ({(known.vram_bytes or 0) / GIB:.1f} GiB of VRAM)" if on_gpu else ""
        parts.append(known.processor + vram)
    if known.load_s is not None:
        parts.append(f"loaded in {known.load_s:.1f} s")
    if known.context_loaded:
        parts.append(f"context {known.context_loaded}")
    return ", ".join(parts)


def _failure_counts(runs: Sequence[RunView]) -> list[FailureCount]:
    """Failures that decided a run, most frequent first; unfinished and scored runs have none."""
    by_class: dict[FailureClass, list[str]] = {}
    for run in runs:
        if run.failure and run.outcome in (Outcome.FAILED, Outcome.HARNESS, Outcome.TASK):
            by_class.setdefault(run.failure.failure_class, []).append(run.run_id)
    counts = [
        FailureCount(
            failure_class=failure_class,
            attribution=TABLE[failure_class].attribution,
            valid=TABLE[failure_class].valid,
            runs=ids,
        )
        for failure_class, ids in by_class.items()
    ]
    return sorted(counts, key=lambda count: (-len(count.runs), count.failure_class))


def _leak_counts(valid: Sequence[RunView]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in valid:
        if run.leak:
            counts[run.leak.verdict] = counts.get(run.leak.verdict, 0) + 1
    return counts


def _mean(values: list[float]) -> Mean | None:
    return Mean(value=fmean(values), n=len(values)) if values else None
