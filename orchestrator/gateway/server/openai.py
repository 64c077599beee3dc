"""OpenAI's chat completions in front of an Ollama call."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from .upstreams import Line

# Field there → option here.
_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
}
_THINK: dict[str, bool | str] = {
    "none": False, "minimal": "low", "low": "low", "medium": "medium", "high": "high",
    "xhigh": "max",
}  # fmt: skip
_STREAM_END = b"data: [DONE]\n\n"


class OpenAI:
    """See `dialects.Dialect`."""

    name = "openai-chat"
    endpoint = "chat"
    media_type = "text/event-stream"

    def __init__(self) -> None:
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._model = ""
        self._tells_usage = False
        self._calls_tools = False

    def native(self, body: dict[str, Any]) -> dict[str, Any]:
        self._model = str(body.get("model"))
        self._tells_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        options = {
            there: body[here] for here, there in _OPTIONS.items() if body.get(here) is not None
        }
        native: dict[str, Any] = {
            "model": body.get("model"),
            "messages": [_message(one) for one in body.get("messages") or []],
            "stream": body.get("stream") is True,
            "options": options,
        }
        if body.get("tools"):
            native["tools"] = body["tools"]
        if body.get("reasoning_effort") in _THINK:
            native["think"] = _THINK[body["reasoning_effort"]]
        wanted = body.get("response_format") or {}
        if wanted.get("type") == "json_object":
            native["format"] = "json"
        elif wanted.get("type") == "json_schema":
            native["format"] = wanted["json_schema"]["schema"]
        return native

    def line(self, line: Line) -> bytes:
        delta: dict[str, Any] = {"role": "assistant", "content": line.text}
        if line.thinking:
            delta["reasoning"] = line.thinking
        if line.tool_calls:
            self._calls_tools = True
            delta["tool_calls"] = _tool_calls(line.tool_calls)
        finish = self._finish(line.data) if line.done else None
        chunk = self._chunk([{"index": 0, "delta": delta, "finish_reason": finish}])
        if not line.done:
            return chunk
        usage = self._chunk([], usage=_usage(line.data)) if self._tells_usage else b""
        return chunk + usage + _STREAM_END

    def whole(self, reply: dict[str, Any]) -> dict[str, Any]:
        message = reply["message"]
        said: dict[str, Any] = {"role": "assistant", "content": message["content"]}
        if message.get("thinking"):
            said["reasoning"] = message["thinking"]
        if message.get("tool_calls"):
            self._calls_tools = True
            said["tool_calls"] = _tool_calls(message["tool_calls"])
        choice = {"index": 0, "message": said, "finish_reason": self._finish(reply)}
        return self._heading("chat.completion") | {"choices": [choice], "usage": _usage(reply)}

    def error(self, sentence: str, status: int) -> dict[str, Any]:
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        kind = kinds.get(status, "api_error")
        return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}

    def error_line(self, sentence: str, status: int) -> bytes:
        return b"data: " + json.dumps(self.error(sentence, status)).encode() + b"\n\n"

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        chunk = self._heading("chat.completion.chunk") | {"choices": choices} | more
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    def _heading(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _finish(self, last: dict[str, Any]) -> str:
        return "tool_calls" if self._calls_tools else str(last.get("done_reason") or "stop")


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A message, its content as one text and its tool calls' arguments as objects.

    Raises ValueError for what no text model can be told.
    """
    told: dict[str, Any] = {"role": message["role"], "content": _text(message.get("content"))}
    calls = message.get("tool_calls")
    if calls:
        told["tool_calls"] = [
            {"function": call["function"] | {"arguments": _arguments(call)}} for call in calls
        ]
    return told


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.get("type") != "text":
            raise ValueError(f"a message holds a part of type {part.get('type')!r}, not text")
    return "".join(part["text"] for part in content)


def _arguments(call: dict[str, Any]) -> Any:
    arguments = call["function"].get("arguments") or "{}"
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _tool_calls(calls: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": call.get("id") or f"call_{secrets.token_hex(4)}",
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(call["function"].get("arguments") or {}),
            },
        }
        for index, call in enumerate(calls)
    ]


def _usage(last: dict[str, Any]) -> dict[str, int]:
    prompt, reply = last.get("prompt_eval_count", 0), last.get("eval_count", 0)
    return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
