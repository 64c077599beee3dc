"""One command in a running container: its streams, its deadline, and why it ended."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import OrchError
from orchestrator.records.schema import Captured, Ending
from orchestrator.sandbox.engine import Engine, translated

STDOUT, STDERR = 1, 2
CHUNK = 1 << 16
POLL_S = (0.01, 0.25)
"""First and longest wait between two looks at a command that still runs."""
STRAGGLERS_S = 2.0
"""How long output is still read after the command itself has ended."""
READER_USER = "10002:10002"
"""Reads the counters: not the program's user, so the program can't signal it."""
COUNTERS = (
    "/bin/cat",
    "/sys/fs/cgroup/memory/memory.oom_control",
    "/sys/fs/cgroup/memory/memory.max_usage_in_bytes",
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory.peak",
)
"""cgroup v1 and v2 alike: the files that don't exist cost a line on stderr."""
COUNTERS_TIMEOUT_S = 10.0

Sink = Callable[[bytes], object]


@dataclass(frozen=True)
class Ended:
    """How a command ended. `peak_memory_bytes` is of the container's life so far.

    `peak_memory_bytes` and `oom_kills` (by the kernel, during this command) are None where the
    container was gone before they could be read. `raw_stdout` holds the kept bytes of stdout:
    all of them, exactly, if `stdout.dropped_bytes` is 0.
    """

    ending: Ending
    exit_code: int | None
    duration_s: float
    peak_memory_bytes: int | None
    oom_kills: int | None
    stdout: Captured
    stderr: Captured
    raw_stdout: bytes

    @property
    def succeeded(self) -> bool:
        """It came to its own end, with status 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0


@dataclass(frozen=True)
class Command:
    """What to run in a container. `sink` is given each chunk of stdout as it comes."""

    argv: Sequence[str]
    timeout_s: float
    log_kb: int
    user: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    workdir: str | None = None
    sink: Sink | None = None


class Capture:
    """Head and tail of a stream of any length, in memory of a fixed size."""

    def __init__(self, keep_bytes: int) -> None:
        self._half = max(1, keep_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def write(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def raw(self) -> bytes:
        return bytes(self._head + self._tail[-self._half :])

    def captured(self) -> Captured:
        """As text. A character that the cut split counts as dropped."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self.total:
            text = (head + tail).decode("utf-8", "replace")
            return Captured(text=text, total_bytes=self.total)
        head, tail = whole_characters(head), tail[leading_rest(tail) :]
        dropped = self.total - len(head) - len(tail)
        text = "\n".join(
            (
                head.decode("utf-8", "replace"),
                f"[... {dropped} bytes left out ...]",
                tail.decode("utf-8", "replace"),
            )
        )
        return Captured(text=text, total_bytes=self.total, dropped_bytes=dropped)


def whole_characters(data: bytes) -> bytes:
    """Without a UTF-8 character that only began at the end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if need > back else data
    return data


def leading_rest(data: bytes) -> int:
    """How many bytes at the start belong to a UTF-8 character begun before."""
    rest = 0
    while rest < min(3, len(data)) and data[rest] & 0xC0 == 0x80:
        rest += 1
    return rest


class Demux:
    """The engine's frames (1 byte stream, 3 zero, 4 length, payload) out of any chunks."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    @property
    def amid(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._left or self._header)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at < len(data):
            if self._left:
                payload = data[at : at + self._left]
                at += len(payload)
                self._left -= len(payload)
                yield self._stream, payload
                continue
            missing = 8 - len(self._header)
            self._header += data[at : at + missing]
            at += missing
            if len(self._header) == 8:
                self._stream = self._header[0]
                self._left = int.from_bytes(self._header[4:], "big")
                self._header.clear()


