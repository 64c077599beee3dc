"""OpenAI's chat completions in front of an Ollama: requests in, replies and errors out."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.gateway.server.openai import OpenAI
from orchestrator.gateway.server.upstreams import Line

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
TEXT = {"type": "text"}
PATH = "/v1/chat/completions"


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama("m") as server:
        server.reply = "Hello, this is a reply of some length.\n"
        server.thinking = "Hm."
        yield server


def client(gateway: LiveGateway, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=gateway.url, headers={"Authorization": f"Bearer {token}"}, timeout=30
    )


def events(answer: httpx.Response) -> list[str]:
    assert answer.headers["content-type"] == "text/event-stream"
    parts = answer.text.split("\n\n")
    assert parts.pop() == ""
    return [part.removeprefix("data: ") for part in parts]


def test_a_whole_reply(gateway: LiveGateway, fake: FakeOllama) -> None:
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.post(PATH, json=ASK).json()
        assert http.get("/v1/models").json()["data"][0]["id"] == "m"
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": fake.reply, "reasoning": "Hm."},
            "finish_reason": "stop",
        }
    ]
    (call,) = gateway.close(token)
    assert answer["usage"] == {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.reply_tokens,
        "total_tokens": call.prompt_tokens + call.reply_tokens,
    }
    assert call.endpoint == "openai-chat"
    assert call.request == ASK
    assert call.reply == fake.reply


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream(gateway: LiveGateway, fake: FakeOllama, usage: bool) -> None:
    token = gateway.open()
    body = ASK | {"stream": True, "stream_options": {"include_usage": usage}}
    with client(gateway, token) as http:
        *chunks, end = events(http.post(PATH, json=body))
    assert end == "[DONE]"
    told = [json.loads(chunk) for chunk in chunks]
    assert {chunk["object"] for chunk in told} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in told}) == 1
    if usage:
        last = told.pop()
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] > 0
    deltas = [chunk["choices"][0]["delta"] for chunk in told]
    assert "".join(delta["content"] for delta in deltas) == fake.reply
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "Hm."
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in told]
    assert finishes == [None] * (len(told) - 1) + ["stop"]


def test_what_is_asked_is_pinned_all_the_same(gateway: LiveGateway, fake: FakeOllama) -> None:
    token = gateway.open(temperature=0.3)
    body = ASK | {
        "messages": [
            {"role": "system", "content": [TEXT | {"text": "a"}, TEXT | {"text": "b"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "2"},
        ],
        "max_tokens": 100,
        "temperature": 1.0,
        "top_p": 0.9,
        "seed": 99,
        "stop": ["x"],
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
    }  # fmt: skip
    with client(gateway, token) as http:
        assert http.post(PATH, json=body).status_code == 200
    (sent,) = fake.asked("/api/chat")
    assert sent["options"] == {
        "num_ctx": 8192, "seed": 7, "num_predict": 100, "temperature": 0.3, "top_p": 0.9,
        "stop": ["x"],
    }  # fmt: skip
    assert sent["messages"] == [
        {"role": "system", "content": "ab"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
        },
        {"role": "tool", "content": "2"},
    ]
    assert (sent["format"], sent["truncate"]) == ("json", False)
    # The trial says how much is thought, or the model does.
    assert "think" not in sent
    (call,) = gateway.close(token)
    assert call.pinned["options.seed"].asked == 99


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [("oom", 502, "api_error"), ("not-found", 404, "not_found_error")],
)
def test_errors_have_openais_shape(
    gateway: LiveGateway, fake: FakeOllama, fault: str, status: int, kind: str
) -> None:
    fake.faults.extend([fault] * 3)
    with client(gateway, gateway.open()) as http:
        answer = http.post(PATH, json=ASK)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == kind
    assert httpx.post(gateway.url + PATH, json=ASK).json()["error"]["message"].startswith("refused")


def test_a_stream_that_breaks_off_ends_in_an_error(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.faults.append("cut")
    with client(gateway, gateway.open()) as http:
        told = events(http.post(PATH, json=ASK | {"stream": True}))
    assert "model-server-error" in json.loads(told[-1])["error"]["message"]
    assert "[DONE]" not in told


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}],
        [{"content": "no role"}],
        ["text"],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
    ],
)
def test_what_can_not_be_told_a_model(
    gateway: LiveGateway, fake: FakeOllama, messages: list[Any]
) -> None:
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.post(PATH, json=ASK | {"messages": messages})
    assert answer.status_code == 400
    assert "can't be understood" in answer.json()["error"]["message"]
    assert fake.requests == []
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.cause == "refused"


def test_tool_calls_become_openais() -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "f", "arguments": {"x": 1}}}
    ]}  # fmt: skip
    dialect = OpenAI()
    dialect.native(ASK)
    data = {"message": called, "done": False}
    chunk = json.loads(dialect.line(Line(b"", data)).removeprefix(b"data: "))
    (call,) = chunk["choices"][0]["delta"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}
    last = {"message": {"content": ""}, "done": True, "done_reason": "stop"}
    end = dialect.line(Line(b"", last)).split(b"\n\n")[0].removeprefix(b"data: ")
    assert json.loads(end)["choices"][0]["finish_reason"] == "tool_calls"
