"""What training left, kept apart: a submission predicts again as if for the first time."""

from __future__ import annotations

from types import TracebackType

from orchestrator.sandbox.volume import Scratch, Volume
from orchestrator.scoring.runtime import ScoringBench
from orchestrator.scoring.steps import Spot, StepResult, Workplace
from orchestrator.task import Step

KEPT = "twin"
ORIGIN = "from"


class Twin:
    """The state of a workplace when this is entered, for `times` predictions; a context manager.

    Each prediction has a workspace and an output volume of its own, laid from the same state, and
    a container of its own: neither files nor processes nor what lies in memory pass from one to
    the next. One idle container of ours holds all those volumes and copies between them.
    """

    def __init__(self, bench: ScoringBench, place: Workplace, times: int) -> None:
        limits = bench.limits
        self._place = place
        self._spots = [(f"work{n}", f"output{n}") for n in range(times)]
        sizes = {KEPT: limits.work_mb}
        for work, out in self._spots:
            sizes |= {work: limits.work_mb, out: limits.output_mb}
        self._scratch = Scratch(
            bench.engine,
            bench.owner.as_role("twin"),
            bench.tools.id,
            sizes,
            beside={ORIGIN: place.work},
        )

    def __enter__(self) -> Twin:
        self._scratch.__enter__()
        try:
            self._scratch.copy(ORIGIN, KEPT)
        except BaseException:
            self._scratch.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scratch.__exit__(kind, error, trace)

    def run(self, number: int, step: Step, inputs: Volume, columns: frozenset[str]) -> StepResult:
        """Prediction `number`, from 0 and each once. Raises the engine's errors.

        Of the kept state what its own user can't read is missed: a step can hide files from us.
        """
        work, out = self._spots[number]
        self._scratch.copy(KEPT, work)
        result = self._place.run_at(Spot(self._scratch, work, out), step, inputs, columns)
        # Only to free memory: whatever stays is seen by nobody.
        self._scratch.clear(work)
        return result
