"""One JSON line a call, appended and flushed; readable whatever happens to the process next."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .access import Access
from .causes import Failed


class Recorder:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lines = 0

    def write(self, access: Access, line: dict[str, Any]) -> None:
        """The line has the fields of a CallRecord. Raises Failed where it can't be kept, as on a
        full disk; no further line of that access is written then."""
        if not access.lost:
            # ASCII: an agent may send half a surrogate pair, which UTF-8 can't hold.
            data = json.dumps(line).encode("ascii") + b"\n"
            try:
                _append(self.folder / access.file, data)
            except OSError as exc:
                access.lost = f"a call can't be recorded: {exc.strerror}"
        if access.lost:
            raise Failed("unrecorded", access.lost)
        access.recorded += 1
        self.lines += 1


def _append(path: Path, data: bytes) -> None:
    """All of `data` or nothing of it."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        before = os.fstat(file).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            os.ftruncate(file, before)
            raise
    finally:
        os.close(file)
