"""Before a trial: refuse what can't work, and say what the trial will take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.errors import PreflightFailed
from orchestrator.sandbox.engine import EngineInfo
from orchestrator.trial.checks import Check, Status, runtime
from orchestrator.trial.doctor import failed, judge
from orchestrator.trial.estimate import Estimate, Wanted
from orchestrator.trial.facts import Facts, size

OF_OLLAMA = frozenset({"gpu", "ollama", "context"})
"""Checks that don't concern a trial without a model of Ollama."""
NOT_OF_TRIALS = frozenset({"tasks"})
"""A trial has read its own task already; another broken one is no reason to refuse."""


@dataclass(frozen=True)
class Cleared:
    """A trial that may start: what to warn of, and what it will take."""

    warnings: list[Check]
    estimate: Estimate


def clear(facts: Facts, wanted: Wanted, expected: Estimate) -> Cleared:
    """Judge one trial. Pure. Raises PreflightFailed with the sentences of all failures."""
    found = concerning(judge(facts), wanted) + space_for(expected, facts)
    if failures := failed(found):
        raise PreflightFailed(sentence(failures))
    return Cleared([check for check in found if check.status is Status.WARN], expected)


def refuse_runtime(info: EngineInfo, wanted: str | None) -> None:
    """Raises PreflightFailed where the engine has no runtime of that name."""
    if failures := failed([runtime(info, wanted)]):
        raise PreflightFailed(sentence(failures))


def concerning(found: Iterable[Check], wanted: Wanted) -> list[Check]:
    """The checks that matter to this trial."""
    left_out = NOT_OF_TRIALS
    if not any(model.needs_ollama for model in wanted.models):
        left_out |= OF_OLLAMA
    return [check for check in found if check.name not in left_out]


def space_for(expected: Estimate, facts: Facts) -> list[Check]:
    """A failure where the engine's disk can be seen and is too small for this very trial."""
    free = facts.engine.info.free_bytes if facts.engine else None
    if free is None or free >= expected.disk_bytes:
        return []
    return [
        Check.fail(
            "disk",
            f"{size(free)} free, the trial takes about {size(expected.disk_bytes)}",
            "free some: `orch clean` removes what trials left",
        )
    ]


def sentence(failures: Iterable[Check]) -> str:
    """All failures on one line, each with its mend."""
    return "; ".join(
        f"{check.name}: {check.found}" + (f" ({check.mend})" if check.mend else "")
        for check in failures
    )
