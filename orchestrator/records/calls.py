"""One model call as the gateway recorded it: one JSON line of `calls.jsonl` (see `stream`).

The lines are written by `orchestrator.gateway.server.recorder`, which runs in the gateway's
container and shares no code with us; a test holds both to the same shape.
"""

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from orchestrator.config import Price
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Record, Usage


class Attempt(Record):
    """One request to the upstream. `cause` is `ok`, or what went wrong, e.g. `no-done`."""

    cause: str
    status: int | None = None
    detail: str = ""
    duration_s: float
    handed_on: bool = False
    """Some of the reply had already reached the agent, so it could not be tried again."""


class Pinned(Record):
    """A field that was changed on its way to the model; None where it was absent."""

    asked: Any = None
    sent: Any = None


class ServerTimings(Record):
    """The server's own account, in seconds; a time it left out is 0."""

    total_s: float = 0.0
    load_s: float = 0.0
    prompt_s: float = 0.0
    reply_s: float = 0.0


REFUSALS = frozenset({"refused", "budget-exhausted"})
"""Causes of calls that were not let through to a model."""


class CallError(Record):
    """Why a call gave no whole reply. `failure_class` is None where the agent is to blame."""

    failure_class: FailureClass | None
    cause: str
    sentence: str
    prompt_tokens: int | None = None
    """What the server said the prompt has, for `context-overflow`."""
    context_tokens: int | None = None


class CallRecord(Record):
    """Tokens as the server counted them (0 where it left the count out); of a call that ended
    before it told, guessed, and `tokens_estimated` says so."""

    v: Literal[1] = 1
    run: str
    stage: str
    turn: int
    seq: int
    """Counts the calls of one stage and turn from 0."""
    at: str
    """UTC, ISO 8601."""
    endpoint: str
    model: str
    upstream: Literal["ollama", "scripted", "openai", "anthropic", "replay"]
    request: dict[str, Any]
    """The request as the agent asked it."""
    pinned: dict[str, Pinned]
    reply: str
    thinking: str = ""
    tool_calls: list[Any] = Field(default_factory=list)
    done_reason: str | None = None
    prompt_tokens: int = 0
    reply_tokens: int = 0
    reasoning_tokens: int = 0
    """How many of the reply's were reasoning: always guessed, by its share of the characters."""
    cached_tokens: int = 0
    """Of the prompt's, those that the provider had read before and may charge less for."""
    tokens_estimated: bool = False
    timings: ServerTimings = ServerTimings()
    first_token_s: float | None = None
    duration_s: float
    attempts: list[Attempt] = Field(default_factory=list)
    error: CallError | None = None


def loads_whole(line: str | bytes) -> Any:
    """Parsed JSON in which halves of surrogate pairs, which no record can hold, became `?`.

    A model may write them, and JSON in ASCII carries them. Raises ValueError.
    """
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


def usage_of(calls: Iterable[CallRecord], price: Price | None = None) -> Usage:
    """Sums over calls that were let through. `model_s` is their wall time without the time to
    load the model."""
    usage = Usage()
    for call in calls:
        if call.error is not None and call.error.cause in REFUSALS:
            continue
        load_s = call.timings.load_s
        usage = usage + Usage(
            calls=1,
            prompt_tokens=call.prompt_tokens,
            reply_tokens=call.reply_tokens,
            reasoning_tokens=call.reasoning_tokens,
            model_s=max(call.duration_s - load_s, 0.0),
            load_s=load_s,
            cost=cost_of(call, price),
        )
    return usage


def without_messages(call: CallRecord) -> CallRecord:
    """The call without the bulk of what was asked, to keep many in memory."""
    kept = {name: value for name, value in call.request.items() if isinstance(value, bool | str)}
    kept.pop("prompt", None)
    return call.model_copy(update={"request": kept, "pinned": {}})


def cost_of(call: CallRecord, price: Price | None) -> float | None:
    """US dollars, from the usage that was reported; None without a price or a report."""
    if price is None or not call.prompt_tokens + call.reply_tokens:
        return None
    cached = price.input if price.cached_input is None else price.cached_input
    millionths = (
        (call.prompt_tokens - call.cached_tokens) * price.input
        + call.cached_tokens * cached
        + call.reply_tokens * price.output
    )
    return millionths / 1e6
