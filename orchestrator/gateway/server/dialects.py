"""The APIs that agents may speak: into Ollama's own and back, as pure functions over JSON.

Inside the gateway every call is one of Ollama's /api/chat or /api/generate.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from .upstreams import Line


class Dialect(Protocol):
    """One call's translation; made anew for each, as a stream's chunks share an id."""

    name: str
    """What the record calls the endpoint."""
    endpoint: str
    """`chat` or `generate`."""
    media_type: str

    def native(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request as Ollama would get it; `stream` is always set. Raises ValueError."""

    def line(self, line: Line) -> bytes:
        """A line of the reply, as the agent gets it."""

    def whole(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply of a call that asked for no stream."""

    def error(self, sentence: str, status: int) -> dict[str, Any]: ...

    def error_line(self, sentence: str, status: int) -> bytes:
        """An error in the middle of a stream."""


class Native:
    """Ollama's own API: nothing is translated."""

    media_type = "application/x-ndjson"

    def __init__(self, endpoint: str) -> None:
        self.name = self.endpoint = endpoint

    def native(self, body: dict[str, Any]) -> dict[str, Any]:
        return body | {"stream": body.get("stream") is not False}

    def line(self, line: Line) -> bytes:
        return line.raw

    def whole(self, reply: dict[str, Any]) -> dict[str, Any]:
        return reply

    def error(self, sentence: str, status: int) -> dict[str, Any]:  # noqa: ARG002 - as for all
        return {"error": sentence}

    def error_line(self, sentence: str, status: int) -> bytes:
        return json.dumps(self.error(sentence, status)).encode() + b"\n"
