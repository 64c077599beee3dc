"""Run a command under a cap on what it writes, then keep a cache of wheels within its own.

Runs as `python3 -I -S -c TEXT PLAN`; stdin is the command's. PLAN is JSON: `command`; `places`,
folders whose new content counts together; `cap`, bytes; `cache`, uv's folder; `cache_cap`, bytes;
`packages`, whose wheels the command uses. Ends with the command's status, or with FULL after
ending it, when what it brought into the cache is taken out again. Nobody else may install
meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FULL = 93
LOOK_S = 0.25
LEFT_S = 3600
LEFT_BYTES = 16 << 20
USED = "orch-used"
"""In the cache: a file a package, whose time is when it was last wanted."""


def entries(folder: str) -> Iterator[os.stat_result]:
    todo = [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    yield entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            # Moved to its place meanwhile.
            continue


def now(folder: str) -> float:
    """By the clock of the files, which is coarser than the system's."""
    mark = Path(folder, ".orch-began")
    mark.touch()
    began = mark.stat().st_ctime
    mark.unlink()
    return began


def size(folder: str, since: float = 0.0) -> int:
    """Bytes on disk of what was made in `folder` since then; a file of several names once."""
    found = {
        (s.st_dev, s.st_ino): s.st_blocks * 512 for s in entries(folder) if s.st_ctime >= since
    }
    return sum(found.values())


def free(folder: str) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def over(places: list[str], began: float, cap: int) -> bool:
    return sum(size(place, began) for place in places) > cap


def run(command: list[str], places: list[str], cap: int) -> int:
    began, at_first = now(places[0]), free(places[0])
    child = subprocess.Popen(command, start_new_session=True)
    while True:
        try:
            status = child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            # A close look takes long: only where the disk as a whole is fuller by that much.
            if at_first - free(places[0]) > cap and over(places, began, cap):
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return FULL
        else:
            return FULL if over(places, began, cap) else status


def clean(cache: str, packages: list[str]) -> None:
    for left in Path(cache).glob(".tmp*"):
        # What is small and new may be in use: others resolve meanwhile.
        with suppress(FileNotFoundError):
            old = left.stat().st_ctime < time.time() - LEFT_S
            if old or size(str(left)) > LEFT_BYTES:
                shutil.rmtree(left, ignore_errors=True)
    if packages:
        subprocess.run(["uv", "cache", "clean", "--quiet", *packages], check=False)
    for package in packages:
        Path(cache, USED, package).unlink(missing_ok=True)


def keep_within(cache: str, cap: int, packages: list[str]) -> None:
    """Those used longest ago go, a quarter of the known at a time; those just used stay."""
    used = Path(cache, USED)
    used.mkdir(exist_ok=True)
    for package in packages:
        (used / package).touch()
    old = sorted(used.iterdir(), key=lambda path: path.stat().st_mtime)
    names = [path.name for path in old if path.name not in packages]
    share = max(1, len(names) // 4)
    while names and size(cache) > cap:
        clean(cache, names[:share])
        del names[:share]


def main() -> int:
    plan = json.loads(sys.argv[1])
    status = run(plan["command"], plan["places"], plan["cap"])
    if status == FULL:
        clean(plan["cache"], plan["packages"])
    elif status == 0:
        keep_within(plan["cache"], plan["cache_cap"], plan["packages"])
    return status


if __name__ == "__main__":
    sys.exit(main())
