"""Why a run came out as it did, from its record and its snapshots: `orch explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.errors import PreflightFailed, RecordUnreadable, UnsafeOutput
from orchestrator.records.failures import TABLE, Attribution, FailureClass
from orchestrator.records.schema import (
    AgentStage,
    Evidence,
    ExecuteStage,
    Failure,
    MissingImport,
    RunRecord,
    StageRecord,
    StepRecord,
)
from orchestrator.records.store import TrialStore
from orchestrator.report.landing import landing_lines
from orchestrator.report.repairs import RepairView
from orchestrator.report.summary import Outcome, View, at_rest, deciding, run_view
from orchestrator.sandbox.history import History

BEFORE, AFTER = 3, 2
"""Lines shown around the one that evidence points at."""
MAX_LINE = 400
"""Characters of one of them."""
MAX_SOURCE = 1 << 20
"""Bytes of a file of the submission that is looked into."""
SCORING = "scoring"
"""Where a failure happened that no stage had."""

Read = Callable[[str, str], bytes | None]
"""Content of a file in a snapshot, by tree and path; None where it can't be had."""


class Line(View):
    number: int
    text: str


class Place(View):
    """Where a failure can be seen: a file of the submission or what a step put out."""

    source: str
    line: int | None
    excerpt: str
    around: list[Line]
    """Lines about the one pointed at, itself included; none where the file can't be had."""


class Problem(View):
    """One failure. `stage` is `scoring` for the score's own."""

    stage: str
    turn: int
    """0 is the stage's own prompt, 1.. are repair turns."""
    failure_class: FailureClass
    attribution: Attribution
    reason: str
    sentence: str
    meaning: str
    """What the class says of every such failure."""
    mend: str
    places: list[Place]
    repaired: bool
    """Something later in the run made it good; never of what decided the run."""


class Explanation(View):
    """`decided` is None where nothing failed, or where the run is not at its end."""

    trial_id: str
    run_id: str
    model: str
    outcome: Outcome
    score: float | None
    counts: bool
    """The run is in the denominator of its model's means."""
    retry: bool
    """The same again may come out otherwise, without anything being mended."""
    decided: Problem | None
    on_the_way: list[Problem]
    """Failures of stages, in order, that did not decide the run."""
    missing_imports: list[MissingImport]
    landing: list[str]
    """What of its replies did not land, and what its prompts left out; a line each."""
    repairs: list[RepairView]
    last_stage: str
    """The last that was recorded; "" where none was."""


def explain_run(store: TrialStore, run_id: str, *, alive: bool) -> Explanation:
    """Explain a planned run. Raises RecordNotFound, RecordUnreadable.

    `alive` says whether some process works on the trial.
    """
    specs = [spec for spec in store.load_trial().plan if spec.run_id == run_id]
    record = next(store.runs(specs))
    history = History(store.run_folder(run_id) / "history.git")
    return explain(store.trial_id, record if alive else at_rest(record), reader(history))


def reader(history: History) -> Read:
    """What a run's history holds; a file that is missing there is no error here."""

    def read(tree: str, path: str) -> bytes | None:
        try:
            return history.read(tree, path, MAX_SOURCE)
        except (UnsafeOutput, RecordUnreadable, PreflightFailed):
            return None

    return read


def explain(trial_id: str, record: RunRecord, read: Read) -> Explanation:
    view, failure = run_view(record.spec, record), deciding(record)
    spots = list(_spots(record))
    decided = None if failure is None else _spot_of(failure, spots)
    return Explanation(
        trial_id=trial_id,
        run_id=view.run_id,
        model=view.model,
        outcome=view.outcome,
        score=view.score,
        counts=view.outcome.valid,
        retry=_retry(view.outcome, failure),
        decided=None if decided is None else _problem(decided, read, repaired=False),
        on_the_way=[
            _problem(spot, read, repaired=_repaired(spot, record.stages))
            for spot in spots
            if spot is not decided
        ],
        missing_imports=view.missing_imports,
        landing=landing_lines(record),
        repairs=view.repair_turns,
        last_stage=record.stages[-1].name if record.stages else "",
    )


