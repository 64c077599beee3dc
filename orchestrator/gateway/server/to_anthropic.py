"""A call in Ollama's API as one of Anthropic's messages, and the reply back. Pure."""

from __future__ import annotations

import json
from typing import Any

from .causes import of_api_event
from .pinning import Carries
from .to_openai import conversation, counts, text_of, tool_call, with_ids

VERSION = "2023-06-01"
# Option here → field there.
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class Anthropic:
    """See `remote.Api`. The API takes no seed."""

    path = "v1/messages"
    carries = Carries(
        fields=frozenset({"messages", "tools", "prompt", "system"}),
        options=frozenset({*_OPTIONS, "num_predict", "stop"}),
    )

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": VERSION}

    def request(self, endpoint: str, sent: dict[str, Any]) -> dict[str, Any]:
        options = sent["options"]
        system, messages = _messages(conversation(endpoint, sent))
        body: dict[str, Any] = {
            "model": sent["model"],
            "messages": messages,
            "max_tokens": options["num_predict"],
            "stream": True,
        }
        body |= {there: options[here] for here, there in _OPTIONS.items() if here in options}
        if options.get("stop"):
            stop = options["stop"]
            body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        if system:
            body["system"] = system
        if sent.get("tools"):
            body["tools"] = [_tool(tool.get("function") or {}) for tool in sent["tools"]]
        return body

    def reader(self) -> Reader:
        return Reader()


class Reader:
    """See `remote.Reader`."""

    def __init__(self) -> None:
        self.ended = False
        self._reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._tools: dict[int, dict[str, str]] = {}

    @property
    def whole(self) -> bool:
        return self.ended and self._reason is not None

    def read(self, event: dict[str, Any]) -> tuple[str, str]:
        if "error" in event:
            raise of_api_event(event["error"])
        match event.get("type"):
            case "message":
                return self._at_once(event)
            case "message_start":
                self._usage |= (event.get("message") or {}).get("usage") or {}
            case "content_block_start":
                return self._block(event.get("index", 0), event.get("content_block") or {})
            case "content_block_delta":
                return self._delta(event.get("index", 0), event.get("delta") or {})
            case "message_delta":
                self._reason = (event.get("delta") or {}).get("stop_reason") or self._reason
                self._usage |= event.get("usage") or {}
            case "message_stop":
                self.ended = True
        return "", ""

    def _at_once(self, message: dict[str, Any]) -> tuple[str, str]:
        parts = [
            self._block(index, block) for index, block in enumerate(message.get("content") or [])
        ]
        self._reason, self.ended = message.get("stop_reason"), True
        self._usage = message.get("usage") or {}
        return "".join(text for text, _ in parts), "".join(thinking for _, thinking in parts)

    def _block(self, index: int, block: dict[str, Any]) -> tuple[str, str]:
        if block.get("type") == "tool_use":
            whole = block.get("input") or ""
            self._tools[index] = {
                "id": str(block.get("id") or ""),
                "name": str(block.get("name") or ""),
                "arguments": json.dumps(whole) if whole else "",
            }
        return text_of(block.get("text")), text_of(block.get("thinking"))

    def _delta(self, index: int, delta: dict[str, Any]) -> tuple[str, str]:
        if delta.get("type") == "input_json_delta" and index in self._tools:
            self._tools[index]["arguments"] += delta.get("partial_json") or ""
        return text_of(delta.get("text")), text_of(delta.get("thinking"))

    def tool_calls(self) -> list[dict[str, Any]]:
        return [tool_call(**self._tools[index]) for index in sorted(self._tools)]

    def last(self) -> dict[str, Any]:
        # What it read from its cache, or wrote there, it counts beside the rest of the prompt.
        usage, reason = counts(self._usage), str(self._reason)
        of_prompt = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        fields: dict[str, object] = {
            "prompt_eval_count": sum(usage.get(name, 0) for name in of_prompt),
            "eval_count": usage.get("output_tokens"),
            "prompt_cached_count": usage.get("cache_read_input_tokens"),
        }
        return {"done_reason": _REASONS.get(reason, reason)} | counts(fields)


def _messages(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The system's text, which stands apart there, and the turns of user and assistant."""
    system = [str(one.get("content") or "") for one in messages if one.get("role") == "system"]
    told: list[dict[str, Any]] = []
    for message in with_ids([one for one in messages if one.get("role") != "system"]):
        text = str(message.get("content") or "")
        if "tool_call_id" in message:
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            told.append({"role": "user", "content": [result | {"content": text}]})
            continue
        blocks = [{"type": "text", "text": text}] if text else []
        blocks += [_use(call) for call in message.get("tool_calls") or []]
        told.append({"role": message.get("role"), "content": blocks or text})
    return "\n\n".join(system), told


def _use(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function.get("name"),
        "input": function.get("arguments") or {},
    }


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": function.get("name"),
        "description": function.get("description") or "",
        "input_schema": function.get("parameters") or {"type": "object"},
    }
