"""One JSON line a call, appended and flushed; readable whatever happens to the process next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Recorder:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lines = 0

    def write(self, file: str, line: dict[str, Any]) -> None:
        """`file` is a name inside the folder; the line has the fields of a CallRecord."""
        # ASCII: an agent may send half a surrogate pair, which UTF-8 can't hold.
        with (self.folder / file).open("a", encoding="ascii") as out:
            out.write(json.dumps(line) + "\n")
        self.lines += 1
