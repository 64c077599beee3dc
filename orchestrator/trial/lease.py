"""Who is at work: one lock file a trial or scoring, held while its process lives."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from orchestrator.errors import UsageError
from orchestrator.records.locks import held
from orchestrator.records.writing import writing

FOLDER = ".leases"


class Lease:
    """Held from entering to leaving. The file survives kill -9 and is then seen as free."""

    def __init__(self, runs_dir: Path, name: str) -> None:
        self._path = runs_dir / FOLDER / name
        self._file: int | None = None

    def __enter__(self) -> Lease:
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(file, 20).decode(errors="replace") or "unknown"
            os.close(file)
            raise UsageError(
                f"{self._path.name} is being worked on by process {pid}; wait for it or stop it"
            ) from None
        self._file = file
        # For people only: the lock counts, also on a disk that is full.
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def living(runs_dir: Path) -> set[str]:
    """Names whose process holds its lease."""
    return {path.name for path in (runs_dir / FOLDER).glob("*") if held(path)}


def known(runs_dir: Path) -> set[str]:
    """Names that were begun under this folder, living or not."""
    leases = {path.name for path in (runs_dir / FOLDER).glob("*")}
    return leases | {path.parent.name for path in runs_dir.glob("*/trial.json")}