def _retry(outcome: Outcome, failure: Failure | None) -> bool:
    if failure is not None:
        return TABLE[failure.failure_class].may_retry
    return outcome in (Outcome.INTERRUPTED, Outcome.NOT_STARTED)


@dataclass(frozen=True)
class _Spot:
    """A failure, the snapshot that it is of, and the steps whose output tells of it."""

    failure: Failure
    tree: str = ""
    stage: str = ""
    turn: int = 0
    steps: Sequence[StepRecord] = ()
    index: int = 0
    """Place of its stage among the run's."""


def _spots(record: RunRecord) -> Iterator[_Spot]:
    """All recorded failures, in their order."""
    tree = ""
    for index, stage in enumerate(record.stages):
        if isinstance(stage, AgentStage):
            tree = stage.tree
        if stage.failure is not None:
            steps = stage.steps if isinstance(stage, ExecuteStage) else ()
            yield _Spot(stage.failure, tree, stage.name, stage.turn, steps, index)
    score = record.score
    if score is not None and score.failure is not None:
        yield _Spot(score.failure, score.tree, SCORING, 0, score.steps, len(record.stages))


def _spot_of(failure: Failure, spots: Sequence[_Spot]) -> _Spot:
    found = next((spot for spot in reversed(spots) if spot.failure == failure), None)
    return found or _Spot(failure, stage=failure.stage)


def _repaired(spot: _Spot, stages: Sequence[StageRecord]) -> bool:
    """Whether a later stage passed where this failed, or left what this had left out."""
    if spot.index >= len(stages):
        return False
    failed, later = stages[spot.index], stages[spot.index + 1 :]
    again = [stage for stage in later if (stage.kind, stage.name) == (failed.kind, failed.name)]
    if isinstance(failed, AgentStage) and failed.missing:
        left = {
            change.path
            for stage in later
            if isinstance(stage, AgentStage)
            for change in stage.changes
            if change.change != "deleted"
        }
        return left.issuperset(failed.missing)
    return any(stage.failure is None for stage in again)


def _problem(spot: _Spot, read: Read, *, repaired: bool) -> Problem:
    failure = spot.failure
    return Problem(
        stage=spot.stage,
        turn=spot.turn,
        failure_class=failure.failure_class,
        attribution=failure.attribution,
        reason=failure.reason,
        sentence=failure.sentence,
        meaning=TABLE[failure.failure_class].meaning,
        mend=failure.mend,
        places=[_place(evidence, spot, read) for evidence in failure.evidence],
        repaired=repaired,
    )


def _place(evidence: Evidence, spot: _Spot, read: Read) -> Place:
    around: list[Line] = []
    if evidence.line is not None:
        text = _output(evidence.source, spot.steps)
        # What came before an error in the output leads to it; what comes after does not.
        after = AFTER if text is None else 0
        if text is None:
            content = read(spot.tree, evidence.source)
            text = None if content is None else content.decode("utf-8", "replace")
        around = [] if text is None else _around(text, evidence.line, after)
    return Place(
        source=evidence.source, line=evidence.line, excerpt=evidence.excerpt, around=around
    )


def _output(source: str, steps: Sequence[StepRecord]) -> str | None:
    """What a step put out, where `source` names one of its streams as the record does."""
    for step in steps:
        for name, stream in (("stdout", step.stdout), ("stderr", step.stderr)):
            if source == f"{step.name}.{name}.txt":
                return stream.text
    return None


def _around(text: str, line: int, after: int) -> list[Line]:
    """The line with some before and after it; none where the text has no such line."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - BEFORE), min(len(lines), line + after)
    return [
        Line(number=number, text=lines[number - 1].rstrip("\r")[:MAX_LINE])
        for number in range(first, last + 1)
    ]
