"""Stand-ins for OpenAI's chat completions (as served by OpenAI, llama.cpp and vLLM) and Anthropic's
messages, on a port of this machine's loopback: same shapes, same words, and faults on request.

`with FakeApis() as fake: fake.url`. Tokens are characters / 4.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHUNK = 16

# Faults that answer at once: status, headers, body. {key} is what was sent as key.
REFUSALS: dict[str, tuple[int, dict[str, str], str]] = {
    "bad-key": (
        401,
        {},
        '{"error": {"message": "Incorrect API key provided: {key}.", "code": "invalid_api_key"}}',
    ),
    "masked-key": (401, {}, '{"error": {"message": "Incorrect API key: sk-pr**********w3rK."}}'),
    "forbidden": (403, {}, '{"error": {"type": "permission_error", "message": "not allowed"}}'),
    "no-model": (404, {}, '{"error": {"message": "The model `fake` does not exist"}}'),
    "rate": (429, {"Retry-After": "0"}, '{"error": {"message": "Rate limit reached"}}'),
    "rate-long": (429, {"Retry-After": "3600"}, '{"error": {"message": "Rate limit reached"}}'),
    "quota": (429, {}, '{"error": {"message": "You exceeded it", "type": "insufficient_quota"}}'),
    "payment": (402, {}, '{"error": {"code": 402, "message": "Insufficient credits"}}'),
    "broken": (500, {}, '{"error": {"message": "The server had an error"}}'),
    "busy": (503, {}, '{"error": {"message": "Loading model", "type": "unavailable_error"}}'),
    "overloaded": (529, {}, '{"type": "error", "error": {"type": "overloaded_error"}}'),
    "bad-request": (400, {}, '{"error": {"message": "Unsupported parameter: seed"}}'),
    "overflow": (
        400,
        {},
        '{"error": {"code": 400, "message": "request (9000 tokens) exceeds the available context '
        'size (4096 tokens), try increasing it", "type": "exceed_context_size_error", '
        '"n_prompt_tokens": 9000, "n_ctx": 4096}}',
    ),
    "html": (502, {}, "<html>Bad gateway</html>"),
}


class FakeApis:
    """All that a test may set or look at. `faults` are used up, one a call."""

    def __init__(self, *models: str, key: str = "") -> None:
        self.models = list(models or ["fake"])
        self.key = key
        self.reply = "Hello, this is a reply of some length.\n"
        self.replies: deque[str] = deque()
        """Used up before `reply` is."""
        self.thinking = ""
        self.tool: tuple[str, str] | None = None
        """Name, and arguments as JSON."""
        self.finish = "stop"
        self.llamacpp_context: int | None = None
        self.entry: dict[str, Any] = {}
        """More fields of a model's entry in the list."""
        self.faults: deque[str] = deque()
        self.requests: list[dict[str, Any]] = []
        self.clients_gone = 0
        self.on_call: Callable[[], object] = lambda: None
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeApis:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, path: str) -> list[dict[str, Any]]:
        """Bodies of the calls, in their order."""
        return [one["body"] for one in self.requests if one["path"] == path and one["body"]]


