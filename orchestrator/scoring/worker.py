"""A process that has imported what a kind of job needs, and forks for each job.

What a job does to its process ends with it, and none pays for the imports but the first.
"""

from __future__ import annotations

import atexit
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_FRAME = struct.Struct(">iI")
"""Before each message: a status (0 where it has no meaning), and the message's bytes."""
_SPARE_S = 60.0
"""For a worker to tell that a job was stopped, and to import what it needs before its first."""
_TOLD_BYTES = 2000


class WorkerLost(Exception):
    """The process ended, or did not answer in time; the text says which."""


@dataclass(frozen=True)
class Answer:
    """`status` 0: `content` is what the job gave; else its traceback, -N for a signal."""

    status: int
    content: bytes


class Worker:
    """Our side of one such process: a module that calls `serve`. Thread-safe, one job at a time."""

    def __init__(self, module: str, *, seconds: float) -> None:
        self._module = module
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._lock = threading.Lock()
        atexit.register(self.stop)

    def start(self) -> None:
        """Let it begin with its imports; returns at once."""
        with self._lock:
            self._started()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:
                """Its pipes are closed, and it is waited for."""
        if self._said is not None:
            self._said.close()

    def ask(self, job: bytes) -> Answer:
        """Raises WorkerLost."""
        with self._lock:
            process = self._started()
            try:
                return self._asked(process, job)
            except BaseException:
                # Whoever stopped waiting must not leave an answer for the next.
                self.stop()
                raise

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open while the process lives
            # One thread: each of a linear algebra library's reserves memory, which is limited, and
            # a process with threads should not fork.
            single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                cwd=Path(__file__).resolve().parents[2],
                env=os.environ | single,
                # A terminal's signals are for us: it ends when its input does.
                start_new_session=True,
            )
        return self._process

    def _asked(self, process: subprocess.Popen[bytes], job: bytes) -> Answer:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(_FRAME.pack(0, len(job)) + job)
            process.stdin.flush()
        until = time.monotonic() + self._seconds + _SPARE_S
        status, length = _FRAME.unpack(self._read(process, _FRAME.size, until))
        return Answer(status, self._read(process, length, until))

    def _read(self, process: subprocess.Popen[bytes], length: int, until: float) -> bytes:
        assert process.stdout is not None
        content = b""
        while len(content) < length:
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise WorkerLost(f"no answer within {self._seconds + _SPARE_S:.0f} s")
            piece = os.read(process.stdout.fileno(), length - len(content))
            if not piece:
                raise WorkerLost(f"it ended with status {process.wait()}: {self._last_words()}")
            content += piece
        return content

    def _last_words(self) -> str:
        assert self._said is not None
        self._said.seek(0)
        lines = self._said.read()[-_TOLD_BYTES:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "no output"


def serve(handle: Callable[[bytes], bytes], *, seconds: float, memory_bytes: int) -> None:
    """Do jobs from stdin, each in a fork with these limits, until there are no more."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(_FRAME.size)) == _FRAME.size:
        job = source.read(_FRAME.unpack(head)[1])
        status, content = _in_fork(handle, job, seconds, memory_bytes)
        target.write(_FRAME.pack(status, len(content)) + content)
        target.flush()


def _in_fork(
    handle: Callable[[bytes], bytes], job: bytes, seconds: float, memory_bytes: int
) -> tuple[int, bytes]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            _limit(seconds, memory_bytes)
            content = handle(job)
            status = 0
        except BaseException:  # noqa: BLE001 - it is told to whoever asked
            content = traceback.format_exc().encode()
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            pipe.write(content)
        # Nothing of the worker's own is cleared away by a fork of it.
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), content


def _limit(seconds: float, memory_bytes: int) -> None:
    # macOS knows the limit and refuses to set it; there the time limit is what is left.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
