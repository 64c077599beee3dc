"""What the system refuses while a record is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import RecordUnwritable


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses while `path` is written becomes RecordUnwritable."""
    try:
        yield
    except OSError as exc:
        raise RecordUnwritable(
            f"{path}: can't be written: {exc.strerror or exc}; free space, make it writable, or "
            "name another home folder (`home` in orch.toml, ORCH_HOME)"
        ) from exc
