"""Where replies come from: an Ollama server, or the replies that a task brought along.

Both give lines of Ollama's stream, one at a time, the last with `done`; what is none of these
is a `Failed`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

import httpx

from .access import Access
from .causes import Failed, of_answer, of_error_line
from .pinning import OLLAMA, Carries

CONNECT_S = 15.0
MAX_LINE = 32 << 20
READ_OUT_S = 0.1
SCRIPT_CHUNK = 48
CHARS_PER_TOKEN = 4
"""A scripted reply's tokens are estimated as characters / 4; the record says so."""


@dataclass(frozen=True)
class Line:
    """One line of a stream: as it came, newline included, and parsed."""

    raw: bytes
    data: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.data.get("done") is True

    @property
    def text(self) -> str:
        return str(self._message.get("content") or self.data.get("response") or "")

    @property
    def thinking(self) -> str:
        return str(self._message.get("thinking") or self.data.get("thinking") or "")

    @property
    def tool_calls(self) -> list[Any]:
        return list(self._message.get("tool_calls") or [])

    @property
    def says_something(self) -> bool:
        return bool(self.text or self.thinking or self.tool_calls)

    @property
    def _message(self) -> dict[str, Any]:
        message = self.data.get("message")
        return message if isinstance(message, dict) else {}


class Upstream(Protocol):
    estimates_tokens: bool
    carries: Carries

    def lines(
        self, access: Access, endpoint: str, body: dict[str, Any]
    ) -> AsyncGenerator[Line, None]:
        """One attempt. Raises Failed."""


class Ollama:
    """An Ollama server behind the gateway."""

    estimates_tokens = False
    carries = OLLAMA

    def __init__(self, url: str) -> None:
        headers = {"Content-Type": "application/json"}
        self._client = httpx.AsyncClient(base_url=url, trust_env=False, headers=headers)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> dict[str, Any]:
        """An inventory request. Raises Failed."""
        return await self._inventory("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._inventory("POST", path, body)

    async def _inventory(self, method: str, path: str, body: object) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, json=body, timeout=60)
        except httpx.HTTPError as exc:
            raise Failed("unreachable", f"the model server does not answer: {exc!r}") from None
        if answer.status_code != 200:
            raise of_answer(answer.status_code, answer.text)
        value = answer.json()
        return value if isinstance(value, dict) else {}

    async def lines(
        self, access: Access, endpoint: str, body: dict[str, Any]
    ) -> AsyncGenerator[Line, None]:
        timeout = httpx.Timeout(access.pins.silence_s, connect=CONNECT_S, pool=None)
        path = f"/api/{endpoint}"
        with Listening(access.pins.silence_s) as listening:
            # ASCII: UTF-8 can't hold the half of a surrogate pair that an agent may send.
            data = json.dumps(body).encode("ascii")
            async with self._client.stream("POST", path, content=data, timeout=timeout) as answer:
                if answer.status_code != 200:
                    text = (await answer.aread()).decode("utf-8", "replace")
                    raise of_answer(answer.status_code, text)
                body_parts = answer.aiter_bytes()
                async for raw in split(body_parts):
                    line = _parse(raw)
                    listening.heard(says_something=line.says_something)
                    yield line
                    if line.done:
                        await read_out(body_parts)
                        return
        raise Failed("no-done", "the model server's stream ended without its last line")


async def read_out(rest: AsyncIterator[bytes]) -> None:
    """Take in the end of a body whose last line has come, or the connection would not serve the
    next call; what is not there at once is left."""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(READ_OUT_S):
            async for _ in rest:
                pass


class Listening:
    """A context manager around one attempt: what goes wrong with the connection is a Failed."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._spoken = False
        self._last = time.monotonic()

    def __enter__(self) -> Listening:
        return self

    def heard(self, *, says_something: bool) -> None:
        """A line of the reply has come."""
        self._last = time.monotonic()
        self._spoken = self._spoken or says_something

    def kept_waiting(self) -> None:
        """What came only says that the line is alive. Raises Failed after too long of that."""
        if time.monotonic() - self._last > self._silence_s:
            raise self._silence()

    def _silence(self) -> Failed:
        cause = "stalled" if self._spoken else "no-first-token"
        return Failed(cause, f"the model server sent nothing for {self._silence_s:g} s")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(value, httpx.ConnectError | httpx.ConnectTimeout):
            detail = f"the model server can't be reached: {value or type(value).__name__}"
            raise Failed("unreachable", detail) from None
        if isinstance(value, httpx.ReadTimeout):
            raise self._silence() from None
        if isinstance(value, httpx.HTTPError):
            detail = f"the connection to the model server broke: {value or type(value).__name__}"
            raise Failed("cut", detail) from None


async def split(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines, newline included. A last one without a newline is given too."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line + b"\n"
        if len(rest) > MAX_LINE:
            raise Failed("malformed", "the model server sent a line without end")
    if rest.strip():
        yield rest + b"\n"


def _parse(raw: bytes) -> Line:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        shown = raw[:200].decode("utf-8", "replace").strip()
        cause = "not-ollama" if raw.lstrip()[:1] == b"<" else "malformed"
        raise Failed(cause, f"the model server sent what is no JSON line: {shown}", status=200)
    if "error" in data:
        raise of_error_line(data["error"])
    return Line(raw, data)


Scripts = Mapping[str, Mapping[str, Mapping[str, str | list[str]]]]
"""Model → stage → turn (as text, "0" first) → reply to each call, or a list of replies, one to a
call."""


class Scripted:
    """Replies written beforehand. A stage, turn or call that is not listed gets an empty reply."""

    estimates_tokens = True
    carries = OLLAMA

    def __init__(self, scripts: Scripts, number: int = 0) -> None:
        """`number`: which call of its stage and turn is answered, from 0."""
        self._scripts = scripts
        self._number = number

    def call(self, access: Access) -> Scripted:
        """For the call that is next on `access`."""
        return Scripted(self._scripts, access.calls)

    async def lines(
        self, access: Access, endpoint: str, body: dict[str, Any]
    ) -> AsyncGenerator[Line, None]:
        stages = self._scripts.get(access.model)
        if stages is None:
            raise Failed("not-found", f"no scripted model {access.model!r} was delivered")
        text = stages.get(access.stage, {}).get(str(access.turn), "")
        if isinstance(text, list):
            text = text[self._number] if self._number < len(text) else ""
        for start in range(0, len(text), SCRIPT_CHUNK):
            yield native_line(access, endpoint, text[start : start + SCRIPT_CHUNK])
        counts = {
            "prompt_eval_count": estimate(json.dumps(body.get("messages") or body.get("prompt"))),
            "eval_count": estimate(text),
        }
        last = {"done": True, "done_reason": "stop"}
        yield native_line(access, endpoint, "", last=last | {n: c for n, c in counts.items() if c})


def native_line(
    access: Access,
    endpoint: str,
    text: str,
    *,
    said: Mapping[str, Any] | None = None,
    last: Mapping[str, Any] | None = None,
) -> Line:
    """A line as Ollama would send it. `said`: thinking and tool calls; `last`: the end's fields."""
    data: dict[str, Any] = {
        "model": access.model,
        "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    }
    if endpoint == "chat":
        data["message"] = {"role": "assistant", "content": text} | dict(said or {})
    else:
        data |= {"response": text} | dict(said or {})
    data |= {"done": False} | dict(last or {})
    return Line(json.dumps(data).encode() + b"\n", data)


def estimate(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)
