"""What a trial will take: time, disk and memory, from earlier records or stated assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from orchestrator.errors import OrchError
from orchestrator.models.reference import ModelReference
from orchestrator.records.schema import RunRecord, RunStatus, TrialRecord
from orchestrator.records.store import TrialStore, list_trials
from orchestrator.report.units import duration
from orchestrator.task import AgentStageSpec, ExecuteStageSpec, Task
from orchestrator.trial.facts import Facts, size

EARLIER_TRIALS = 20
"""So many of the latest trials are looked through for earlier runs."""

# Assumptions, used where no earlier run tells better. Each is named in what is printed.
REPLY_TOKENS = 3000
GPU_TOKENS_PER_S = 30.0
CPU_TOKENS_PER_S = 5.0
OWN_REPLY_TOKENS = 2000
OWN_TOKENS_PER_S = 15.0
"""Of the tiny model that orch serves itself: 17 a second were seen on two CPUs."""
SCRIPTED_STAGE_S = 3.0
STEP_S = (3.0, 30.0)
"""One executed step: at scale 0, and at scale 1."""
INSTALL_S = 30.0
SCORING_STEPS = 2
"""It trains and predicts."""
ENVIRONMENT_BYTES = 400 << 20
ROW_BYTES = 400
MANAGED_OLLAMA_BYTES = 5_500_000_000
REST_MEMORY_BYTES = 512 << 20
"""Gateway, an idle agent and the orchestrator."""


@dataclass(frozen=True)
class Wanted:
    """The trial that is about to start."""

    task: Task
    models: tuple[ModelReference, ...]
    runs: int
    scale: float
    data_bytes: int | None
    """Of the generated data, where they are there already."""
    repair_turns: int = 0
    own: ModelReference | None = None
    """The model that orch serves itself, on the CPU."""


@dataclass(frozen=True)
class Part:
    """One summand."""

    what: str
    amount: float
    source: str = ""
    """Where the amount comes from, where `what` does not say it."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of the whole trial, bytes on the engine's disk, bytes of memory at one time."""

    time: tuple[Part, ...]
    disk: tuple[Part, ...]
    memory: tuple[Part, ...]
    runs: int
    unknown: tuple[str, ...] = ()
    """What could not be estimated and comes on top."""

    @property
    def seconds(self) -> float:
        return sum(part.amount for part in self.time) * self.runs

    @property
    def disk_bytes(self) -> int:
        return int(sum(part.amount for part in self.disk))

    @property
    def memory_bytes(self) -> int:
        return int(sum(part.amount for part in self.memory))

    def lines(self) -> list[str]:
        """For people: a line each for time, disk and memory, with its parts."""
        alike: dict[tuple[float, str], list[str]] = {}
        for part in self.time:
            alike.setdefault((part.amount, part.source), []).append(part.what)
        times = "; ".join(
            f"{', '.join(models)} {duration(amount)} a run ({source})"
            for (amount, source), models in alike.items()
        )
        lines = [
            f"time    about {duration(self.seconds)}: {times}",
            f"disk    about {size(self.disk_bytes)}: {_sizes(self.disk)}",
            f"memory  up to {size(self.memory_bytes)} at a time: {_sizes(self.memory)}",
        ]
        return [*lines, *(f"unknown {text}" for text in self.unknown)]


def estimate(wanted: Wanted, earlier: Mapping[str, Sequence[float]], facts: Facts) -> Estimate:
    """`earlier` gives the seconds of earlier runs by model reference; see `earlier_runs`."""
    return Estimate(
        time=tuple(_run_time(wanted, model, earlier, facts) for model in wanted.models),
        disk=tuple(part for part in _disk(wanted, facts) if part.amount),
        memory=tuple(_memory(wanted, facts)),
        runs=wanted.runs,
        unknown=tuple(
            f"size of {model.text}, which is pulled first"
            for model in wanted.models
            if model.needs_ollama and facts.needs.model_bytes(model.name) is None
        ),
    )


def earlier_runs(
    runs_dir: Path, task: Task, models: Iterable[str], scale: float
) -> dict[str, list[float]]:
    """Seconds of earlier runs of each model on this task and scale that came to a valid end.

    Records that can't be read are passed over: an estimate is no reason to refuse a trial.
    """
    found: dict[str, list[float]] = {model: [] for model in models}
    for trial_id in list_trials(runs_dir)[-EARLIER_TRIALS:]:
        store = TrialStore(runs_dir / trial_id)
        try:
            trial = store.load_trial()
            if (trial.task, trial.settings.scale) != (task.name, scale):
                continue
            for run in _runs_of(store, trial, found):
                found[run.spec.model].append(run.duration_s)
        except OrchError:
            continue
    return found


