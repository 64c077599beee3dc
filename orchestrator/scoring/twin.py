"""What training left, kept apart: a submission predicts again as if for the first time."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from orchestrator.errors import EngineRefused
from orchestrator.sandbox import volume
from orchestrator.sandbox.archive import Entry
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.volume import HELPER_LIMITS, Volume
from orchestrator.scoring.runtime import ScoringBench
from orchestrator.scoring.steps import Spot, StepResult, Workplace
from orchestrator.task import Step

KEPT = "/kept"
ORIGIN = "/from"


class Twin:
    """The state of a workplace when this is entered, for `times` predictions; a context manager.

    Each prediction has a workspace and an output volume of its own, laid from the same state, and
    a container of its own: neither files nor processes nor what lies in memory pass from one to
    the next. One idle container of ours holds all those volumes and copies between them.
    """

    def __init__(self, bench: ScoringBench, place: Workplace, times: int) -> None:
        self._bench = bench
        self._place = place
        self._times = times
        self._spots: list[Spot] = []
        self._holder: Container | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Twin:
        bench, limits = self._bench, self._bench.limits
        with ExitStack() as stack:

            def capped(role: str, size_mb: int) -> Volume:
                made = volume.create(bench.engine, bench.owner.as_role(role), size_mb=size_mb)
                stack.callback(volume.remove, bench.engine, made)
                return made

            kept = capped("twin", limits.work_mb)
            works = [capped("work", limits.work_mb) for _ in range(self._times)]
            outs = [capped("output", limits.output_mb) for _ in range(self._times)]
            mounts = [self._place.work.at(ORIGIN), kept.at(KEPT, read_only=False)]
            mounts += [work.at(f"/work{n}", read_only=False) for n, work in enumerate(works)]
            mounts += [out.at(f"/out{n}") for n, out in enumerate(outs)]
            # What is written to a capped volume counts as memory of who writes it.
            memory_mb = limits.work_mb * (self._times + 1) + 128
            spec = ContainerSpec(
                bench.tools.id,
                bench.owner.as_role("hold-twin"),
                HELPER_LIMITS.model_copy(update={"memory_mb": memory_mb}),
                mounts=tuple(mounts),
            )
            self._holder = stack.enter_context(Container(bench.engine, spec))
            self._spots = [
                Spot(work, out, _Drawer(self._holder, f"/out{n}"))
                for n, (work, out) in enumerate(zip(works, outs, strict=True))
            ]
            self._copy(ORIGIN, KEPT)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, number: int, step: Step, inputs: Volume, columns: frozenset[str]) -> StepResult:
        """Prediction `number`, from 0 and each once. Raises the engine's errors."""
        self._copy(KEPT, f"/work{number}")
        result = self._place.run_at(self._spots[number], step, inputs, columns)
        # Only to free memory: whatever stays is seen by nobody.
        self._held().exec(
            ("/usr/bin/find", f"/work{number}", "-mindepth", "1", "-delete"),
            timeout_s=HELPER_LIMITS.wall_s,
            counted=False,
        )
        return result

    def _copy(self, origin: str, target: str) -> None:
        """As far as its own user can read it: what a step hides is missed."""
        self._held().exec(
            ("/bin/cp", "-a", f"{origin}/.", target),
            timeout_s=HELPER_LIMITS.wall_s,
            counted=False,
        )

    def _held(self) -> Container:
        if self._holder is None:
            raise EngineRefused("A twin was used outside its `with` block.")
        return self._holder


class _Drawer:
    """A folder of the holder, looked into from outside."""

    def __init__(self, holder: Container, folder: str) -> None:
        self._holder = holder
        self._folder = folder

    def stat(self, path: str) -> Entry | None:
        return self._holder.stat(f"{self._folder}/{path}")

    def get(self, path: str, max_bytes: int) -> bytes:
        return self._holder.get(f"{self._folder}/{path}", max_bytes)
