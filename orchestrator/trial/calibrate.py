"""Scoring a folder, and the references of a task against the bounds that it states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from orchestrator.config import Settings
from orchestrator.errors import CalibrationFailed, UsageError
from orchestrator.records.schema import ScoreRecord
from orchestrator.sandbox import image
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.scoring.repeats import unprobed, with_spread
from orchestrator.scoring.runtime import ScoringBench, content_volume
from orchestrator.scoring.score import score_folder
from orchestrator.scoring.steps import header_of
from orchestrator.task import Calibration, Task
from orchestrator.trial.data import DataSet, ensure_data
from orchestrator.trial.log import Say
from orchestrator.trial.preflight import refuse_runtime
from orchestrator.trial.session import session, session_name
from orchestrator.trial.tasks import find_task

LOCAL_F1 = re.compile(r"local F1:\s*([01](?:\.\d+)?)")
"""What a reference's train.py says of itself on stdout."""


class Calibrated(BaseModel):
    """A reference as measured, and the bounds that it left, if any."""

    name: str
    f1: float
    local_f1: float | None
    broken: list[str]
    record: ScoreRecord

    @property
    def kept(self) -> bool:
        return not self.broken

    def line(self) -> str:
        """For people."""
        local = f"local F1 {self.local_f1:.4f}" if self.local_f1 is not None else "no local F1"
        verdict = "within bounds" if self.kept else "; ".join(self.broken)
        return f"{self.name:12} holdout F1 {self.f1:.4f}  {local}  {verdict}"


@dataclass(frozen=True)
class ScoreOptions:
    """How a folder is scored. `seed` is a run's, `scale` the share of the data."""

    scale: float = 1.0
    seed: int = 1
    repeat: int = 1


def score_submission(
    settings: Settings, task_name: str, folder: Path, options: ScoreOptions, say: Say
) -> ScoreRecord:
    """Score a folder of the host. Raises SubmissionNotFound, PreflightFailed for a runtime that
    the engine does not have."""
    task = find_task(settings, task_name)
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give the folder that holds the submission")
    engine = Engine.connect()
    refuse_runtime(engine.info(), settings.runtime)
    data = ensure_data(settings.holdout_dir, task, options.scale, say=say)
    with session(settings, engine, session_name("score"), say) as owner:
        bench = scoring_bench(engine, task, data, owner.trial, options.seed, say)
        bench = replace(bench, runtime=settings.runtime)
        record = score_folder(bench, folder, data.holdout)
        again = partial(score_folder, unprobed(bench), folder, data.holdout)
        return with_spread(record, options.repeat, again)


def calibrate_task(
    settings: Settings, task_name: str, names: Sequence[str], say: Say
) -> list[Calibrated]:
    """Score each reference at scale 1 and hold it against its bounds.

    Raises CalibrationFailed where a reference does not come to a score at all.
    """
    task = find_task(settings, task_name)
    wanted = list(names) or list(task.calibration)
    for name in wanted:
        if name not in task.calibration:
            known = ", ".join(task.calibration) or "none"
            raise UsageError(f"{task.name} has no reference {name!r} with bounds; it has: {known}")
    engine = Engine.connect()
    refuse_runtime(engine.info(), settings.runtime)
    data = ensure_data(settings.holdout_dir, task, say=say)
    measured: dict[str, ScoreRecord] = {}
    with ExitStack() as stack:
        owner = stack.enter_context(session(settings, engine, session_name("calibrate"), say))
        bench = scoring_bench(engine, task, data, owner.trial, 1, say)
        bench = replace(bench, runtime=settings.runtime)
        for name in _with_compared(wanted, task):
            say(f"scoring reference {name}")
            record = score_folder(bench, task.folder / "references" / name, data.holdout)
            if record.failure is not None:
                raise CalibrationFailed(
                    f"{task.folder / 'references' / name}: {record.failure.failure_class}: "
                    f"{record.failure.sentence}"
                )
            measured[name] = record
    return [judge(name, task.calibration[name], measured) for name in wanted]


def judge(name: str, bounds: Calibration, measured: dict[str, ScoreRecord]) -> Calibrated:
    """Hold one measured reference against its bounds. Pure."""
    record = measured[name]
    local = local_f1(record)
    broken: list[str] = []
    if bounds.f1 and not bounds.f1[0] <= record.score <= bounds.f1[1]:
        broken.append(f"F1 must lie in {bounds.f1[0]} to {bounds.f1[1]}")
    if bounds.local_f1_min is not None and (local is None or local < bounds.local_f1_min):
        broken.append(f"local F1 must reach {bounds.local_f1_min}")
    if bounds.f1_below_half_of:
        other = measured[bounds.f1_below_half_of].score
        if record.score >= other / 2:
            broken.append(f"F1 must stay under half of {bounds.f1_below_half_of}'s {other:.4f}")
    return Calibrated(name=name, f1=record.score, local_f1=local, broken=broken, record=record)


def local_f1(record: ScoreRecord) -> float | None:
    """The F1 that train.py measured itself, from the first step's stdout."""
    found = LOCAL_F1.search(record.steps[0].stdout.text) if record.steps else None
    return float(found[1]) if found else None


def _with_compared(wanted: Sequence[str], task: Task) -> list[str]:
    """The wanted references and those that their bounds speak of, each once."""
    compared = [task.calibration[name].f1_below_half_of for name in wanted]
    return list(dict.fromkeys([*wanted, *(name for name in compared if name)]))


def scoring_bench(
    engine: Engine, task: Task, data: DataSet, trial: str, seed: int, say: Say
) -> ScoringBench:
    """The bench for work outside a trial; images are built where missing."""
    tools, builder, scorer = (
        image.ensure(engine, name, say=say) for name in ("tools", "builder", "scorer")
    )
    return ScoringBench(
        engine=engine,
        tools=tools,
        builder=builder,
        scorer=scorer,
        owner=Owner(trial=trial, run="submission"),
        task=task,
        data=content_volume(engine, tools.id, "data", data.agent_files()),
        seed=seed,
        data_columns=header_of(data.excerpt.read_bytes()),
    )
