"""What an agent sends: one JSON object a request, within bounds that keep the gateway alive."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from starlette.requests import Request

from .access import Refused, Seat

MAX_BODY = 8 << 20
"""Bytes. A prompt of 250,000 tokens is about one million."""
MAX_VALUES = 50_000
"""Names and values of a body. Each costs up to thirty times its bytes once it is parsed."""
MAX_DEPTH = 64
"""Of arrays and objects in each other: all that reads a record later can do so too."""
BODY_S = 60.0
"""For all of a body to arrive."""
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


async def read_body(request: Request, seat: Seat) -> dict[str, Any]:
    """The JSON object that was sent. Raises Refused for anything else."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise Refused(415, f"the request is compressed ({coding[:40]!r}); send it as it is")
    try:
        async with asyncio.timeout(BODY_S):
            data = await _all_of(request, seat)
    except TimeoutError:
        raise Refused(408, f"the request was not there within {BODY_S:g} s") from None
    if _values(data) > MAX_VALUES:
        raise Refused(413, f"the request has more than {MAX_VALUES} values")
    try:
        value = json.loads(data, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not valid JSON") from None
    if not isinstance(value, dict):
        raise Refused(400, "the request is no JSON object")
    if too_deep(value):
        raise Refused(400, f"the request is nested more than {MAX_DEPTH} deep")
    return value


async def _all_of(request: Request, seat: Seat) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise Refused(413, f"the request is larger than {MAX_BODY} bytes")
        seat.hold(len(chunk))
    return bytes(data)


def _values(data: bytes) -> int:
    """At least as many as there are, at once; exactly, where that is too many: commas and
    brackets in a text are none."""

    def marks(text: bytes) -> int:
        return sum(map(text.count, (b",", b":", b"[", b"{")))

    found = marks(data)
    return found if found <= MAX_VALUES else marks(_STRINGS.sub(b"", data))


def too_deep(value: object) -> bool:
    """Whether arrays and objects stand in each other more than MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is more than a number can be")
    return value