class _Handler(BaseHTTPRequestHandler):
    fake: FakeApis
    _pause = threading.Event()

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _sent_key(self) -> str:
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or bearer

    def _note(self, body: Any) -> None:
        noted = {"path": self.path, "headers": dict(self.headers.items()), "body": body}
        self.fake.requests.append(noted)

    def _answer(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refused(self) -> bool:
        if self.fake.key and self._sent_key != self.fake.key:
            status, headers, body = REFUSALS["bad-key"]
            self._answer(status, body.replace("{key}", self._sent_key), headers)
            return True
        return False

    def do_GET(self) -> None:
        self._note(None)
        fake = self.fake
        if self.path == "/v1/models":  # not refused: llama.cpp tells anybody
            more = fake.entry
            if fake.llamacpp_context is not None:
                more = more | {"owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}}
            data = [{"id": name, "object": "model", "owned_by": "x"} | more for name in fake.models]
            self._answer(200, json.dumps({"object": "list", "data": data}))
        elif self.path == "/props" and fake.llamacpp_context is not None:
            settings = {"n_ctx": fake.llamacpp_context}
            self._answer(200, json.dumps({"default_generation_settings": settings}))
        elif self.path.startswith("/v1/models/"):
            if not self._refused():
                name = self.path.rpartition("/")[2]
                known = name in fake.models
                body = {"type": "model", "id": name} if known else {"error": "not found"}
                self._answer(200 if known else 404, json.dumps(body))
        else:
            self._answer(404, '{"error": {"message": "File Not Found"}}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        self._note(body)
        if self._refused():
            return
        if not body.get("messages"):
            self._answer(400, '{"error": {"message": "messages is required"}}')
            return
        fake = self.fake
        fake.on_call()
        fault = fake.faults.popleft() if fake.faults else ""
        if fault in REFUSALS:
            status, headers, text = REFUSALS[fault]
            self._answer(status, text.replace("{key}", self._sent_key), headers)
            return
        text = fake.replies.popleft() if fake.replies else fake.reply
        read = -(-len(json.dumps(body["messages"])) // 4)
        make = _openai if self.path == "/v1/chat/completions" else _anthropic
        events = list(make(fake, text, read))
        if fault == "at-once":
            self._answer(200, json.dumps(_at_once(fake, text, read)))
            return
        self._stream(events, fault)

    def _stream(self, events: list[str], fault: str) -> None:
        """`cut`: the connection breaks; `short`: it ends well, the stream does not;
        `no-done-mark`: all but the last event; `alive`: no event ever, the line kept open;
        `garbage`, `error-event` and `odd` in the middle."""
        self.protocol_version = "HTTP/1.1"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        half = len(events) // 2
        middle = {
            "garbage": "nonsense\n\n",
            "odd": 'data: {"choices": "none", "type": "content_block_delta", "delta": 1}\n\n',
            "error-event": 'data: {"type": "error", "error": {"message": "it broke"}}\n\n',
            "error-field": 'error: {"message": "it broke"}\n\n',
            "overloaded-event": 'data: {"error": {"type": "overloaded_error"}}\n\n',
        }
        if fault in ("cut", "short"):
            events = events[:half]
        elif fault == "no-done-mark":
            events = events[:-1]
        elif fault in middle:
            events = [*events[:half], middle[fault], *events[half:]]
        elif fault == "alive":
            events = [": wait\n\n", 'data: {"type": "ping"}\n\n'] * 500
        try:
            for event in events:
                if fault == "alive":
                    self._pause.wait(0.02)
                data = event.encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            if fault != "cut":
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.fake.clients_gone += 1


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHUNK):
        yield text[start : start + CHUNK]


def _openai(fake: FakeApis, text: str, read: int) -> Iterator[str]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        body = {"id": "c1", "object": "chat.completion.chunk", "choices": choices} | more
        return f"data: {json.dumps(body)}\n\n"

    yield ": PROCESSING\n\n"
    yield chunk({"role": "assistant", "content": None})
    for piece in _pieces(fake.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(text):
        yield chunk({"content": piece})
    if fake.tool:
        name, arguments = fake.tool
        first = {"index": 0, "id": "call_x", "type": "function"}
        yield chunk({"tool_calls": [first | {"function": {"name": name, "arguments": ""}}]})
        for piece in _pieces(arguments):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield chunk({}, fake.finish)
    usage = {
        "prompt_tokens": read,
        "completion_tokens": -(-len(text) // 4),
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    timings = {"prompt_ms": 20.5, "predicted_ms": 1000}
    yield f"data: {json.dumps({'choices': [], 'usage': usage, 'timings': timings})}\n\n"
    yield "data: [DONE]\n\n"


def _anthropic(fake: FakeApis, text: str, read: int) -> Iterator[str]:
    def event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind} | more)}\n\n"

    def block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[str]:
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)

    usage = {"input_tokens": read, "output_tokens": 1, "cache_read_input_tokens": 1}
    yield event("message_start", message={"id": "m1", "role": "assistant", "usage": usage})
    yield event("ping")
    if fake.thinking:
        deltas = [{"type": "thinking_delta", "thinking": one} for one in _pieces(fake.thinking)]
        deltas.append({"type": "signature_delta", "signature": "abc"})
        yield from block(0, {"type": "thinking", "thinking": ""}, deltas)
    deltas = [{"type": "text_delta", "text": one} for one in _pieces(text)]
    yield from block(1, {"type": "text", "text": ""}, deltas)
    if fake.tool:
        name, arguments = fake.tool
        start = {"type": "tool_use", "id": "toolu_x", "name": name, "input": {}}
        parts = [{"type": "input_json_delta", "partial_json": one} for one in _pieces(arguments)]
        yield from block(2, start, parts)
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(fake.finish, fake.finish)
    written = {"output_tokens": -(-len(text) // 4)}
    yield event("message_delta", delta={"stop_reason": reason}, usage=written)
    yield event("message_stop")


def _at_once(fake: FakeApis, text: str, read: int) -> dict[str, Any]:
    """A whole reply, as a server gives it that can't stream; both APIs in one object."""
    message = {"role": "assistant", "content": text}
    written = -(-len(text) // 4)
    counts = {"prompt_tokens": read, "completion_tokens": written}
    return {
        "type": "message",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": counts | {"input_tokens": read, "output_tokens": written},
    }