def _runs_of(
    store: TrialStore, trial: TrialRecord, models: Mapping[str, object]
) -> list[RunRecord]:
    plan = [spec for spec in trial.plan if spec.model in models]
    return [
        run
        for run in store.runs(plan)
        if run.status is RunStatus.FINISHED and (run.failure is None or run.failure.valid)
    ]


def _run_time(
    wanted: Wanted,
    model: ModelReference,
    earlier: Mapping[str, Sequence[float]],
    facts: Facts,
) -> Part:
    known = earlier.get(model.text, ())
    if known:
        runs = "one earlier run" if len(known) == 1 else f"median of {len(known)} earlier runs"
        return Part(model.text, median(known), runs)
    stages, steps = _work(wanted.task, wanted.repair_turns)
    least, most = STEP_S
    step_s = least + (most - least) * wanted.scale
    if model.needs_upstream:
        fast = facts.engine_gpu or facts.ollama_given or not model.needs_ollama
        rate, tokens = (GPU_TOKENS_PER_S if fast else CPU_TOKENS_PER_S), REPLY_TOKENS
        if model == wanted.own:
            rate, tokens = OWN_TOKENS_PER_S, OWN_REPLY_TOKENS
        stage_s = tokens / rate
        how = f"{stages} x {tokens} tokens written at {rate:g} a second"
    else:
        stage_s, how = SCRIPTED_STAGE_S, f"{stages} x {SCRIPTED_STAGE_S:g} s of a scripted stage"
    seconds = stages * stage_s + steps * step_s + INSTALL_S
    assumed = f"assumed: {how}, {steps} x {step_s:.0f} s of a step, {INSTALL_S:.0f} s to install"
    assumed += ", every repair turn taken" if wanted.repair_turns else ""
    return Part(model.text, seconds, assumed)


def _work(task: Task, turns: int) -> tuple[int, int]:
    """Agent stages and executed steps of a run at most, those of repair turns included.

    A repair turn is an agent stage and its execute stage once more; the submission is scored
    before the first and after each, by a step that trains and one that predicts.
    """
    executed = [stage for stage in task.stage if isinstance(stage, ExecuteStageSpec)]
    repaired = [stage for stage in executed if stage.repairs is not None and turns]
    agents = sum(isinstance(stage, AgentStageSpec) for stage in task.stage)
    steps = sum(len(stage.steps) for stage in executed) + SCORING_STEPS
    steps += sum(turns * len(stage.steps) + (turns + 1) * SCORING_STEPS for stage in repaired)
    return agents + turns * len(repaired), steps


def _disk(wanted: Wanted, facts: Facts) -> list[Part]:
    missing = [i.needs_mb << 20 for i in facts.engine.images if not i.built] if facts.engine else []
    rows = (wanted.task.data.train_rows or 0) + (wanted.task.data.holdout_rows or 0)
    if wanted.data_bytes is None:
        assumed = int(rows * wanted.scale) * ROW_BYTES
        data = Part(f"data (assumed: {ROW_BYTES} bytes a row)", assumed)
    else:
        data = Part("data", wanted.data_bytes)
    environments = Part(
        f"environments (assumed: one of {size(ENVIRONMENT_BYTES)} a model)",
        ENVIRONMENT_BYTES * len(wanted.models),
    )
    managed = any(m.needs_ollama for m in wanted.models) and not facts.ollama_given
    pulled = MANAGED_OLLAMA_BYTES if managed and not facts.ollama_image_here else 0
    return [
        Part(f"{len(missing)} images to build", sum(missing)),
        data,
        environments,
        Part("the Ollama image", pulled),
    ]


def _memory(wanted: Wanted, facts: Facts) -> list[Part]:
    limits = wanted.task.limits
    largest = max(limits.agent.memory_mb, limits.execute.memory_mb) << 20
    parts = [Part("submission", largest), Part("gateway and the rest", REST_MEMORY_BYTES)]
    sizes = [facts.needs.model_bytes(m.name) or 0 for m in wanted.models if m.needs_ollama]
    if any(sizes):
        parts.append(Part("largest model, on the GPU as far as it fits", max(sizes)))
    return parts


def _sizes(parts: Iterable[Part]) -> str:
    return ", ".join(f"{part.what} {size(int(part.amount))}" for part in parts)
