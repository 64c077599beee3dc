"""A task's data: generated once per seed and scale, outside what an agent sees, and verified."""

import hashlib
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import DataInvalid
from orchestrator.records.schema import DataRecord
from orchestrator.records.store import write_atomic
from orchestrator.scoring.score import Holdout
from orchestrator.stops import HeldStops
from orchestrator.task import TASK_FILE, Task

MANIFEST = "data.json"
GENERATOR_SECONDS = 900
MAKING = ".making-"


@dataclass(frozen=True)
class DataSet:
    """Generated data of one seed and scale.

    `agent/` is what code of a submission may read, `holdout/` the inputs it is scored on, `key/`
    the true labels, which never enter a container.
    """

    folder: Path
    record: DataRecord

    @property
    def agent(self) -> Path:
        return self.folder / "agent"

    @property
    def holdout(self) -> Holdout:
        return Holdout(
            features=self.folder / "holdout" / "features.csv",
            key=self.folder / "key" / "labels.csv",
        )

    @property
    def excerpt(self) -> Path:
        return self.folder / "agent" / "excerpt.csv"

    def size_bytes(self) -> int:
        return sum((self.folder / name).stat().st_size for name in self.record.files)

    def agent_files(self) -> dict[str, bytes | Path]:
        """What is mounted where a submission trains: name there → file here."""
        return {path.name: path for path in sorted(self.agent.iterdir()) if path.is_file()}


def data_folder(holdout_dir: Path, task: Task, seed: int, scale: float) -> Path:
    return holdout_dir / task.name / f"seed-{seed}-scale-{scale:g}"


def ensure_data(
    holdout_dir: Path,
    task: Task,
    scale: float = 1.0,
    seed: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> DataSet:
    """The data of a task, generated where missing or made by an earlier generator, and verified.

    Raises DataInvalid when the generator fails, or when files differ from what was recorded or
    from what the task pins for its default seed.
    """
    seed = task.data.seed if seed is None else seed
    folder = data_folder(holdout_dir, task, seed, scale)
    if not (folder / MANIFEST).is_file():
        say(f"generating the data of {task.name} (seed {seed}, scale {scale:g})")
        _generate(task, seed, scale, folder)
    elif _manifest(folder).generator_sha256 != generator_sha256(task):
        say(f"the generator of {task.name} changed: making its data again")
        _generate(task, seed, scale, folder)
    record = _manifest(folder)
    _verify(folder, record)
    _compare_with_pins(task, record, folder)
    return DataSet(folder, record)


def generator_sha256(task: Task) -> str:
    """Over name and content of the files in the generator's folder, but what people read."""
    digest = hashlib.sha256()
    for path in sorted((task.folder / task.data.generator).parent.iterdir()):
        if path.is_file() and path.name != TASK_FILE and path.suffix != ".md":
            digest.update(f"{path.name}\0{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _generate(task: Task, seed: int, scale: float, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    making = folder.parent / f"{MAKING}{secrets.token_hex(8)}"
    with HeldStops() as stops:
        making.mkdir(mode=0o700)
        try:
            _make(task, seed, scale, making / "data", stops)
            shutil.rmtree(folder, ignore_errors=True)
            (making / "data").rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def _make(task: Task, seed: int, scale: float, out: Path, stops: HeldStops) -> None:
    generator = task.folder / task.data.generator
    command = [
        sys.executable,
        str(generator),
        *("--out", str(out), "--seed", str(seed), "--scale", f"{scale:g}"),
    ]
    try:
        done = _run_to_end(command, stops)
    except subprocess.TimeoutExpired:
        raise DataInvalid(
            f"{generator}: not done after {GENERATOR_SECONDS} s; "
            "make it faster or the scale smaller"
        ) from None
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no output"]
        raise DataInvalid(f"{generator}: exit {done.returncode}: {last[0]}")
    for wanted in ("agent/excerpt.csv", "holdout/features.csv", "key/labels.csv"):
        if not (out / wanted).is_file():
            raise DataInvalid(f"{generator}: wrote no {wanted}; it must")
    files = {
        path.relative_to(out).as_posix(): _sha256(path)
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
    record = DataRecord(
        seed=seed, scale=scale, generator_sha256=generator_sha256(task), files=files
    )
    write_atomic(out / MANIFEST, record.model_dump_json(indent=1).encode())


def _remove_abandoned(parent: Path) -> None:
    """What a process that was killed left half made; no generator lives that long."""
    for path in parent.glob(f"{MAKING}*"):
        try:
            old = time.time() - path.stat().st_mtime > 2 * GENERATOR_SECONDS
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(path, ignore_errors=True)


def _run_to_end(command: list[str], stops: HeldStops) -> subprocess.CompletedProcess[bytes]:
    """Raises TimeoutExpired; a stop kills the process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        stops.on_stop = process.kill
        try:
            if stops.stopped:
                process.kill()
            stdout, stderr = process.communicate(timeout=GENERATOR_SECONDS)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _manifest(folder: Path) -> DataRecord:
    try:
        return DataRecord.model_validate(json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, ValueError):
        raise DataInvalid(
            f"{folder / MANIFEST}: can't be read; delete {folder} to have it made again"
        ) from None


def _verify(folder: Path, record: DataRecord) -> None:
    for name, expected in record.files.items():
        path = folder / name
        if not path.is_file() or _sha256(path) != expected:
            raise DataInvalid(
                f"{path}: missing or changed since it was made; "
                f"delete {folder} to have it made again"
            )


def _compare_with_pins(task: Task, record: DataRecord, folder: Path) -> None:
    pins = task.data.sha256.get(f"{record.scale:g}", {})
    if record.seed != task.data.seed:
        return
    for name, expected in pins.items():
        if record.files.get(name) != expected:
            raise DataInvalid(
                f"{folder / name}: sha256 is {record.files.get(name)}, task.toml pins {expected}; "
                "a changed generator needs new pins and a calibration"
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
