"""Use of columns that must not be used, in words."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.report.inert import inert
from orchestrator.report.said_done import SaidDone, quote
from orchestrator.report.summary import ModelView, RunView, TrialSummary


def remarks(summary: TrialSummary) -> Iterator[str]:
    """For each model and column how many runs used it; for each run that denies it, its words."""
    for model in summary.models:
        valid = [run for run in model.runs if run.outcome.valid]
        yield from _used(model, valid)
        for run in valid:
            for crossing in run.said_done:
                if crossing.outcome is SaidDone.CONTRADICTS:
                    column = inert(crossing.column, 60)
                    yield (
                        f"{inert(run.run_id, 120)} says that it leaves out {column}, and uses it. "
                        f"{quote(crossing)}"
                    )


def _used(model: ModelView, valid: list[RunView]) -> Iterator[str]:
    probes = [probe for run in valid for probe in run.leaks]
    for column in dict.fromkeys(probe.column for probe in probes):
        verdicts = [probe.verdict for probe in probes if probe.column == column]
        if used := verdicts.count("used"):
            yield (
                f"Leak: {inert(model.model, 120)} used {inert(column, 60)}, which is not known "
                f"when the program must decide, in {used} of {len(verdicts)} probed runs."
            )
