"""OpenAI's and Anthropic's APIs behind the gateway: requests there, replies and errors back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_apis import FakeApis
from live_gateway import LiveGateway
from test_gateway_server import wait_until

from orchestrator.gateway.server.access import Pins
from orchestrator.gateway.server.causes import Failed, of_api_answer, of_api_event
from orchestrator.gateway.server.pinning import pin
from orchestrator.gateway.server.remote import event_of
from orchestrator.gateway.server.to_anthropic import Anthropic
from orchestrator.gateway.server.to_openai import OpenAICompatible
from orchestrator.records.calls import CallRecord
from orchestrator.records.failures import FailureClass

KEY = "sk-test-0123456789abcdef"
ASK = {"model": "fake", "messages": [{"role": "user", "content": "Hello?"}]}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
KINDS = pytest.mark.parametrize("kind", list(PATHS))


@pytest.fixture
def fake() -> Iterator[FakeApis]:
    with FakeApis(key=KEY) as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path, fake: FakeApis) -> Iterator[LiveGateway]:
    with LiveGateway(tmp_path) as server:
        server.order("remote", kind="openai", url=f"{fake.url}/v1", key=KEY)
        server.order("remote", kind="anthropic", url=fake.url, key=KEY)
        yield server


def ask(
    gateway: LiveGateway, kind: str, path: str, body: Any, **pins: Any
) -> tuple[httpx.Response, list[CallRecord]]:
    token = gateway.open("fake", upstream=kind, **pins)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=30) as http:
        answer = http.post(path, json=body)
    return answer, gateway.close(token)


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


# --- replies -------------------------------------------------------------------------------


@KINDS
def test_a_stream_comes_as_ollamas(gateway: LiveGateway, fake: FakeApis, kind: str) -> None:
    fake.thinking = "Let me think about that."
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK)
    *lines, last = lines_of(answer)
    assert "".join(line["message"]["content"] for line in lines) == fake.reply
    assert "".join(line["message"].get("thinking", "") for line in lines) == fake.thinking
    assert all(line["done"] is False for line in lines)
    assert (last["done"], last["done_reason"], last["model"]) == (True, "stop", "fake")
    assert (call.reply, call.thinking, call.upstream) == (fake.reply, fake.thinking, kind)
    # Anthropic counts what it read from its cache beside the rest.
    (sent,) = fake.asked(PATHS[kind])
    read = -(-len(json.dumps(sent["messages"])) // 4) + (kind == "anthropic")
    assert (call.prompt_tokens, call.reply_tokens, call.cached_tokens) == (read, 10, 1)
    assert not call.tokens_estimated
    assert [attempt.cause for attempt in call.attempts] == ["ok"]
    if kind == "openai":
        assert (call.timings.prompt_s, call.timings.reply_s) == (pytest.approx(0.0205), 1.0)


@KINDS
def test_other_dialects_and_whole_replies(gateway: LiveGateway, fake: FakeApis, kind: str) -> None:
    fake.thinking = "Hm."
    whole, _ = ask(gateway, kind, "/api/chat", ASK | {"stream": False})
    assert whole.json()["message"] == {
        "role": "assistant", "content": fake.reply, "thinking": "Hm.",
    }  # fmt: skip
    body = {"model": "fake", "prompt": "Hi", "system": "Be brief.", "stream": False}
    generated, _ = ask(gateway, kind, "/api/generate", body)
    assert generated.json()["response"] == fake.reply
    completed, _ = ask(gateway, kind, "/v1/chat/completions", ASK)
    (choice,) = completed.json()["choices"]
    assert choice["message"] == {"role": "assistant", "content": fake.reply, "reasoning": "Hm."}
    assert choice["finish_reason"] == "stop"
    streamed, _ = ask(gateway, kind, "/v1/chat/completions", ASK | {"stream": True})
    assert streamed.text.endswith("data: [DONE]\n\n")


@KINDS
@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "length"), ("content_filter", "content_filter")]
)
def test_why_the_reply_ended(
    gateway: LiveGateway, fake: FakeApis, kind: str, finish: str, reason: str
) -> None:
    fake.finish = finish if kind == "openai" or finish == "length" else "refusal"
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK)
    assert lines_of(answer)[-1]["done_reason"] == call.done_reason == reason
    completed, _ = ask(gateway, kind, "/v1/chat/completions", ASK)
    assert completed.json()["choices"][0]["finish_reason"] == reason


@KINDS
def test_a_tool_is_called(gateway: LiveGateway, fake: FakeApis, kind: str) -> None:
    fake.tool = ("read", '{"path": "a.py", "lines": [1, 2]}')
    fake.finish = "tool_calls" if kind == "openai" else "tool_use"
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK)
    (told,) = lines_of(answer)[-1]["message"]["tool_calls"]
    assert told["function"] == {"name": "read", "arguments": {"path": "a.py", "lines": [1, 2]}}
    assert call.tool_calls == [told]
    completed, _ = ask(gateway, kind, "/v1/chat/completions", ASK)
    assert completed.json()["choices"][0]["finish_reason"] == "tool_calls"


# Anthropic's last event is what ends a stream; OpenAI's is a mark that some servers leave out.
@pytest.mark.parametrize(
    ("kind", "fault"),
    [("openai", "at-once"), ("openai", "no-done-mark"), ("anthropic", "at-once")],
)
def test_servers_that_do_it_a_little_differently(
    gateway: LiveGateway, fake: FakeApis, kind: str, fault: str
) -> None:
    fake.faults.append(fault)
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK)
    assert lines_of(answer)[-1]["done"] is True
    assert (call.reply, call.reply_tokens, call.error) == (fake.reply, 10, None)


# --- what is sent --------------------------------------------------------------------------

PINS = Pins(num_ctx=8192, seed=7, max_reply_tokens=500, temperature=0.2)
ASKED = ASK | {
    "think": "high",
    "keep_alive": 0,
    "options": {"num_ctx": 2048, "top_k": 3, "stop": ["x"], "num_predict": -1, "seed": 1},
}


def test_what_openai_is_sent() -> None:
    api = OpenAICompatible("http://127.0.0.1:8080/v1")
    sent, changes = pin("chat", ASKED, "fake", PINS, api.carries)
    assert api.request("chat", sent) == {
        "model": "fake",
        "messages": ASK["messages"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 500,
        "seed": 7,
        "temperature": 0.2,
        "stop": ["x"],
    }
    assert {name: (one["asked"], one["sent"]) for name, one in changes.items()} == {
        "keep_alive": (0, None),
        "options.num_ctx": (2048, None),
        "options.num_predict": (-1, 500),
        "options.seed": (1, 7),
        "options.temperature": (None, 0.2),
        "options.top_k": (3, None),
        "stream": (None, True),
        "think": ("high", None),
    }


def test_openais_own_address_gets_the_newer_name_of_the_cap() -> None:
    api = OpenAICompatible("https://api.openai.com/v1")
    body = api.request("chat", pin("chat", ASK, "m", PINS, api.carries)[0])
    assert body["max_completion_tokens"] == 500
    assert "max_tokens" not in body


def test_what_anthropic_is_sent() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *ASK["messages"]]
    api = Anthropic()
    sent, changes = pin("chat", ASKED | {"messages": messages}, "fake", PINS, api.carries)
    assert api.request("chat", sent) == {
        "model": "fake",
        "system": "Be brief.",
        "messages": ASK["messages"],
        "max_tokens": 500,
        "stream": True,
        "temperature": 0.2,
        "top_k": 3,
        "stop_sequences": ["x"],
    } | {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello?"}]}]}
    assert changes["options.seed"] == {"asked": 1, "sent": None}


TALK = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "read", "arguments": {"path": "a"}}},
        {"function": {"name": "read", "arguments": {"path": "b"}}},
    ]},
    {"role": "tool", "content": "A"},
    {"role": "tool", "content": "B"},
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def test_a_talk_with_tools() -> None:
    body = ASK | {"messages": TALK, "tools": TOOLS}
    api = OpenAICompatible("http://x/v1")
    told = api.request("chat", pin("chat", body, "m", PINS, api.carries)[0])
    assert told["tools"] == TOOLS
    calls = told["messages"][1]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"path": "a"}', '{"path": "b"}']
    assert [one.get("tool_call_id") for one in told["messages"]] == [None, None, "call_0", "call_1"]
    assert [call["id"] for call in calls] == ["call_0", "call_1"]
    other = Anthropic()
    told = other.request("chat", pin("chat", body, "m", PINS, other.carries)[0])
    assert told["tools"] == [
        {"name": "read", "description": "", "input_schema": {"type": "object"}}
    ]
    assert [block["id"] for block in told["messages"][1]["content"]] == ["call_0", "call_1"]
    assert told["messages"][3]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "B"}
    ]


@KINDS
@pytest.mark.parametrize(
    "message",
    [{"role": "user", "content": "?", "images": ["aGk="]}, {"role": "tool", "content": "?"}, 7],
)
def test_what_cant_be_passed_on_is_the_agents_fault(
    gateway: LiveGateway, fake: FakeApis, kind: str, message: object
) -> None:
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK | {"messages": [message]})
    assert answer.status_code == 400
    assert call.error is not None
    assert (call.error.cause, call.error.failure_class) == ("refused", None)
    assert fake.requests == []


# --- errors --------------------------------------------------------------------------------

UNAVAILABLE, ERROR = FailureClass.MODEL_UNAVAILABLE, FailureClass.MODEL_SERVER_ERROR


@KINDS
@pytest.mark.parametrize(
    ("fault", "cause", "failure_class", "attempts"),
    [
        ("bad-key", "bad-key", UNAVAILABLE, 1),
        ("masked-key", "bad-key", UNAVAILABLE, 1),
        ("forbidden", "bad-key", UNAVAILABLE, 1),
        ("no-model", "not-found", UNAVAILABLE, 1),
        ("rate", "rate-limited", UNAVAILABLE, 3),
        ("rate-long", "rate-limited", UNAVAILABLE, 1),
        ("quota", "no-credit", UNAVAILABLE, 1),
        ("payment", "no-credit", UNAVAILABLE, 1),
        ("busy", "busy", UNAVAILABLE, 3),
        ("overloaded", "busy", UNAVAILABLE, 3),
        ("broken", "server-error", ERROR, 3),
        ("html", "server-error", ERROR, 3),
        ("bad-request", "bad-request", ERROR, 1),
        ("overflow", "context-overflow", FailureClass.CONTEXT_OVERFLOW, 1),
    ],
)
def test_refusals(
    gateway: LiveGateway,
    fake: FakeApis,
    kind: str,
    fault: str,
    cause: str,
    failure_class: FailureClass,
    attempts: int,
) -> None:
    fake.faults.extend([fault] * 3)
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK)
    assert answer.status_code >= 400
    assert answer.json()["error"].startswith(f"{failure_class.value}: ")
    assert call.error is not None
    assert (call.error.cause, call.error.failure_class) == (cause, failure_class)
    assert [attempt.cause for attempt in call.attempts] == [cause] * attempts
    for text in (answer.text, call.model_dump_json()):
        assert KEY not in text
        assert "w3rK" not in text


@KINDS
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("cut", "cut"),
        ("short", "no-done"),
        ("garbage", "malformed"),
        ("odd", "malformed"),
        ("error-event", "error-line"),
        ("error-field", "error-line"),
        ("overloaded-event", "busy"),
    ],
)
def test_a_stream_that_breaks_is_never_a_whole_reply(
    gateway: LiveGateway, fake: FakeApis, kind: str, fault: str, cause: str
) -> None:
    fake.reply *= 5
    fake.faults.extend([fault] * 3)
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK)
    last = lines_of(answer)[-1]
    assert "done" not in last
    assert ": " in last["error"]
    assert call.error is not None
    assert call.error.cause == cause
    assert call.attempts[-1].handed_on


@KINDS
def test_a_line_that_is_only_kept_alive(gateway: LiveGateway, fake: FakeApis, kind: str) -> None:
    fake.faults.append("alive")
    answer, (call,) = ask(gateway, kind, "/api/chat", ASK, silence_s=0.3)
    assert answer.status_code == 504
    assert call.error is not None
    assert call.error.cause == "no-first-token"


@KINDS
def test_an_agent_that_leaves_ends_the_call_upstream(
    gateway: LiveGateway, fake: FakeApis, kind: str
) -> None:
    fake.faults.append("alive")
    token = gateway.open("fake", upstream=kind)
    headers = {"Authorization": f"Bearer {token}"}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/api/chat", json=ASK, headers=headers, timeout=0.3)
    wait_until(lambda: fake.clients_gone == 1)
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.cause == "client-gone"


def test_a_server_that_gives_the_key_back_as_its_reply(
    gateway: LiveGateway, fake: FakeApis
) -> None:
    fake.reply = f"{KEY}\n"
    fake.faults.append("at-once")
    answer, (call,) = ask(gateway, "openai", "/api/chat", ASK)
    assert call.reply == "[key]\n"
    assert KEY not in answer.text


def test_no_such_server(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway:
        unknown, _ = ask(gateway, "openai", "/api/chat", ASK)
        gateway.order("remote", kind="openai", url="http://127.0.0.1:9/v1", key="")
        refused, (call,) = ask(gateway, "openai", "/api/chat", ASK)
    assert unknown.status_code == refused.status_code == 502
    assert [attempt.cause for attempt in call.attempts] == ["unreachable"] * 3


@KINDS
def test_inventory_stands_in(gateway: LiveGateway, kind: str) -> None:
    token = gateway.open("fake", upstream=kind)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=gateway.url, headers=headers) as http:
        assert [one["name"] for one in http.get("/api/tags").json()["models"]] == ["fake"]
        shown = http.post("/api/show", json={"model": "fake"}).json()
        assert shown["model_info"][f"{kind}.context_length"] == 8192
        assert http.get("/api/version").json() == {"version": f"0.0.0-{kind}"}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in "
         "9001 tokens. Please reduce the length of the messages.", (9001, 8192)),
        ("This model's maximum context length is 16384 tokens. However, you requested 122946 "
         "tokens (112946 in the messages, 10000 in the completion).", (112946, 16384)),
        ("This endpoint's maximum context length is 4096 tokens. However, you requested about "
         "5000 tokens (4500 of text input, 500 in the output).", (5000, 4096)),
        ("'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context "
         "length is 4096 tokens and your request has 3000 input tokens (2000 > 4096 - 3000).",
         (3000, 4096)),
        ("The prompt (total length 25938) is too long to fit into the model (context length 4096).",
         (25938, 4096)),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
         (5000, 4096)),
        ("prompt is too long: 210000 tokens > 200000 maximum", (210000, 200000)),
        ("input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000, decrease "
         "input length or `max_tokens` and try again", (174167, 200000)),
        ("Your input exceeds the context window of this model.", (None, None)),
        ("the request exceeds the available context size, try increasing it", (None, None)),
        ("request (12 tokens) exceeds the available context size (10 tokens), try increasing it",
         (12, 10)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "body",
    ['{"error": {"message": %s, "type": "invalid_request_error"}}', '{"detail": %s}', '%s',
     '{"object": "error", "message": %s, "code": 400}'],
)  # fmt: skip
def test_a_prompt_that_is_too_long_in_all_its_wordings(
    text: str, tokens: tuple[int | None, int | None], body: str
) -> None:
    failed = of_api_answer(400, body % json.dumps(text))
    assert failed.cause == "context-overflow"
    assert (failed.prompt_tokens, failed.context_tokens) == tokens


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), (None, None), ("", None), ("-1", None), ("inf", None),
     ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
)  # fmt: skip
def test_how_long_to_wait(header: str | None, seconds: float | None) -> None:
    assert of_api_answer(429, "{}", header).retry_after_s == seconds


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "busy"),
        ({"type": "rate_limit_error"}, "rate-limited"),
        ({"code": 429, "message": "Provider returned error"}, "rate-limited"),
        ({"code": 502, "message": "Provider disconnected"}, "error-line"),
        ({"type": "authentication_error"}, "bad-key"),
        ("out of memory", "out-of-memory"),
        ({"type": "exceed_context_size_error", "message": "exceeds the available context size"},
         "context-overflow"),
        (None, "error-line"),
    ],
)  # fmt: skip
def test_errors_in_a_stream(error: object, cause: str) -> None:
    assert of_api_event(error).cause == cause


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b": keep-alive\n", {}),
        (b"event: ping\r\n", {}),
        (b'data: {"a": 1}\r\n', {"a": 1}),
        (b'data:{"a": 1}\n', {"a": 1}),
        (b"data: [DONE]\n", None),
        (b'error: {"code": 500}\n', {"error": {"code": 500}}),
    ],
)
def test_lines_of_an_event_stream(line: bytes, event: object) -> None:
    assert event_of(line) == event


@pytest.mark.parametrize("line", [b"<html>\n", b"data: [1]\n", b"data: {\n", b"data\n", b'{"a":1}'])
def test_what_is_no_event(line: bytes) -> None:
    with pytest.raises(Failed, match="no event"):
        event_of(line)
