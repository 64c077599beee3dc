"""A submission trained and scored several times from scratch: how far its results lie apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.records.schema import ScoreRecord, Spread
from orchestrator.scoring.runtime import ScoringBench


def unprobed(bench: ScoringBench) -> ScoringBench:
    """The same without the leak probe: a repetition is about the score alone."""
    scorer = bench.task.scorer.model_copy(update={"leaked_columns": ()})
    return replace(bench, task=bench.task.model_copy(update={"scorer": scorer}))


def with_spread(first: ScoreRecord, times: int, again: Callable[[], ScoreRecord]) -> ScoreRecord:
    """`first` with the spread over `times` scorings, itself the first of them.

    The score stays that of the first. Nothing is repeated where nothing of the submission ran.
    """
    if times < 2 or not first.steps:
        return first
    records = [first, *(again() for _ in range(times - 1))]
    failures = [record.failure.failure_class if record.failure else None for record in records]
    hashes = [record.predictions_sha256 for record in records]
    spread = Spread(
        scores=[record.score for record in records],
        predictions_sha256=hashes,
        failures=failures,
        distinct=len(set(zip(hashes, failures, strict=True))),
    )
    return first.model_copy(update={"spread": spread})
