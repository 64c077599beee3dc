"""Reading a submission's code in a child process with a time and a memory limit of its own.

What parsing takes can't be told from a file's length: of half a megabyte the interpreter's parser
makes many gigabytes where that is one dotted name. What is not read within the limits is left out.
Run as `python -m orchestrator.scoring.code` it takes jobs as JSON, each done in a fork (`worker`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple

from pydantic import BaseModel, ConfigDict

from orchestrator.scoring.imports import MAX_BYTES, MAX_FILE_BYTES, Import, imports
from orchestrator.scoring.listed import listed_in, mentioned_in
from orchestrator.scoring.worker import Worker, WorkerLost, serve

SECONDS = 20.0
MEMORY_BYTES = 1 << 30

_worker = Worker("orchestrator.scoring.code", seconds=SECONDS)


class _Job(BaseModel):
    """Files as path → content, a character for each byte. Without a column: what they import."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, str]
    entries: list[str] = []
    column: str | None = None


def get_ready() -> None:
    """Let the process start while something else is waited for."""
    _worker.start()


def imports_read(files: Mapping[str, bytes]) -> list[Import]:
    """As `imports`; none where reading the code was given up."""
    sent = _sent(files, ())
    if not sent:
        return []
    done = _asked(_Job(files=sent))
    return [Import(*each) for each in json.loads(done)] if done is not None else []


def listed_read(files: Mapping[str, bytes], entries: Sequence[str], column: str) -> str | None:
    """As `listed_in`; where reading the code was given up, any mention in the entries counts."""
    done = _asked(_Job(files=_sent(files, entries), entries=list(entries), column=column))
    if done is None:
        return mentioned_in(files, entries, column)
    found: str | None = json.loads(done)
    return found


def _sent(files: Mapping[str, bytes], first: Collection[str]) -> dict[str, str]:
    """The code that would be read at all, as JSON can hold it."""
    left = MAX_BYTES
    sent: dict[str, str] = {}
    for path in sorted(files, key=lambda path: (path not in first, path)):
        content = files[path]
        if path.endswith(".py") and len(content) <= min(left, MAX_FILE_BYTES):
            left -= len(content)
            sent[path] = content.decode("latin-1")
    return sent


def _asked(job: _Job) -> bytes | None:
    try:
        answer = _worker.ask(job.model_dump_json().encode())
    except WorkerLost:
        return None
    return answer.content if answer.status == 0 else None


def answer(content: bytes) -> bytes:
    """What a job asks for, as JSON."""
    job = _Job.model_validate_json(content)
    files = {path: text.encode("latin-1") for path, text in job.files.items()}
    found: object
    if job.column is None:
        found = [astuple(each) for each in imports(files)]
    else:
        found = listed_in(files, job.entries, job.column)
    return json.dumps(found).encode()


if __name__ == "__main__":
    serve(answer, seconds=SECONDS, memory_bytes=MEMORY_BYTES)
