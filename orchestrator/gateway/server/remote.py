"""Models behind OpenAI's chat completions, whoever serves them, and Anthropic's messages.

A call is translated from Ollama's API and its reply back; the translation is in `to_openai` and
`to_anthropic`, here is what goes over the wire. The key leaves this process in the header of a
request and in no other way: what a server gives back is cleared of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

import httpx

from .access import Access
from .causes import Failed, of_api_answer
from .pinning import Carries
from .to_anthropic import Anthropic
from .to_openai import OpenAICompatible
from .upstreams import CONNECT_S, Line, Listening, native_line, read_out, split

_ALIVE: tuple[dict[str, str], ...] = ({}, {"type": "ping"})
"""Events that only keep the connection open."""
_ODD = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of JSON that has not the shape it should have."""


class Reader(Protocol):
    """A reply as its events come."""

    @property
    def whole(self) -> bool:
        """The model is done, and the API said so."""

    @property
    def ended(self) -> bool:
        """Nothing follows."""

    def read(self, event: dict[str, Any]) -> tuple[str, str]:
        """Text and thinking of one event, or of a reply that came as one. Raises Failed."""

    def tool_calls(self) -> list[dict[str, Any]]: ...

    def last(self) -> dict[str, Any]:
        """The fields of Ollama's last line."""


class Api(Protocol):
    path: str
    carries: Carries

    def headers(self, key: str) -> dict[str, str]: ...

    def request(self, endpoint: str, sent: dict[str, Any]) -> dict[str, Any]:
        """The body of a pinned call. Raises Failed for what the API can't be asked."""

    def reader(self) -> Reader: ...


def api_of(kind: str, url: str) -> Api:
    return Anthropic() if kind == "anthropic" else OpenAICompatible(url)


class Remote:
    """See `upstreams.Upstream`. `url` is the base that the API's paths are under."""

    estimates_tokens = False

    def __init__(self, kind: str, url: str, key: str) -> None:
        self._api = api_of(kind, url)
        self._key = key
        self.carries = self._api.carries
        headers = {"Content-Type": "application/json", **self._api.headers(key)}
        self._client = httpx.AsyncClient(base_url=url, trust_env=False, headers=headers)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def lines(
        self, access: Access, endpoint: str, body: dict[str, Any]
    ) -> AsyncGenerator[Line, None]:
        reader = self._api.reader()
        try:
            data = json.dumps(self._request(endpoint, body)).encode("ascii")
            with Listening(access.pins.silence_s) as listening:
                timeout = httpx.Timeout(access.pins.silence_s, connect=CONNECT_S, pool=None)
                async with self._client.stream(
                    "POST", self._api.path, content=data, timeout=timeout
                ) as answer:
                    await self._refuse_unless_ok(answer)
                    async with aclosing(self._events(answer)) as events:
                        async for event in events:
                            if event in _ALIVE:
                                listening.kept_waiting()
                                continue
                            text, thinking = _read(reader, event)
                            said = bool(text or thinking)
                            listening.heard(says_something=said)
                            if said:
                                extra = {"thinking": thinking} if thinking else {}
                                yield native_line(access, endpoint, text, said=extra)
                            if reader.ended:
                                break
            if not reader.whole:
                sentence = "the model server's stream ended without saying why the model was done"
                raise Failed("no-done", sentence)
            calls, last = _end(reader)
            said_last = {"tool_calls": calls} if calls else {}
            yield native_line(access, endpoint, "", said=said_last, last={"done": True} | last)
        except Failed as failed:
            raise failed.without(self._key) from None

    def _request(self, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._api.request(endpoint, body)
        except _ODD as exc:
            raise Failed("refused", f"the request can't be translated: {exc!r}") from None

    async def _refuse_unless_ok(self, answer: httpx.Response) -> None:
        if answer.status_code != 200:
            text = (await answer.aread()).decode("utf-8", "replace")
            raise of_api_answer(answer.status_code, text, answer.headers.get("retry-after"))

    async def _events(self, answer: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a stream; a comment, which only says that the line is alive, is `{}`."""
        if answer.headers.get("content-type", "").startswith("application/json"):
            yield _object(self._cleared(await answer.aread()))
            return
        parts = answer.aiter_bytes()
        async for raw in split(parts):
            event = event_of(self._cleared(raw))
            if event is None:
                await read_out(parts)
                return
            yield event

    def _cleared(self, data: bytes) -> bytes:
        return data.replace(self._key.encode(), b"[key]") if self._key else data


def _read(reader: Reader, event: dict[str, Any]) -> tuple[str, str]:
    try:
        return reader.read(event)
    except _ODD:
        raise _malformed(json.dumps(event).encode()) from None


def _end(reader: Reader) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    try:
        return reader.tool_calls(), reader.last()
    except _ODD as exc:
        raise Failed("malformed", f"the model server's reply ended oddly: {exc!r}") from None


def event_of(line: bytes) -> dict[str, Any] | None:
    """One line of an event stream: its data, `{}` where it has none, None at the end.

    Each of these APIs sends an event's data as one line. Raises Failed.
    """
    name, colon, value = line.strip().partition(b":")
    value = value.strip()
    if name in (b"", b"event", b"id", b"retry"):
        return {}
    if name not in (b"data", b"error") or not colon:
        raise _malformed(line)
    if value == b"[DONE]":
        return None
    event = _object(value)
    return event if name == b"data" else {"error": event.get("error", event)}


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _malformed(data)
    return value


def _malformed(data: bytes) -> Failed:
    shown = data[:200].decode("utf-8", "replace").strip()
    return Failed("malformed", f"the model server sent what is no event: {shown}", status=200)
