"""What each repair turn was worth and what it took, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import AgentStage, Repair, RepairOutcome, StageRecord
from orchestrator.report.inert import inert
from orchestrator.report.units import count, duration


class RepairView(BaseModel):
    """One repair turn. Scores are None where they are not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    turn: int
    outcome: RepairOutcome
    score_before: float | None
    score_after: float | None
    failure_before: FailureClass | None
    failure_after: FailureClass | None
    tokens: int
    """Read and written in it by the model."""
    seconds: float
    """That the model's stage took."""
    unpriced: str
    """Why a score is not known; empty where both are, or where none was asked for."""


def repair_views(repairs: Sequence[Repair], stages: Sequence[StageRecord]) -> list[RepairView]:
    return [_view(repair, _asked(repair, stages)) for repair in repairs]


def _view(repair: Repair, asked: AgentStage | None) -> RepairView:
    before, after = repair.before, repair.after
    usage = asked.usage if asked else None
    return RepairView(
        stage=repair.stage,
        turn=repair.turn,
        outcome=repair.outcome,
        score_before=before.score if before else None,
        score_after=after.score if after else None,
        failure_before=before.failure if before else None,
        failure_after=after.failure if after else None,
        tokens=usage.prompt_tokens + usage.reply_tokens if usage else 0,
        seconds=asked.duration_s if asked else 0.0,
        unpriced=repair.unpriced.sentence if repair.unpriced else "",
    )


def _asked(repair: Repair, stages: Sequence[StageRecord]) -> AgentStage | None:
    """The stage in which the model left the tree that the repair ends with."""
    return next(
        (
            stage
            for stage in stages
            if isinstance(stage, AgentStage)
            and (stage.turn, stage.tree) == (repair.turn, repair.tree_after)
        ),
        None,
    )


def mean_gain(views: Iterable[RepairView]) -> float | None:
    """Of the score by a repair turn, a failure as 0, over those with both scores."""
    gains = [
        view.score_after - view.score_before
        for view in views
        if view.score_before is not None and view.score_after is not None
    ]
    return fmean(gains) if gains else None


def summed(outcomes: Mapping[RepairOutcome, int], gain: float | None) -> str:
    """`2 rescued, 1 unchanged, +0.421 each`; `-` where there was no repair turn."""
    parts = [f"{n} {outcome.value}" for outcome, n in outcomes.items() if n]
    if gain is not None:
        parts.append(f"{gain:+.3f} each")
    return ", ".join(parts) or "-"


def repair_line(view: RepairView) -> str:
    """`check, turn 1: rescued, 0 (unpicklable-artifact) to 0.631; 3.4k tokens, 1.2s`."""
    worth = ""
    if view.score_before is not None and view.score_after is not None:
        before = _worth(view.score_before, view.failure_before)
        worth = f", {before} to {_worth(view.score_after, view.failure_after)}"
    elif view.unpriced:
        worth = f" by how far it got; a score is missing: {inert(view.unpriced, 200)}"
    took = f"{count(view.tokens)} tokens, {duration(view.seconds)}"
    return f"{inert(view.stage, 60)}, turn {view.turn}: {view.outcome.value}{worth}; {took}"


def _worth(score: float, failure: FailureClass | None) -> str:
    return f"{score:.3f}" if failure is None else f"0 ({failure.value})"


def run_lines(views: Sequence[RepairView], who: str) -> Iterator[str]:
    """A line for each repair turn of one run, which `who` names."""
    for view in views:
        yield f"{who} {repair_line(view)}"
