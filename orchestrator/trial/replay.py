"""`orch replay`: a recorded run once more, and whether it came out the same."""

from __future__ import annotations

from dataclasses import fields, replace

from pydantic import BaseModel

from orchestrator.config import Settings
from orchestrator.records.failures import Attribution
from orchestrator.records.schema import (
    AgentStage,
    ExecuteStage,
    Failure,
    RunRecord,
    TrialSettings,
)
from orchestrator.records.store import TrialStore
from orchestrator.trial.engine import TrialOptions, run_trial
from orchestrator.trial.log import Say
from orchestrator.trial.recording import find_recording

NONE = "none"


class Row(BaseModel):
    """One thing that must come out the same."""

    what: str
    original: str
    replay: str

    @property
    def same(self) -> bool:
        return self.original == self.replay


class Comparison(BaseModel):
    original: str
    """TRIAL/RUN."""
    replay: str
    rows: list[Row]
    failure: Failure | None
    """What ended the replay, where the harness did."""
    notes: list[str] = []

    @property
    def same(self) -> bool:
        return all(row.same for row in self.rows)

    def json_ready(self) -> dict[str, object]:
        rows = [row.model_dump() | {"same": row.same} for row in self.rows]
        return self.model_dump(mode="json") | {"same": self.same, "rows": rows}

    def lines(self) -> list[str]:
        lines = [f"original  {self.original}", f"replay    {self.replay}"]
        for row in self.rows:
            verdict = "same" if row.same else "DIFFERENT"
            both = row.original if row.same else f"{row.original} | {row.replay}"
            lines.append(f"  {row.what:22} {verdict:9}  {both}")
        if self.failure is not None:
            lines.append(f"{self.failure.failure_class}: {self.failure.sentence}")
            lines += [item.excerpt for item in self.failure.evidence]
        return lines + [f"note: {note}" for note in self.notes]


def replay_run(settings: Settings, text: str, *, allow_drift: bool, say: Say) -> Comparison:
    """Do the run that `text` names again, in a trial of its own, and compare.

    Raises RecordNotFound, ReplayRefused, and what a trial raises.
    """
    recording = find_recording(settings.runs_dir, text)
    options = TrialOptions(
        task=recording.trial.task,
        models=[recording.reference],
        runs=1,
        allow_drift=allow_drift,
        recordings={recording.reference: recording},
    )
    recorded = recording.trial.settings
    shared = {one.name for one in fields(options)} & TrialSettings.model_fields.keys()
    options = replace(options, **{name: getattr(recorded, name) for name in shared - {"runs"}})
    summary = run_trial(settings, options, say)
    store = TrialStore(settings.runs_dir / summary.trial_id)
    trial = store.load_trial()
    again = store.load_run(trial.plan[0].run_id)
    notes = [note for model in trial.models for note in model.notes[1:]]
    return Comparison(
        original=recording.name,
        replay=f"{store.trial_id}/{again.spec.run_id}",
        rows=compare(recording.run, again),
        failure=again.failure if again.failure and not again.failure.valid else None,
        notes=notes + broke_off(recording.run) + printed_otherwise(recording.run, again),
    )


def compare(original: RunRecord, replay: RunRecord) -> list[Row]:
    """What must be the same of both. Pure."""
    rows = [Row(what="model calls", original=_calls(original), replay=_calls(replay))]
    trees, again = _trees(original), _trees(replay)
    rows += [
        Row(what=f"snapshot {name}", original=trees.get(name, NONE), replay=again.get(name, NONE))
        for name in dict.fromkeys([*trees, *again])
    ]
    return rows + [
        Row(what=what, original=of(original), replay=of(replay))
        for what, of in (
            ("environment locks", _locks),
            ("predictions sha256", _predictions),
            ("score", _score),
            # Records of old, and of runs that ended early, have no scores of repair turns.
            *([("repair turns", _repairs)] if _priced(original) else []),
            ("failure", _failure),
        )
    ]


def broke_off(original: RunRecord) -> list[str]:
    """Where the harness had ended the run: a replay may get further than its record."""
    failure = original.failure
    if failure is None or failure.attribution is not Attribution.HARNESS:
        return []
    return [f"the recorded run was ended by {failure.failure_class}; its record stops there"]


def printed_otherwise(original: RunRecord, replay: RunRecord) -> list[str]:
    """Steps whose output is not the recorded one: no fault of a replay, but good to know."""
    was, now = _printed(original), _printed(replay)
    return [
        f"{name} printed something else; the prompts have what it printed when it was recorded"
        for name in was
        if name in now and was[name] != now[name]
    ]


def _calls(run: RunRecord) -> str:
    return str(run.usage.calls)


def _trees(run: RunRecord) -> dict[str, str]:
    return {
        _stage(stage.name, stage.turn): stage.tree
        for stage in run.stages
        if isinstance(stage, AgentStage)
    }


def _stage(name: str, turn: int) -> str:
    return f"{name} turn {turn}" if turn else name


def _locks(run: RunRecord) -> str:
    environments = [stage.environment for stage in run.stages if isinstance(stage, ExecuteStage)]
    environments.append(run.score.environment if run.score else None)
    return ", ".join(dict.fromkeys(one.lock_sha256 for one in environments if one)) or NONE


def _predictions(run: RunRecord) -> str:
    return (run.score and run.score.predictions_sha256) or NONE


def _score(run: RunRecord) -> str:
    return str(run.score.score) if run.score else NONE


def _priced(run: RunRecord) -> bool:
    return bool(run.repairs) and all(one.before and one.after for one in run.repairs)


def _repairs(run: RunRecord) -> str:
    worths = (worth for one in run.repairs for worth in (one.before, one.after))
    return ", ".join(
        f"{worth.score:.6f} ({worth.failure or worth.predictions_sha256})" if worth else NONE
        for worth in worths
    )


def _failure(run: RunRecord) -> str:
    return str(run.failure.failure_class) if run.failure else NONE


def _printed(run: RunRecord) -> dict[str, tuple[str, str]]:
    return {
        f"{_stage(stage.name, stage.turn)}, step {step.name},": (step.stdout.text, step.stderr.text)
        for stage in run.stages
        if isinstance(stage, ExecuteStage)
        for step in stage.steps
    }
