"""Records on disk: written to a temporary name, fsynced, renamed; read with a clear sentence."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.errors import RecordNotFound, RecordUnreadable
from orchestrator.records.schema import SCHEMA_VERSION, RunRecord, RunSpec, TrialRecord
from orchestrator.records.stream import CallStream
from orchestrator.records.writing import writing

_Model = TypeVar("_Model", bound=BaseModel)
_SAFE_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` so that a crash at any moment leaves the old or the new file.

    Raises RecordUnwritable.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RecordNotFound(f"{path}: no such record") from None
    except OSError as exc:
        raise RecordUnreadable(f"{path}: can't be read: {exc.strerror}") from None
    except (ValueError, RecursionError) as exc:
        raise RecordUnreadable(
            f"{path}: not one JSON document ({exc}); move it aside to have it redone"
        ) from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordUnreadable(
            f"{path}: schema_version is {version!r}, this orch reads {SCHEMA_VERSION}"
        )
    try:
        return model.model_validate(_without_computed(raw))
    except ValidationError as exc:
        error = exc.errors()[0]
        where = ".".join(str(part) for part in error["loc"])
        raise RecordUnreadable(f"{path}: {where}: {error['msg']}") from None


def _without_computed(raw: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in raw.items() if key != "usage"}


class TrialStore:
    """The folder of one trial."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def trial_id(self) -> str:
        return self.folder.name

    @property
    def trial_file(self) -> Path:
        return self.folder / "trial.json"

    @property
    def log_file(self) -> Path:
        return self.folder / "log.jsonl"

    def save_trial(self, record: TrialRecord) -> None:
        write_atomic(self.trial_file, _dump(record))

    def load_trial(self) -> TrialRecord:
        return _read(self.trial_file, TrialRecord)

    def run_folder(self, run_id: str) -> Path:
        return self.folder / "runs" / run_id

    def save_run(self, record: RunRecord) -> None:
        write_atomic(self.run_folder(record.spec.run_id) / "run.json", _dump(record))

    def load_run(self, run_id: str) -> RunRecord:
        return _read(self.run_folder(run_id) / "run.json", RunRecord)

    def runs(self, plan: list[RunSpec]) -> Iterator[RunRecord]:
        """The record of each planned run, in plan order; one not begun comes as planned."""
        for spec in plan:
            try:
                yield self.load_run(spec.run_id)
            except RecordNotFound:
                yield RunRecord(spec=spec)

    def write_text(self, run_id: str, name: str, text: str) -> Path:
        """Keep a text (prompt, output) in the run's folder; `name` may contain one folder."""
        path = self.run_folder(run_id) / name
        write_atomic(path, text.encode("utf-8", "surrogateescape"))
        return path

    def calls(self, run_id: str) -> CallStream:
        """The run's model calls."""
        return CallStream(self.run_folder(run_id))


def _dump(record: BaseModel) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def new_trial_id(task: str, now: datetime | None = None) -> str:
    """Readable and unique: task, UTC time, four random hex digits."""
    moment = now or datetime.now(UTC)
    return f"{task}-{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def open_trial(runs_dir: Path, trial_id: str) -> TrialStore:
    """The store of an existing trial, found by its id, a unique prefix, a path, or `latest`.

    Raises RecordNotFound.
    """
    as_path = Path(trial_id)
    if as_path.is_dir() and (as_path / "trial.json").is_file():
        return TrialStore(as_path.resolve())
    known = list_trials(runs_dir)
    if trial_id == "latest" and known:
        return TrialStore(runs_dir / known[-1])
    hits = [name for name in known if name.startswith(trial_id)]
    if trial_id in known:
        hits = [trial_id]
    if not _SAFE_ID.match(trial_id) or not hits:
        recent = ", ".join(known[-3:]) or "none yet"
        raise RecordNotFound(f"no trial {trial_id!r} under {runs_dir}; the latest are: {recent}")
    if len(hits) > 1:
        raise RecordNotFound(f"{trial_id!r} fits {len(hits)} trials; give more of the name")
    return TrialStore(runs_dir / hits[0])


def find_run(runs_dir: Path, text: str) -> tuple[TrialStore, str]:
    """A planned run: TRIAL/RUN, a run's folder, or RUN alone, of the latest trial that has it.

    TRIAL may be shortened to its beginning, or `latest`; RUN to any part of it that fits one run
    only. Raises RecordNotFound, RecordUnreadable.
    """
    folder = Path(text)
    if (folder / "run.json").is_file():
        folder = folder.resolve()
        return TrialStore(folder.parents[1]), folder.name
    trial, slash, run = text.rpartition("/")
    if slash:
        return _run_of(open_trial(runs_dir, trial), run)
    for trial in reversed(list_trials(runs_dir)):
        store = TrialStore(runs_dir / trial)
        if _fitting(store, run):
            return _run_of(store, run)
    raise RecordNotFound(f"no trial under {runs_dir} has a run {run!r}; write TRIAL/RUN")


def _run_of(store: TrialStore, run: str) -> tuple[TrialStore, str]:
    fitting = _fitting(store, run)
    if len(fitting) != 1:
        runs = ", ".join(spec.run_id for spec in store.load_trial().plan)
        count = f"fits {len(fitting)} runs" if fitting else "is no run"
        raise RecordNotFound(f"{run!r} {count} of {store.trial_id}, which has: {runs}")
    return store, fitting[0]


def _fitting(store: TrialStore, run: str) -> list[str]:
    names = [spec.run_id for spec in store.load_trial().plan]
    return [run] if run in names else [name for name in names if run and run in name]


def list_trials(runs_dir: Path) -> list[str]:
    """Ids of all trials, oldest first (by the time their record was laid down)."""
    files = runs_dir.glob("*/trial.json")
    return [file.parent.name for file in sorted(files, key=lambda f: (f.stat().st_ctime, f))]
