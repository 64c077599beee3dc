"""Use of columns that must not be used, in rows of tables and in words."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.records.schema import AlterationKind, LeakProbe
from orchestrator.report.inert import inert
from orchestrator.report.said_done import DONE_WORDS, SaidDone, quote, share
from orchestrator.report.summary import ModelView, RunView, TrialSummary

CHANGES = ("run", "column", "set", "shuffled", "dropped", "not altered")
SAID_DONE = ("run", "column", "said", "known when\npredicting", "done", "said and done")


def changes(run: RunView) -> Iterator[tuple[str, ...]]:
    """Of each column the share of predictions that change, or the class of the failure."""
    kinds: tuple[AlterationKind, ...] = ("set", "shuffled", "dropped", "repeated")
    for probe in run.leaks:
        yield inert(probe.column, 60), *(_most(probe, kind) for kind in kinds)


def _most(probe: LeakProbe, kind: AlterationKind) -> str:
    """Of those that were asked more than once what failed, else the largest."""
    made = [one for one in probe.alterations if one.kind == kind]
    for one in made:
        if one.failure:
            return one.failure.failure_class.value
    return share(max((one.changed for one in made if one.changed is not None), default=None))


def said_done(run: RunView) -> Iterator[tuple[str, ...]]:
    """Of each column the plan, what is said of its availability, the verdict, what it makes."""
    for crossing in run.said_done:
        done = DONE_WORDS[crossing.done]
        known = crossing.known
        yield inert(crossing.column, 60), crossing.said, known, done, crossing.outcome.value


def total(model: ModelView) -> str:
    """`contradicts 2, as said 3`."""
    return ", ".join(f"{outcome.value} {n}" for outcome, n in model.said_done.items())


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
