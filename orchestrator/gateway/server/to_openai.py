"""A call in Ollama's API as one of OpenAI's chat completions, and the reply back. Pure."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from .causes import Failed, of_api_event
from .pinning import Carries

OPENAI_HOST = "api.openai.com"
# Option here → field there.
_OPTIONS = {
    "seed": "seed",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
_BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource"})
"""Finish reasons by which a server says that it, not the model, gave up."""
NANO_OF_MILLI = 1e6


class OpenAICompatible:
    """See `remote.Api`."""

    path = "chat/completions"
    carries = Carries(
        fields=frozenset({"messages", "tools", "format", "prompt", "system"}),
        options=frozenset({*_OPTIONS, "num_predict"}),
    )

    def __init__(self, url: str) -> None:
        # OpenAI's own models of late refuse the name that all other servers know.
        own = urlsplit(url).hostname == OPENAI_HOST
        self._cap = "max_completion_tokens" if own else "max_tokens"

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def request(self, endpoint: str, sent: dict[str, Any]) -> dict[str, Any]:
        options = sent["options"]
        body: dict[str, Any] = {
            "model": sent["model"],
            "messages": _messages(conversation(endpoint, sent)),
            "stream": True,
            "stream_options": {"include_usage": True},
            self._cap: options["num_predict"],
        }
        body |= {there: options[here] for here, there in _OPTIONS.items() if here in options}
        if sent.get("tools"):
            body["tools"] = sent["tools"]
        if isinstance(sent.get("format"), dict):
            schema = {"name": "reply", "schema": sent["format"]}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif sent.get("format"):
            body["response_format"] = {"type": "json_object"}
        return body

    def reader(self) -> Reader:
        return Reader()


class Reader:
    """See `remote.Reader`. The usage comes after the finish reason, in an event of its own."""

    ended = False

    def __init__(self) -> None:
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._tools: dict[int, dict[str, str]] = {}

    @property
    def whole(self) -> bool:
        return self._finish is not None

    def read(self, event: dict[str, Any]) -> tuple[str, str]:
        if event.get("error"):
            raise of_api_event(event["error"])
        self._usage = event.get("usage") or self._usage
        self._timings = event.get("timings") or self._timings
        choice: dict[str, Any] = next(iter(event.get("choices") or []), {})
        delta = choice.get("delta") or choice.get("message") or {}
        for place, call in enumerate(delta.get("tool_calls") or []):
            self._add_tool(call.get("index", place), call)
        finish = choice.get("finish_reason")
        if finish in _BROKEN_OFF:
            raise of_api_event(choice.get("error") or f"the reply ended with {finish!r}")
        self._finish = finish or self._finish
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        return text_of(delta.get("content")) + text_of(delta.get("refusal")), text_of(thinking)

    def _add_tool(self, index: int, call: dict[str, Any]) -> None:
        tool = self._tools.setdefault(index, {"id": "", "name": "", "arguments": ""})
        function = call.get("function") or {}
        tool["id"] = tool["id"] or str(call.get("id") or "")
        tool["name"] += function.get("name") or ""
        tool["arguments"] += function.get("arguments") or ""

    def tool_calls(self) -> list[dict[str, Any]]:
        return [tool_call(**self._tools[index]) for index in sorted(self._tools)]

    def last(self) -> dict[str, Any]:
        known = {"tool_calls": "stop", "function_call": "stop"}
        finish = str(self._finish)
        cached = (self._usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        fields = {
            "prompt_eval_count": self._usage.get("prompt_tokens"),
            "eval_count": self._usage.get("completion_tokens"),
            "prompt_cached_count": cached,
            "prompt_eval_duration": self._nanoseconds("prompt_ms"),
            "eval_duration": self._nanoseconds("predicted_ms"),
        }
        return {"done_reason": known.get(finish, finish)} | counts(fields)

    def _nanoseconds(self, name: str) -> int:
        value = self._timings.get(name)
        return round(value * NANO_OF_MILLI) if isinstance(value, int | float) else 0


def conversation(endpoint: str, sent: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a call of either endpoint. Raises Failed where one has images."""
    if endpoint == "chat":
        messages = list(sent.get("messages") or [])
    else:
        system = sent.get("system")
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": sent.get("prompt") or ""})
    if any(message.get("images") for message in messages):
        raise Failed("refused", "images are not passed on to this model")
    return messages


def tool_call(id: str, name: str, arguments: str) -> dict[str, Any]:  # noqa: A002 - its name there
    """As Ollama has it, the arguments an object."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        value = {"unreadable": arguments}
    return {"id": id, "function": {"name": name, "arguments": value}}


def with_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose tool calls and results have ids, which Ollama's API does without.

    Results answer the calls before them in their order.
    """
    told, waiting, count = [], [], 0
    for message in messages:
        calls = []
        for call in message.get("tool_calls") or []:
            waiting.append(f"call_{count}")
            calls.append(call | {"id": f"call_{count}"})
            count += 1
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        if message.get("role") == "tool":
            if not waiting:
                raise Failed("refused", "a tool's result answers no call")
            more = {"tool_call_id": waiting.pop(0)}
        told.append(message | more)
    return told


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = []
    for message in with_ids(messages):
        one = {"role": message.get("role"), "content": message.get("content") or ""}
        if message.get("tool_calls"):
            one["tool_calls"] = [_call(call) for call in message["tool_calls"]]
        if "tool_call_id" in message:
            one["tool_call_id"] = message["tool_call_id"]
        told.append(one)
    return told


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = json.dumps(function.get("arguments") or {})
    named = {"name": function.get("name"), "arguments": arguments}
    return {"id": call["id"], "type": "function", "function": named}


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def counts(fields: dict[str, object]) -> dict[str, int]:
    """Those that are counted; Ollama leaves out what is 0."""
    return {name: value for name, value in fields.items() if type(value) is int and value > 0}
