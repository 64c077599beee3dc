#!/usr/bin/env python3
"""A stand-in for an Ollama server: same shapes, same words, and faults on request.

In a test: `with FakeOllama() as fake: fake.url`. As a program (`fake_ollama.py serve`) it listens
on 0.0.0.0:11434 and is steered through POST /_fake, so that an image with it can take the place
of Ollama's. Standard library only. Tokens are characters / 4; durations are invented.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "0.33.1"
LOAD_NS = 2_500_000_000
STAMP = "2026-08-21T10:00:00.123456789Z"

# Faults that answer at once: status and error text, in Ollama's words.
REFUSALS: dict[str, tuple[int, str]] = {
    "oom": (500, "llama-server reported out-of-memory during startup: cudaMalloc failed"),
    "oom-old": (500, "llama runner process has terminated: CUDA error: out of memory"),
    "crashed": (
        500,
        "model runner has unexpectedly stopped, this may be due to resource limitations or an "
        "internal error, check ollama server logs for details",
    ),
    "busy": (503, "server busy, please try again.  maximum pending requests exceeded"),
    "not-found": (404, "model 'gone' not found"),
    "canceled": (499, "request canceled"),
    "no-thinking": (400, '"m" does not support thinking'),
}
# Faults that need more than a status: see `_Handler._generate`.
MISBEHAVIOURS = (
    "cut", "no-done", "error-line", "garbage", "hang", "hang-midway", "empty", "think-only",
    "load", "unload", "html", "loop", "think-loop", "same-token",
)  # fmt: skip
FAULTS = (*REFUSALS, *MISBEHAVIOURS)


@dataclass
class FakeModel:
    name: str
    size: int = 13_780_173_839
    vram_share: float = 1.0
    trained: int = 131_072
    thinks: bool = True
    parameters: str = "temperature                    1\ntop_k                          64"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def details(self) -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": "fake",
            "families": ["fake"],
            "parameter_size": "20.9B",
            "quantization_level": "MXFP4",
        }


@dataclass
class State:
    """All that a test may set or look at."""

    models: dict[str, FakeModel] = field(default_factory=dict)
    pullable: list[str] = field(default_factory=list)
    reply: str = "Hello.\n"
    thinking: str = ""
    default_context: int = 4096
    context_cap: int | None = None
    """Loads no more than this, whatever was asked."""
    hidden_context: int | None = None
    """Cuts prompts to this in silence, whatever it says is loaded and whatever it was asked: as
    servers do that don't know `truncate` and `shift`."""
    counts: str = "all"
    """`all`; `uncached`: what the prompt before had is left out, and zero is not sent."""
    version: str = VERSION
    last_prompt: str = ""
    read_only_models: bool = False
    faults: deque[str] = field(default_factory=deque)
    """One is used up by each chat or generate request."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    clients_gone: int = 0
    """Clients that left while an answer was due."""
    loaded: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Model → context and shift it was loaded with."""
    loads: int = 0


_NOT_KNOWN = ("truncate", "shift")


class FakeOllama(State):
    """The server, in a thread. A context manager."""

    def __init__(self, *models: str | FakeModel, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__()
        for model in models or ("m:latest",):
            one = FakeModel(model) if isinstance(model, str) else model
            self.models[full_name(one.name)] = one
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.server = _Server((host, port), self)
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeOllama:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def asked(self, *paths: str) -> list[dict[str, Any]]:
        """Bodies of the requests to these paths so far."""
        return [r["body"] for r in self.requests if r["path"] in paths]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], fake: FakeOllama) -> None:
        self.fake = fake
        super().__init__(address, _Handler)