class Streams:
    """Both ends of an attached command: always drained, so that the engine never stalls."""

    def __init__(self, engine: Engine, exec_id: str, command: Command) -> None:
        keep = command.log_kb * 1024
        self.captures = {STDOUT: Capture(keep), STDERR: Capture(keep)}
        self.sink_error: BaseException | None = None
        self.ended = threading.Event()
        self.broken = False
        """Whether the stream ended otherwise than by its end."""
        self._closing = False
        self._sink = command.sink
        with translated("start a command"):
            self._response, self._reader, self._socket = _attach(engine, exec_id)
        threading.Thread(target=self._drain, daemon=True, name="orch-drain").start()
        if command.stdin is not None:
            threading.Thread(
                target=self._send, args=(command.stdin,), daemon=True, name="orch-stdin"
            ).start()

    def _drain(self) -> None:
        demux = Demux()
        try:
            while data := self._reader.read1(CHUNK):
                for stream, payload in demux.feed(data):
                    if stream in self.captures:
                        self.captures[stream].write(payload)
                    if stream == STDOUT:
                        self._pour(payload)
            self.broken = demux.amid and not self._closing
        except (OSError, ValueError):
            self.broken = not self._closing
        finally:
            self.ended.set()

    def _pour(self, payload: bytes) -> None:
        if self._sink is None or self.sink_error is not None:
            return
        try:
            self._sink(payload)
        except Exception as error:  # noqa: BLE001 - the caller's own, raised again in its thread
            self.sink_error = error

    def _send(self, data: bytes) -> None:
        # A program that never reads its input may be gone before all of it is sent.
        with contextlib.suppress(OSError):
            self._socket.sendall(data)
            self._socket.shutdown(socket.SHUT_WR)

    def settle(self) -> None:
        """Take in what is still under way after the end; a child may hold the stream open."""
        until = time.monotonic() + STRAGGLERS_S
        seen = -1
        while not self.ended.wait(0.1) and time.monotonic() < until:
            total = sum(capture.total for capture in self.captures.values())
            if total == seen:
                return
            seen = total

    def close(self) -> None:
        """End the stream. Must come before a kill: the engine waits for a stalled reader."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.ended.wait(STRAGGLERS_S)
        self._response.close()


def _attach(engine: Engine, exec_id: str) -> tuple[Any, Any, socket.socket]:
    """Start the command and take over the connection: response, buffered reader, socket.

    Not the library's own `exec_start`: that reads below the buffer which the response's header
    was read through, and loses what arrived together with it.
    """
    api: Any = engine.api
    response = api._post_json(
        api._url("/exec/{0}/start", exec_id),
        headers={"Connection": "Upgrade", "Upgrade": "tcp"},
        data={"Tty": False, "Detach": False},
        stream=True,
    )
    api._raise_for_status(response)
    reader = response.raw._fp.fp
    connection: socket.socket = reader.raw._sock
    connection.settimeout(None)
    return response, reader, connection


@dataclass(frozen=True)
class Outcome:
    """The command itself: its code (None: past its deadline), and when it was seen ended."""

    exit_code: int | None
    timed_out: bool
    duration_s: float


def create(engine: Engine, container: str, command: Command) -> str:
    with translated("prepare a command"):
        created = engine.api.exec_create(
            container,
            list(command.argv),
            stdin=command.stdin is not None,
            user=command.user,
            environment=dict(command.env),
            workdir=command.workdir,
        )
    return str(created["Id"])


def follow(engine: Engine, exec_id: str, streams: Streams, timeout_s: float) -> Outcome:
    """Wait for the command's own end, not for that of its output: a child may hold that."""
    start = time.monotonic()
    pause, longest = POLL_S
    while True:
        left = timeout_s - (time.monotonic() - start)
        if left <= 0:
            return Outcome(None, True, time.monotonic() - start)
        if streams.ended.is_set():
            time.sleep(min(pause, left))
        elif streams.ended.wait(min(pause, left)):
            # Most often the command ends with its output, and the engine knows it in a moment.
            pause = POLL_S[0]
        pause = min(pause * 1.5, longest)
        # The engine may answer late (it waits for output that a child holds): the command ended
        # before it was asked.
        asked = time.monotonic()
        with translated("look at a command"):
            state = engine.api.exec_inspect(exec_id)
        if not state["Running"]:
            return Outcome(state["ExitCode"], False, asked - start)


@dataclass(frozen=True)
class Counters:
    """The kernel's own figures of a container."""

    oom_kills: int | None = None
    peak_bytes: int | None = None


def parse_counters(text: str) -> Counters:
    """Out of the files of `COUNTERS`: `oom_kill N` and a number alone on its line."""
    oom_kills = peak = None
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "oom_kill" and words[1].isdigit():
            oom_kills = int(words[1])
        elif len(words) == 1 and words[0].isdigit():
            peak = int(words[0])
    return Counters(oom_kills, peak)


def read_counters(engine: Engine, container: str) -> Counters:
    """By a command of their own that forks nothing; empty where that is not possible."""
    command = Command(COUNTERS, COUNTERS_TIMEOUT_S, log_kb=8, user=READER_USER)
    try:
        exec_id = create(engine, container, command)
        streams = Streams(engine, exec_id, command)
        try:
            # Nothing else holds its output: it ends with the command.
            streams.ended.wait(command.timeout_s)
        finally:
            streams.close()
    except OrchError:
        # The engine refuses a command in a container that is just ending.
        return Counters()
    return parse_counters(streams.captures[STDOUT].raw().decode("ascii", "replace"))


@dataclass(frozen=True)
class Usage:
    """What a container has in use just now, its caches too; nothing when it does not run."""

    memory_bytes: int
    pids: int


def usage(engine: Engine, container: str) -> Usage:
    with translated("measure a container"):
        stats = engine.api.stats(container, stream=False, one_shot=True)
    return Usage(stats["memory_stats"].get("usage", 0), stats["pids_stats"].get("current", 0))


def set_limits(engine: Engine, container: str, memory_bytes: int | None, pids: int | None) -> None:
    """Change a container's memory (without swap) and processes; None leaves as it is."""
    changes: dict[str, int] = {}
    if memory_bytes is not None:
        changes |= {"Memory": memory_bytes, "MemorySwap": memory_bytes}
    if pids is not None:
        changes["PidsLimit"] = pids
    api: Any = engine.api
    with translated("change a container's limits"):
        url = api._url("/containers/{0}/update", container)
        api._raise_for_status(api._post_json(url, data=changes))


def judge(
    outcome: Outcome, *, oom_kills: int | None, oom_flag: bool, running: bool
) -> Ending | None:
    """Why a command ended; None when its container was lost without our doing.

    Our own deadline comes first, then the kernel's counter, then the engine's flag (which is
    missing now and then); exit code 137 alone is only "killed".
    """
    if outcome.timed_out:
        return Ending.TIMEOUT
    if oom_kills or oom_flag:
        return Ending.OUT_OF_MEMORY
    if not running:
        return None
    return Ending.KILLED if outcome.exit_code == 137 else Ending.EXITED
