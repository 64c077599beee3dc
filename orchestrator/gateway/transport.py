"""HTTP from where the gateway stands: an httpx transport whose requests go out by exec.

What the orchestrator asks a model server this way takes the very path that an agent's calls
take, and works with an engine on another machine and without a published port.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import httpx

from orchestrator.errors import OrchError
from orchestrator.sandbox.container import Container

FETCH = ("python", "-m", "server.fetch")
LONGEST_S = 24 * 3600.0
"""Of one request, body and all: a model's download. Silence ends it long before, see `read`."""
LOG_KB = 16
PASSED_ON = frozenset({"authorization", "x-api-key", "anthropic-version"})
"""Of a request's headers; they go by stdin as all of the order does."""
NOT_PASSED = frozenset({"transfer-encoding", "content-length", "connection", "content-encoding"})


class ExecTransport(httpx.BaseTransport):
    """A request's `read` timeout is the longest silence, before the answer and within it."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        timeouts = request.extensions.get("timeout") or {}
        order = {
            "url": str(request.url),
            "method": request.method,
            "headers": {n: v for n, v in request.headers.items() if n.lower() in PASSED_ON},
            "body": request.read().decode("utf-8"),
            "timeout_s": timeouts.get("read") or LONGEST_S,
        }
        output = _Output(self._container, json.dumps(order).encode())
        head = json.loads(output.first_line() or "{}")
        if "status" not in head:
            output.raise_error()
            kind = httpx.ReadTimeout if head.get("timeout") else httpx.ConnectError
            raise kind(str(head.get("error", "the gateway gave no answer")), request=request)
        headers = [
            (name, value)
            for name, value in head["headers"].items()
            if name.lower() not in NOT_PASSED
        ]
        return httpx.Response(head["status"], headers=headers, stream=output, request=request)


class _Output(httpx.SyncByteStream):
    """What the command prints, as it comes, from the thread that runs it."""

    def __init__(self, container: Container, stdin: bytes) -> None:
        self._container = container
        self._chunks: SimpleQueue[bytes | None] = SimpleQueue()
        self._rest = b""
        self._error: OrchError | None = None
        self._broken = ""
        threading.Thread(target=self._run, args=(stdin,), daemon=True, name="orch-fetch").start()

    def _run(self, stdin: bytes) -> None:
        try:
            ended = self._container.exec(
                FETCH,
                timeout_s=LONGEST_S,
                stdin=stdin,
                log_kb=LOG_KB,
                sink=self._chunks.put,
                counted=False,
            )
            if ended.exit_code != 0:
                self._broken = ended.stderr.text.strip()[-300:] or f"exit code {ended.exit_code}"
        except OrchError as exc:
            self._error = exc
        finally:
            self._chunks.put(None)

    def raise_error(self) -> None:
        """The engine's error, if that is why there is nothing."""
        if self._error is not None:
            raise self._error

    def first_line(self) -> bytes:
        line = b""
        while b"\n" not in line:
            chunk = self._chunks.get()
            if chunk is None:
                self._chunks.put(None)
                return b""
            line += chunk
        line, _, self._rest = line.partition(b"\n")
        return line

    def __iter__(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest
        while (chunk := self._chunks.get()) is not None:
            yield chunk
        self.raise_error()
        if self._broken:
            raise httpx.ReadError(self._broken)
