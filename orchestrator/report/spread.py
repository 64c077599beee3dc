"""What several scorings of one submission say, in words."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from orchestrator.records.schema import Spread
from orchestrator.report.summary import TrialSummary


def words(spread: Spread) -> str:
    """`3 scorings: the same each time`, or from where to where they go."""
    scores = spread.scores
    if spread.distinct == 1:
        return f"{len(scores)} scorings: the same each time"
    text = (
        f"{len(scores)} scorings: {spread.distinct} different results, score {min(scores):.3f} to "
        f"{max(scores):.3f}, mean {fmean(scores):.3f}"
    )
    failed = sum(failure is not None for failure in spread.failures)
    return text + (f", {failed} of them failed" if failed else "")


def remarks(summary: TrialSummary) -> Iterator[str]:
    """A sentence for each run whose submission did not come out the same each time; one for all
    the others."""
    repeated = [run for model in summary.models for run in model.runs if run.spread is not None]
    steady = 0
    for run in repeated:
        assert run.spread is not None
        if run.spread.distinct == 1:
            steady += 1
        else:
            yield f"{run.run_id}: {words(run.spread)}."
    if steady:
        yield (
            f"{steady} of {len(repeated)} submissions that were trained and scored "
            f"{summary.settings.repeat} times came out the same each time."
        )
