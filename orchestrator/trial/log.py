"""The trial's log: JSON lines into its record, short lines for people."""

import json
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TextIO

import structlog

from orchestrator.records.writing import writing

Say = Callable[[str], None]


class _JsonLines:
    """A structlog sink: one JSON line an event, flushed. Raises RecordUnwritable."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._file = file
        self._lock = threading.Lock()

    def msg(self, message: str) -> None:
        with self._lock, writing(self._path):
            self._file.write(message + "\n")
            self._file.flush()

    info = warning = error = msg


def _tell(say: Say) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    def processor(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if line := event.pop("people", None):
            say(line)
        return event

    return processor


class TrialLog:
    """`event(name, people=…, **fields)` writes a JSON line and, where given, tells people."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        self._log = structlog.wrap_logger(
            _JsonLines(path, self._file),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _tell(say),
                structlog.processors.JSONRenderer(serializer=json.dumps, default=str),
            ],
            wrapper_class=structlog.BoundLogger,
        )

    def event(self, name: str, people: str | None = None, **fields: object) -> None:
        self._log.info(name, people=people, **fields)

    def close(self) -> None:
        with writing(self._path):
            self._file.close()