def full_name(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def tokens(text: str) -> int:
    return len(text) // 4 + 1 if text else 0


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    @property
    def fake(self) -> FakeOllama:
        return self.server.fake

    # --- plumbing -------------------------------------------------------------------------

    def _send(
        self, status: int, body: bytes, kind: str = "application/json; charset=utf-8"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode())

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _line(self, value: Any) -> None:
        self._chunk(json.dumps(value).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _hang(self) -> None:
        """Say nothing until the client leaves or the server stops."""
        while not self.fake.stopping.wait(0.02):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self.fake.clients_gone += 1
                break
        self.close_connection = True

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    # --- routes ---------------------------------------------------------------------------

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self._note(None)
        answers: dict[str, Any] = {
            "/api/version": lambda: {"version": self.fake.version},
            "/api/tags": self._tags,
            "/api/ps": self._ps,
            "/_fake": self._seen,
        }
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(200, b"Ollama is running", "text/plain; charset=utf-8")
        elif path in answers:
            self._json(answers[path]())
        else:
            self._send(404, b"404 page not found", "text/plain")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            return self._json({"error": "invalid character in request body"}, 400)
        if self.path == "/_fake":
            return self._steer(body)
        self._note(body)
        routes = {
            "/api/chat": self._chat,
            "/api/generate": self._generate_api,
            "/api/show": self._show,
            "/api/pull": self._pull,
        }
        if self.path not in routes:
            return self._send(404, b"404 page not found", "text/plain")
        if not isinstance(body, dict):
            return self._json({"error": "missing request body"}, 400)
        try:
            routes[self.path](body)
        except Refusal as exc:
            self._json({"error": str(exc)}, exc.status)
        except (BrokenPipeError, ConnectionResetError):
            self.fake.clients_gone += 1
            self.close_connection = True
        return None

    def do_DELETE(self) -> None:
        self._note(None)
        self._json({"error": "a test must never get here"}, 500)

    def _note(self, body: Any) -> None:
        if self.path != "/_fake":
            seen = {"method": self.command, "path": self.path, "body": body}
            self.fake.requests.append(seen | {"client": self.client_address[0]})

    def _seen(self) -> dict[str, Any]:
        fake = self.fake
        return {"requests": fake.requests, "clients_gone": fake.clients_gone, "loads": fake.loads}

    def _steer(self, body: dict[str, Any]) -> None:
        for name, value in body.items():
            if name == "faults":
                self.fake.faults = deque(value)
            elif name == "models":
                self.fake.models = {full_name(m["name"]): FakeModel(**m) for m in value}
            else:
                setattr(self.fake, name, value)
        self._json({})

    def _model(self, body: dict[str, Any]) -> FakeModel:
        name = body.get("model") or body.get("name")
        if not name:
            raise Refusal(400, "model is required")
        model = self.fake.models.get(full_name(name))
        if model is None:
            raise Refusal(404, f"model '{name}' not found")
        return model

    # --- inventory ------------------------------------------------------------------------

    def _tags(self) -> dict[str, Any]:
        return {
            "models": [
                {
                    "name": name,
                    "model": name,
                    "modified_at": STAMP,
                    "size": model.size,
                    "digest": model.digest,
                    "details": model.details,
                }
                for name, model in self.fake.models.items()
            ]
        }

    def _ps(self) -> dict[str, Any]:
        return {
            "models": [
                {
                    "name": name,
                    "model": name,
                    "size": model.size,
                    "digest": model.digest,
                    "details": model.details,
                    "expires_at": STAMP,
                    "size_vram": int(model.size * model.vram_share),
                    "context_length": self.fake.loaded[name][0],
                }
                for name, model in self.fake.models.items()
                if name in self.fake.loaded
            ]
        }

    def _show(self, body: dict[str, Any]) -> None:
        model = self._model(body)
        capabilities = ["completion", "tools", *(["thinking"] if model.thinks else [])]
        self._json(
            {
                "license": "Apache-2.0",
                "modelfile": f"FROM {model.name}",
                "parameters": model.parameters,
                "template": "{{ .Prompt }}",
                "details": model.details,
                "model_info": {
                    "general.architecture": "fake",
                    "general.parameter_count": 20_914_757_184,
                    "fake.context_length": model.trained,
                },
                "capabilities": capabilities,
                "modified_at": STAMP,
            }
        )

    def _pull(self, body: dict[str, Any]) -> None:
        name = full_name(body.get("model") or body.get("name") or "")
        self._begin_stream()
        for line in self._pull_lines(name):
            self._line(line)
        self._end_stream()

    def _pull_lines(self, name: str) -> Iterator[dict[str, Any]]:
        yield {"status": "pulling manifest"}
        if self.fake.read_only_models:
            yield {"error": "open /models/blobs/sha256-x-partial: read-only file system"}
            return
        if name not in map(full_name, self.fake.pullable):
            yield {"error": "pull model manifest: file does not exist"}
            return
        model = FakeModel(name)
        for quarter in range(5):
            part = {"digest": f"sha256:{model.digest}", "total": model.size}
            done = model.size * quarter // 4
            yield {"status": f"pulling {model.digest[:12]}", **part, "completed": done}
        yield {"status": "verifying sha256 digest"}
        yield {"status": "writing manifest"}
        self.fake.models[name] = model
        yield {"status": "success"}

    # --- generation -----------------------------------------------------------------------

    def _chat(self, body: dict[str, Any]) -> None:
        messages = body.get("messages") or []
        prompt = [str(message.get("content") or "") for message in messages]
        self._generate(body, prompt, chat=True)

    def _generate_api(self, body: dict[str, Any]) -> None:
        prompt = [part for part in (body.get("system"), body.get("prompt")) if part]
        self._generate(body, prompt, chat=False)

    def _generate(self, body: dict[str, Any], prompt: list[str], *, chat: bool) -> None:
        fake = self.fake
        model = self._model(body)
        with fake.lock:
            fault = fake.faults.popleft() if fake.faults else ""
        if fault in REFUSALS:
            status, message = REFUSALS[fault]
            raise Refusal(status, message)
        if fault == "html":
            return self._send(200, b"<html>a proxy's login page</html>", "text/html")
        if fault == "hang":
            return self._hang()
        if body.get("think") and not model.thinks:
            raise Refusal(400, f'"{body["model"]}" does not support thinking')
        writer = _Writer(body["model"], chat=chat)
        context, load_ns = self._load(model, body)
        if not prompt:
            return self._answer(body, [writer.last("load", {"load_duration": load_ns})])
        counted = self._count(prompt, context, body)
        if fault == "same-token":
            return self._end_as_ollama_does(writer)
        if fault in ("loop", "think-loop"):
            return self._loop(writer, thinking=fault == "think-loop")
        text, thinking, reason = self._say(body)
        if fault in ("empty", "load", "unload"):
            text, thinking, reason = "", "", "stop" if fault == "empty" else fault
        elif fault == "think-only":
            text, thinking, reason = "", thinking or "Let me think.", "length"
        spent = tokens(text) + tokens(thinking)
        metrics = {
            "total_duration": load_ns + spent * 20_000_000 + 1,
            "load_duration": load_ns,
            "prompt_eval_count": counted,
            "prompt_eval_duration": counted * 1_000_000,
            "eval_count": spent,
            "eval_duration": spent * 20_000_000,
        }
        if body.get("keep_alive") == 0:
            fake.loaded.pop(full_name(body["model"]), None)
        lines = [*writer.parts(text, thinking), writer.last(reason, metrics)]
        if fault in MISBEHAVIOURS and fault not in ("empty", "load", "unload", "think-only"):
            return self._break_off(fault, lines)
        return self._answer(body, lines)

    def _load(self, model: FakeModel, body: dict[str, Any]) -> tuple[int, int]:
        """Context it is loaded with, and the time loading takes, ns (0: was loaded so)."""
        fake = self.fake
        asked = (body.get("options") or {}).get("num_ctx") or fake.default_context
        wanted = (min(asked, model.trained, fake.context_cap or asked), body.get("shift", True))
        name = full_name(model.name)
        with fake.lock:
            if fake.loaded.get(name) == wanted:
                return wanted[0], 0
            fake.loaded[name] = wanted
            fake.loads += 1
        return wanted[0], LOAD_NS

    def _end_as_ollama_does(self, writer: _Writer) -> None:
        """The reply, one token 31 times more, and the end without a last line."""
        self._begin_stream()
        for line in [*writer.parts(self.fake.reply, ""), *writer.parts("!" * 32, "", size=1)]:
            self._line(line)
        self._end_stream()

    def _loop(self, writer: _Writer, *, thinking: bool) -> None:
        """One sentence again and again until the client leaves; first the reply, where it is not
        all thinking."""
        self._begin_stream()
        for line in writer.parts("" if thinking else self.fake.reply, ""):
            self._line(line)
        again = "Wait, let me check that once more. "
        while not self.fake.stopping.is_set():
            for line in writer.parts(*(("", again) if thinking else (again, ""))):
                self._line(line)

    def _count(self, prompt: list[str], context: int, body: dict[str, Any]) -> int:
        """prompt_eval_count: of the whole prompt, or of what silent truncation leaves."""
        old = self.fake.hidden_context is not None
        context = self.fake.hidden_context or context
        if old:
            body = {name: value for name, value in body.items() if name not in _NOT_KNOWN}
        if self.fake.counts == "uncached":
            text = "".join(prompt)
            pairs = enumerate(zip(text, self.fake.last_prompt, strict=False))
            shared = next((at for at, (a, b) in pairs if a != b), len(self.fake.last_prompt))
            self.fake.last_prompt = text
            prompt = [text[shared:]]
        counts = [tokens(part) for part in prompt]
        if sum(counts) < context:
            return sum(counts)
        if body.get("truncate", True) is False:
            inner = {
                "code": 400,
                "message": f"request ({sum(counts)} tokens) exceeds the available context size "
                f"({context} tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": sum(counts),
                "n_ctx": context,
            }
            raise Refusal(400, json.dumps({"error": inner}))
        while len(counts) > 1 and sum(counts) > context:
            del counts[0]
        if sum(counts) < context:
            return sum(counts)
        if body.get("shift", True) is False:
            raise Refusal(
                400,
                "the prompt is longer than the context length currently available to the model; "
                "shorten the prompt, adjust the context length in settings, or use a model with "
                "a longer context length",
            )
        return context - max((context - 4) // 2, 1)

    def _say(self, body: dict[str, Any]) -> tuple[str, str, str]:
        """Reply, thinking and done_reason within num_predict tokens."""
        text, thinking = self.fake.reply, self.fake.thinking
        limit = (body.get("options") or {}).get("num_predict") or -1
        if limit < 0 or tokens(text) + tokens(thinking) <= limit:
            return text, thinking, "stop"
        room = limit * 4
        return text[: max(room - len(thinking), 0)], thinking[:room], "length"

    def _answer(self, body: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        if body.get("stream", True) is False:
            return self._json(joined(lines))
        self._begin_stream()
        for line in lines:
            self._line(line)
        return self._end_stream()

    def _break_off(self, fault: str, lines: list[dict[str, Any]]) -> None:
        """Half of the lines (none of a reply that says nothing), then the fault."""
        self._begin_stream()
        for line in lines[: len(lines) // 2]:
            self._line(line)
        if fault == "cut":
            self._cut()
        elif fault == "hang-midway":
            self._hang()
        else:
            if fault == "error-line":
                error = (
                    "an error was encountered while running the model: CUDA error: out of memory"
                )
                self._line({"error": error})
            elif fault == "garbage":
                self._chunk(b'{"model":"m","message":{"ro\n')
            self._end_stream()


class _Writer:
    """The lines of a stream. All six metrics are left out where they are zero."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.model = model
        self.chat = chat

    def parts(self, text: str, thinking: str, size: int = 12) -> Iterator[dict[str, Any]]:
        for start in range(0, len(thinking), size):
            yield self._line("", thinking[start : start + size])
        for start in range(0, len(text), size):
            yield self._line(text[start : start + size])

    def _line(self, text: str, thinking: str = "", *, done: bool = False) -> dict[str, Any]:
        line: dict[str, Any] = {"model": self.model, "created_at": STAMP}
        thought = {"thinking": thinking} if thinking else {}
        if self.chat:
            line["message"] = {"role": "assistant", "content": text, **thought}
        else:
            line |= {"response": text, **thought}
        return line | {"done": done}

    def last(self, reason: str, metrics: dict[str, int]) -> dict[str, Any]:
        counted = {name: value for name, value in metrics.items() if value}
        return self._line("", done=True) | {"done_reason": reason} | counted


def joined(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The one JSON object of an answer that is not streamed."""
    last = dict(lines[-1])
    if "message" in last:
        parts = [line["message"] for line in lines]
        last["message"] = {
            "role": "assistant",
            "content": "".join(part["content"] for part in parts),
        }
        thinking = "".join(part.get("thinking", "") for part in parts)
        if thinking:
            last["message"]["thinking"] = thinking
    else:
        last["response"] = "".join(line["response"] for line in lines)
    return last


def main() -> None:
    """As Ollama's own image starts: models from FAKE_MODELS (JSON), one called `m` without."""
    models = [FakeModel(**one) for one in json.loads(os.environ.get("FAKE_MODELS", "[]"))]
    fake = FakeOllama(*models, host="0.0.0.0", port=int(os.environ.get("FAKE_PORT", "11434")))
    fake.pullable = json.loads(os.environ.get("FAKE_PULLABLE", "[]"))
    print(json.dumps([asdict(model) for model in fake.models.values()]), file=sys.stderr)
    fake.server.serve_forever()


if __name__ == "__main__":
    main()
