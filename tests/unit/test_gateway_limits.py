"""The gateway's limits on a reply and on a run: endless repetition, reasoning, the wallet."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.gateway.server.repetition import Watch
from orchestrator.gateway.server.wallet import Wallet
from orchestrator.records.calls import usage_of
from orchestrator.records.failures import FailureClass

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama("m") as server:
        server.reply = "Hello, this is a reply of some length.\n"
        yield server


def post(
    gateway: LiveGateway, token: str, body: dict[str, Any] = ASK, path: str = "/api/chat"
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.post(gateway.url + path, headers=headers, json=body, timeout=30)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- endless repetition ----------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", ["loop", "think-loop"])
def test_a_reply_without_end_is_ended_and_what_was_said_is_kept(
    gateway: LiveGateway, fake: FakeOllama, fault: str, stream: bool
) -> None:
    fake.faults.append(fault)
    token = gateway.open()
    answer = post(gateway, token, ASK | {"stream": stream})
    assert answer.status_code == 200
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (lines[-1]["done"], lines[-1]["done_reason"]) == (True, "length")
    begins = fake.reply if fault == "loop" else ""
    assert "".join(line["message"]["content"] for line in lines).startswith(begins)
    wait_until(lambda: fake.clients_gone == 1)  # the model is no longer at work
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.failure_class is FailureClass.RUNAWAY_GENERATION
    assert "Wait, let me check that once more." in (call.thinking + call.reply)[-80:]
    assert call.reply.startswith(begins)
    assert "35 characters, at least 234 times" in call.error.sentence
    assert 8192 <= len(call.reply) + len(call.thinking) <= 8192 + 2048 + 300
    assert call.tokens_estimated
    assert call.prompt_tokens > 0
    assert call.reply_tokens > 500
    assert (call.reasoning_tokens > 0.9 * call.reply_tokens) == (fault == "think-loop")
    assert [attempt.cause for attempt in call.attempts] == ["repetition"]


def test_ollamas_own_end_of_a_repeated_token_is_the_models_doing(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("same-token")
    token = gateway.open()
    answer = post(gateway, token)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[-1]["done_reason"] == "length"
    assert "".join(line["message"]["content"] for line in lines) == fake.reply + "!" * 32
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.failure_class is FailureClass.RUNAWAY_GENERATION
    assert "1 characters, at least 32 times in a row: '!'" in call.error.sentence
    assert call.reply == fake.reply + "!" * 32


def test_a_stream_that_just_ends_is_the_servers_doing(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("no-done")
    token = gateway.open()
    post(gateway, token)
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.failure_class is FailureClass.MODEL_SERVER_ERROR


def test_an_openai_client_is_told_that_the_length_ran_out(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("loop")
    token = gateway.open()
    answer = post(gateway, token, ASK | {"stream": True}, "/v1/chat/completions")
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"


# --- reasoning -------------------------------------------------------------------------------


def test_reasoning_is_counted_apart(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.reply, fake.thinking = "x" * 400, "y" * 1200
    token = gateway.open()
    post(gateway, token)
    (call,) = gateway.close(token)
    assert call.reply_tokens == 402
    assert call.reasoning_tokens == 302  # three quarters of the characters
    usage = usage_of([call, call])
    assert (usage.reply_tokens, usage.reasoning_tokens) == (804, 604)


def test_a_reply_without_reasoning_has_none(gateway: LiveGateway) -> None:
    token = gateway.open()
    post(gateway, token)
    assert gateway.close(token)[0].reasoning_tokens == 0


@pytest.mark.parametrize("level", ["low", "high", True, False])
def test_the_thinking_level_is_pinned_whatever_was_asked(
    gateway: LiveGateway, fake: FakeOllama, level: object
) -> None:
    token = gateway.open(think=level)
    post(gateway, token, ASK | {"think": "medium"})
    assert fake.asked("/api/chat")[0]["think"] == level
    (call,) = gateway.close(token)
    assert (call.pinned["think"].asked, call.pinned["think"].sent) == ("medium", level)


# --- the wallet ------------------------------------------------------------------------------


def opened(
    gateway: LiveGateway,
    limits: dict[str, float],
    used: dict[str, float],
    price: dict[str, float | None] | None = None,
) -> str:
    order = {"run": "r", "stage": "s", "turn": 0, "model": "m", "upstream": "ollama"}
    pins = {"num_ctx": 8192, "seed": 7, "max_reply_tokens": 500}
    wallet = {"limits": limits, "used": used, "price": price}
    answer = gateway.order("open", **order, sources=["127.0.0.0/8"], pins=pins, wallet=wallet)
    return str(answer["token"])


@pytest.mark.parametrize(
    ("limits", "used", "let_through"),
    [
        ({"calls": 3}, {}, 3),
        ({"calls": 3}, {"calls": 2}, 1),
        ({"calls": 3}, {"calls": 3}, 0),
        ({"tokens_out": 25}, {}, 3),  # 10 tokens a reply: the third ends beyond it
        ({"tokens_out": 25}, {"tokens_out": 15}, 1),
        ({"tokens_in": 3}, {}, 2),
        ({"agent_s": 60}, {"agent_s": 61}, 0),
        ({"cost": 1.5}, {"cost": 1.5}, 0),
        ({"cost": 1.5}, {"cost": 1.49}, 4),
        ({}, {"calls": 100}, 4),
    ],
)
def test_calls_past_a_limit_are_refused(
    gateway: LiveGateway,
    fake: FakeOllama,
    limits: dict[str, float],
    used: dict[str, float],
    let_through: int,
) -> None:
    fake.reply = "x" * 39
    token = opened(gateway, limits, used)
    answers = [post(gateway, token) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * let_through + [402] * (
        4 - let_through
    )
    assert len(fake.asked("/api/chat")) == let_through
    calls = gateway.close(token)
    assert usage_of(calls).calls == let_through
    if let_through < 4:
        error = answers[-1].json()["error"]
        assert error.startswith("budget-exhausted: the run has used ")
        assert error.endswith("no further call is let through")
        refused = calls[-1].error
        assert refused is not None
        assert refused.failure_class is FailureClass.BUDGET_EXHAUSTED


def test_the_cost_is_counted_where_the_price_is_known(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.reply = "x" * 399  # 100 tokens; the prompt has 2
    token = opened(gateway, {"cost": 0.0025}, {}, {"input": 50, "output": 9, "cached_input": None})
    assert [post(gateway, token).status_code for _ in range(4)] == [200, 200, 200, 402]
    free = opened(gateway, {"cost": 0.0025}, {})
    assert [post(gateway, free).status_code for _ in range(4)] == [200] * 4


def test_cached_tokens_cost_what_the_price_says() -> None:
    wallet = Wallet(price={"input": 10, "output": 100, "cached_input": 1})
    wallet.pay(1000, 50, 400)
    assert wallet.used()["cost"] == pytest.approx((600 * 10 + 400 * 1 + 50 * 100) / 1e6)
    wallet = Wallet(price={"input": 10, "output": 100})
    wallet.pay(1000, 50, 400)
    assert wallet.used()["cost"] == pytest.approx((1000 * 10 + 50 * 100) / 1e6)


def test_a_call_ends_when_the_agents_time_does(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.faults.append("hang")
    token = opened(gateway, {"agent_s": 21.5}, {"agent_s": 20})
    answer = post(gateway, token)
    assert answer.status_code == 402
    assert "of its 21.5 seconds of the agent; the call was ended" in answer.json()["error"]
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.failure_class is FailureClass.BUDGET_EXHAUSTED
    assert usage_of([call]).calls == 1


def test_the_agent_can_ask_what_is_left(gateway: LiveGateway, fake: FakeOllama) -> None:
    token = opened(gateway, {"calls": 5, "tokens_out": 100}, {"calls": 1, "tokens_in": 7})
    post(gateway, token)
    headers = {"Authorization": f"Bearer {token}"}
    told = httpx.get(f"{gateway.url}/wallet", headers=headers).json()
    assert told["limits"]["calls"] == 5
    assert (told["used"]["calls"], told["used"]["tokens_in"]) == (2, 9)
    assert (told["left"]["calls"], told["left"]["tokens_out"]) == (3, 90)
    assert told["left"]["tokens_in"] is None
    assert told["used"]["agent_s"] > 0
    assert httpx.get(f"{gateway.url}/wallet").status_code == 401
    # Asking is no call of a model.
    assert len(gateway.close(token)) == 1


def test_a_reply_that_broke_off_is_paid_for(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.faults.append("no-done")
    token = opened(gateway, {"tokens_out": 1}, {})
    assert "error" in post(gateway, token).text
    assert post(gateway, token).status_code == 402


def test_an_amount_that_is_not_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="bananas"):
        Wallet({"bananas": 3})


def test_without_the_detector_a_reply_without_end_goes_on_until_its_time_is_up(
    gateway: LiveGateway, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "add", lambda self, text: None)
    fake.faults.append("loop")
    token = gateway.open(total_s=1.0)
    post(gateway, token)
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.cause == "too-long"
    assert len(call.reply) > 20_000
