"""Finished runs as they are replayed: finding one, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import ReplayRefused
from orchestrator.models.reference import ModelReference
from orchestrator.records.schema import (
    AgentStage,
    DataRecord,
    ExecuteStage,
    Failure,
    ImageRecord,
    ModelRecord,
    PromptPlan,
    RunRecord,
    RunStatus,
    TrialRecord,
    TrialSettings,
)
from orchestrator.records.store import TrialStore, find_run
from orchestrator.trial.wallet import AGENT_TIME

PREFIX = "replay/"
OWN_SETTINGS = frozenset({"runs", "seed"})
"""Settings of a trial that don't matter to a replay; it keeps the run's own seed."""


@dataclass(frozen=True)
class Recording:
    """A run that is done again with the replies that it was given."""

    store: TrialStore
    trial: TrialRecord
    run: RunRecord

    @property
    def name(self) -> str:
        return f"{self.store.trial_id}/{self.run.spec.run_id}"

    @property
    def reference(self) -> str:
        """The model reference of its replay."""
        return PREFIX + self.name

    @property
    def model(self) -> ModelRecord:
        """The model whose replies they are."""
        return next(one for one in self.trial.models if one.reference == self.run.spec.model)

    def executed(self, stage: str, turn: int) -> ExecuteStage | None:
        """What came out of an execute stage then, None where the run did not get there."""
        for done in self.run.stages:
            if isinstance(done, ExecuteStage) and (done.name, done.turn) == (stage, turn):
                return done
        return None

    def prompt_plan(self, stage: str, turn: int) -> PromptPlan | None:
        """How the stage's prompt was fitted into the context then."""
        for done in self.run.stages:
            if isinstance(done, AgentStage) and (done.name, done.turn) == (stage, turn):
                return done.prompt
        return None

    def not_asked(self, stage: str, turn: int) -> Failure | None:
        """Why the agent was not asked for a stage then, where its time was used up: that is not
        measured again."""
        for done in self.run.stages:
            if isinstance(done, AgentStage) and (done.name, done.turn) == (stage, turn):
                failure = done.failure
                return failure if failure is not None and failure.reason == AGENT_TIME else None
        return None

    def answering(self, reference: ModelReference) -> ModelReference:
        """`reference`, asked for by the name that the recorded requests have."""
        return replace(reference, name=self.model.name)


def find_recording(runs_dir: Path, text: str) -> Recording:
    """The run that `find_run` finds, with or without `replay/` before it.

    Raises RecordNotFound; ReplayRefused for a run that did not come to its end.
    """
    store, run_id = find_run(runs_dir, text.removeprefix(PREFIX))
    trial, record = store.load_trial(), store.load_run(run_id)
    if record.status is not RunStatus.FINISHED:
        raise ReplayRefused(
            f"{store.trial_id}/{run_id} is {record.status}; only a run that came to its end "
            "can be replayed"
        )
    return Recording(store, trial, record)


@dataclass(frozen=True)
class Now:
    """What a replay would be made with."""

    task_sha256: str
    data: DataRecord
    images: Iterable[ImageRecord] = ()


def drift(recording: Recording, now: Now) -> list[str]:
    """What differs from the recording, a few words each. Pure."""
    was = recording.trial
    found = []
    if was.task_sha256 != now.task_sha256:
        found.append(f"task {was.task}")
    if was.data.seed != now.data.seed:
        found.append(f"data seed ({was.data.seed} recorded, {now.data.seed} now)")
    names = sorted(was.data.files.keys() | now.data.files.keys())
    found += [
        f"data {name}" for name in names if was.data.files.get(name) != now.data.files.get(name)
    ]
    ids = {image.name: image.id for image in was.images}
    found += [f"image {image.name}" for image in now.images if ids.get(image.name) != image.id]
    return found


def refuse_settings(recording: Recording, chosen: TrialSettings) -> None:
    """Raises ReplayRefused where the trial's settings are not the recorded ones."""
    was = recording.trial.settings
    differing = [
        f"{name} is {getattr(was, name)} in the recording and {getattr(chosen, name)} here"
        for name in TrialSettings.model_fields.keys() - OWN_SETTINGS
        if getattr(was, name) != getattr(chosen, name)
    ]
    if differing:
        differing.sort()
        raise ReplayRefused(
            f"{recording.reference} can't be part of this trial: {'; '.join(differing)}"
        )


Recordings = Mapping[str, Recording]
"""By the model reference of the replay."""


@dataclass(frozen=True)
class Replays:
    """The replays of a trial."""

    recordings: Recordings
    allow_drift: bool

    def check(self, now: Now) -> list[ModelRecord]:
        """What the trial keeps of each. Raises ReplayRefused for drift that is not allowed."""
        return [self._model(one, drift(one, now)) for one in self.recordings.values()]

    def _model(self, recording: Recording, found: list[str]) -> ModelRecord:
        if found and not self.allow_drift:
            raise ReplayRefused(
                f"{recording.name} was recorded with another {', another '.join(found)}; "
                "`orch replay --allow-drift` replays it all the same"
            )
        notes = [f"replays {recording.name}, a run of {recording.run.spec.model}"]
        if found:
            notes.append(f"drift allowed: {', '.join(found)}")
        return ModelRecord(
            reference=recording.reference,
            upstream="replay",
            name=recording.model.name,
            server=recording.model.server,
            price=recording.model.price,
            notes=notes,
        )
