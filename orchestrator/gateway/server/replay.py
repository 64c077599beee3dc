"""Replies out of a recording: the calls of a run once more, one by one, for the same requests.

A call is found by stage, turn and its number there. It must ask what was asked then, to the
letter. What differs ends it as `replay-differs`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from .access import Access
from .calls import Asked
from .causes import Failed
from .difference import difference
from .pinning import OLLAMA, Carries, pin
from .upstreams import SCRIPT_CHUNK, Line

NANO = 1_000_000_000


class Recording:
    """The calls of one run in a file of JSON lines. Only where each begins is held in memory."""

    def __init__(self, path: Path) -> None:
        """Reads the whole file once. Raises ValueError, KeyError, OSError."""
        self._path = path
        self._places: dict[tuple[str, int, int], int] = {}
        with path.open("rb") as lines:
            place = 0
            for raw in lines:
                call = json.loads(raw)
                self._places[call["stage"], call["turn"], call["seq"]] = place
                place += len(raw)

    def __len__(self) -> int:
        return len(self._places)

    def call(self, access: Access, asked: Asked) -> Replayed:
        """The recorded counterpart of the call that is next on `access`."""
        place = self._places.get((access.stage, access.turn, access.calls))
        if place is None:
            return Replayed(asked, None)
        with self._path.open("rb") as lines:
            lines.seek(place)
            return Replayed(asked, json.loads(lines.readline()))


class Replayed:
    """See `upstreams.Upstream`; good for one call. Attempts fail as they failed then."""

    def __init__(self, asked: Asked, recorded: dict[str, Any] | None) -> None:
        self._asked = asked
        self._recorded = recorded
        self._attempt = 0
        self.estimates_tokens = bool(recorded and recorded["tokens_estimated"])
        self.carries = _carried(asked.native, recorded["pinned"]) if recorded else OLLAMA

    async def lines(
        self,
        access: Access,
        endpoint: str,
        body: dict[str, Any],  # noqa: ARG002 - compared with its pins, below
    ) -> AsyncGenerator[Line, None]:
        recorded = self._same(access)
        attempts = recorded["attempts"]
        self._attempt += 1
        if self._attempt < len(attempts):
            tried = attempts[self._attempt - 1]
            raise Failed(tried["cause"], tried["detail"], status=tried["status"])
        for message in _pieces(recorded):
            yield _line(recorded, endpoint, message, {"done": False})
        error = recorded["error"]
        if error is None:
            yield _line(recorded, endpoint, {"content": ""}, _last(recorded))
        elif error["cause"] == "client-gone":
            # The agent had been stopped by then; it will be stopped again.
            await asyncio.Event().wait()
        else:
            raise Failed(
                error["cause"],
                error["sentence"],
                status=attempts[-1]["status"] if attempts else None,
                prompt_tokens=error["prompt_tokens"],
                context_tokens=error["context_tokens"],
            )

    def _same(self, access: Access) -> dict[str, Any]:
        """What was recorded. Raises Failed where it is of another request, or nothing."""
        where = access.stage + (f", repair turn {access.turn}" if access.turn else "")
        if self._recorded is None:
            raise Failed("replay-differs", f"{where}: one more call than was recorded")
        asked = self._asked
        _, pinned = pin(asked.endpoint, asked.native, access.model, access.pins, self.carries)
        error = self._recorded["error"]
        if error is not None and error["cause"] == "budget-exhausted":
            pinned = self._recorded["pinned"]  # it got no further than to the wallet
        found = difference(self._recorded, asked.name, asked.body, pinned)
        if found:
            number = self._recorded["seq"] + 1
            raise Failed("replay-differs", f"{where}, call {number}: {found}")
        return self._recorded


def _carried(native: dict[str, Any], pinned: dict[str, Any]) -> Carries:
    """What the API behind the recording had room for: what was sent of the same request."""
    options = native.get("options")
    asked = options if isinstance(options, dict) else {}

    def sent(name: str, key: str, among: dict[str, Any]) -> bool:
        return pinned[key]["sent"] is not None if key in pinned else name in among

    return Carries(
        fields=frozenset(name for name in OLLAMA.fields if sent(name, name, native)),
        options=frozenset(name for name in OLLAMA.options if sent(name, f"options.{name}", asked)),
    )


def _pieces(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """Messages as a stream brings them: the reasoning, the text, the tool calls."""
    thinking, text = recorded["thinking"], recorded["reply"]
    count = recorded["reply_tokens"]
    if recorded["error"] is not None and count:
        # Tokens of a reply without an end are guessed by its pieces: as many as there were. The
        # long one comes last: what repeats itself was noticed there.
        thoughts = _in_pieces(thinking, count - 1 if text else count)
        texts = _in_pieces(text, count - len(thoughts))
    else:
        thoughts, texts = (_chunks(one) for one in (thinking, text))
    pieces: list[dict[str, Any]] = [{"content": "", "thinking": one} for one in thoughts]
    pieces += [{"content": one} for one in texts]
    if recorded["tool_calls"]:
        pieces.append({"content": "", "tool_calls": recorded["tool_calls"]})
    return pieces


def _chunks(text: str) -> list[str]:
    return [text[start : start + SCRIPT_CHUNK] for start in range(0, len(text), SCRIPT_CHUNK)]


def _in_pieces(text: str, count: int) -> list[str]:
    """At most `count` pieces; at least one where there is a text."""
    heads = max(min(count, len(text)) - 1, 0)
    return [*text[:heads], text[heads:]] if text else []


def _last(recorded: dict[str, Any]) -> dict[str, Any]:
    """The fields of a stream's last line; as a server does, it leaves out what is 0."""
    timings = recorded["timings"]
    told = {
        "done_reason": recorded["done_reason"],
        "total_duration": round(timings["total_s"] * NANO),
        "load_duration": round(timings["load_s"] * NANO),
        "prompt_eval_count": recorded["prompt_tokens"],
        "prompt_cached_count": recorded["cached_tokens"],
        "prompt_eval_duration": round(timings["prompt_s"] * NANO),
        "eval_count": recorded["reply_tokens"],
        "eval_duration": round(timings["reply_s"] * NANO),
    }
    return {"done": True} | {name: value for name, value in told.items() if value}


def _line(
    recorded: dict[str, Any], endpoint: str, message: dict[str, Any], more: dict[str, Any]
) -> Line:
    data: dict[str, Any] = {"model": recorded["model"], "created_at": recorded["at"]}
    if endpoint == "chat":
        data["message"] = {"role": "assistant"} | message
    else:
        data["response"] = message["content"]
        data |= {name: value for name, value in message.items() if name == "thinking"}
    data |= more
    return Line(json.dumps(data).encode("ascii") + b"\n", data)
