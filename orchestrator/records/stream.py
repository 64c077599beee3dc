"""The calls of a run on disk: segments of JSON lines, appended to, read line by line.

`calls.jsonl` is the open segment. A closed one is renamed to `calls-0001.jsonl` and then
replaced by `calls-0001.jsonl.gz`; a reader takes the compressed one where both are there. A
segment is closed when the run ends, when it has grown past `SEGMENT_BYTES`, and before a further
line where a crash left half of one: so half a line only ever stands at the end of a segment.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from pydantic import ValidationError

from orchestrator.errors import RecordUnreadable
from orchestrator.records.calls import CallRecord
from orchestrator.records.writing import writing

OPEN = "calls.jsonl"
SEGMENT_BYTES = 64 << 20
_CLOSED = re.compile(r"calls-(\d{4,})\.jsonl(\.gz)?")


class CallStream:
    """The calls in one folder. No more than one line of them is ever held in memory."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self.notes: list[str] = []
        """What reading passed over, a sentence each."""
        self._segment_bytes = segment_bytes

    @property
    def _open(self) -> Path:
        return self.folder / OPEN

    def append(self, calls: Iterable[CallRecord]) -> None:
        """Add calls at the end: flushed line by line, synced once all are there.

        Raises RecordUnwritable.
        """
        if _ends_in_half_a_line(self._open):
            self.close_segment()
        with writing(self._open):
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._open.open("a", encoding="ascii") as file:
                for call in calls:
                    file.write(json.dumps(call.model_dump()) + "\n")
                    file.flush()
                os.fsync(file.fileno())
        if self._open.stat().st_size > self._segment_bytes:
            self.close_segment()

    def close_segment(self) -> None:
        """Compress what is open. A crash at any moment loses nothing and doubles nothing.

        Raises RecordUnwritable.
        """
        with writing(self._open):
            if self._open.is_file():
                number = max(self._segments(), default=0) + 1
                self._open.rename(self.folder / f"calls-{number:04d}.jsonl")
            for path in self._segments().values():
                if path.suffix != ".gz":
                    _compress(path)

    def read(self) -> Iterator[CallRecord]:
        """Each call, in the order in which they were appended.

        Half a line at the end of a segment is passed over and noted. Raises RecordUnreadable for
        any other line that is no call.
        """
        for path in self.files():
            with _opened(path) as lines:
                for number, raw in enumerate(lines, 1):
                    call = self._parsed(path, number, raw)
                    if call is not None:
                        yield call

    def files(self) -> list[Path]:
        """The segments in order, the open one last."""
        segments = self._segments()
        closed = [segments[number] for number in sorted(segments)]
        return closed + ([self._open] if self._open.is_file() else [])

    def _segments(self) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for path in self.folder.glob("calls-*"):
            match = _CLOSED.fullmatch(path.name)
            if match and (match[2] or int(match[1]) not in found):
                found[int(match[1])] = path
        return found

    def _parsed(self, path: Path, number: int, raw: bytes) -> CallRecord | None:
        try:
            return CallRecord.model_validate(json.loads(raw))
        except ValidationError as exc:
            error = exc.errors()[0]
            where = ".".join(str(part) for part in error["loc"])
            raise RecordUnreadable(f"{path}, line {number}: {where}: {error['msg']}") from None
        except ValueError:
            if raw.endswith(b"\n"):
                raise RecordUnreadable(f"{path}, line {number}: not a JSON line") from None
        self.notes.append(
            f"{path}: its last line breaks off after {len(raw)} bytes and is passed over"
        )
        return None


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _ends_in_half_a_line(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _compress(path: Path) -> None:
    """Replace a file by its compressed form, which is whole before the plain one goes."""
    packed = path.with_name(f"{path.name}.gz")
    temporary = path.with_name(f".{packed.name}.{secrets.token_hex(4)}.tmp")
    try:
        with path.open("rb") as plain, temporary.open("wb") as file:
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as out:
                shutil.copyfileobj(plain, out, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(packed)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    path.unlink()
