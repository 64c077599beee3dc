"""Caches among the processes of one user: who builds, who uses, what goes when there is too much.

Lock files in the user's cache folder, held while a process lives: the kernel frees those of a
process that was killed. Processes with other cache folders can't be seen; what they use is never
taken away from here, since only what this folder knows of is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from orchestrator.errors import EngineRefused
from orchestrator.records.locks import held
from orchestrator.records.writing import writing
from orchestrator.sandbox import volume
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.volume import Volume

IN_USE = "in-use"
SUFFIX = ".used"

_held: dict[str, int] = {}
"""Volumes that this process uses → the open lock file."""


def folder() -> Path:
    found = Path(platformdirs.user_cache_dir("orch"), "volumes")
    with writing(found):
        found.mkdir(parents=True, exist_ok=True)
    return found


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One thread of one process at a time; the others wait. Raises RecordUnwritable."""
    file = _opened(f"{name}.lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def use(engine: Engine, used: Volume) -> bool:
    """Keep a volume from `trim` for as long as this process lives; False where it is gone."""
    path = folder() / f"{used.name}{SUFFIX}"
    with locked(IN_USE):
        if used.name not in _held:
            if not volume.exists(engine, used):
                return False
            file = _opened(path.name)
            fcntl.flock(file, fcntl.LOCK_SH)
            _held[used.name] = file
        os.utime(_held[used.name])
    return True


def trim(engine: Engine, role: str, cap_bytes: int) -> list[Volume]:
    """Remove the cache volumes of a role that were used longest ago, down to the cap.

    Those that a living process uses stay, and so do those that this user never used.
    """
    removed = []
    with locked(IN_USE):
        sizes = {v.name: size for v, size in volume.complete_ones(engine, role).items()}
        known = {path.name.removesuffix(SUFFIX): path for path in folder().glob(f"*{SUFFIX}")}
        last = {n: path.stat().st_mtime for n, path in known.items() if n in sizes}
        for name in too_much(sizes, last, cap_bytes):
            # Nobody begins to use it meanwhile: `use` waits for the lock that is held here.
            if not held(known[name]) and _removed(engine, Volume(name)):
                known[name].unlink()
                removed.append(Volume(name))
    return removed


def too_much(sizes: Mapping[str, int], last: Mapping[str, float], cap: int) -> Sequence[str]:
    """Which would have to go, the one used longest ago first, for the rest of `last` to fit."""
    newest_first = sorted(last, key=lambda name: (-last[name], name))
    total, kept = 0, 0
    for name in newest_first:
        total += sizes[name]
        if total > cap:
            break
        kept += 1
    return newest_first[kept:][::-1]


def _removed(engine: Engine, gone: Volume) -> bool:
    try:
        volume.remove(engine, gone)
    except EngineRefused:
        # A container of somebody whom we don't see mounts it.
        return False
    return True


def _opened(name: str) -> int:
    path = folder() / name
    with writing(path):
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
