"""What the gateway's record says about a stage, and what is left in a run's wallet."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.config import Price
from orchestrator.records.calls import CallError, CallRecord
from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import Budget, Usage
from orchestrator.trial.conduct import conduct
from orchestrator.trial.wallet import Purse, Spent, chosen, unpriced


def call(**more: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "run": "r", "stage": "s", "turn": 0, "seq": 0, "at": "2026-01-01T00:00:00+00:00",
        "endpoint": "chat", "model": "m", "upstream": "ollama", "request": {}, "pinned": {},
        "reply": "ok", "reply_tokens": 500, "duration_s": 1.0, "done_reason": "stop",
    }  # fmt: skip
    return CallRecord(**(fields | more))


def error(failure_class: C | None, cause: str) -> CallError:
    return CallError(failure_class=failure_class, cause=cause, sentence="so it was")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"done_reason": "length"}, None),  # cut off within the answer: the agent's to judge
        ({"done_reason": "length", "reply": "", "thinking": "Hm."}, C.REASONING_EXHAUSTED),
        ({"done_reason": "length", "reply": " \n", "thinking": "Hm."}, C.REASONING_EXHAUSTED),
        ({"done_reason": "length", "reply": "<think>\nHm."}, C.REASONING_EXHAUSTED),
        ({"done_reason": "length", "reply": "<think>Hm.</think>\n"}, C.REASONING_EXHAUSTED),
        ({"done_reason": "length", "reply": "<think>Hm.</think>So"}, None),
        ({"done_reason": "length", "reply": "So", "thinking": "Hm."}, None),
        ({"done_reason": "length", "reply": ""}, None),  # empty, not exhausted
        ({"done_reason": "stop", "reply": "", "thinking": "Hm."}, None),
        (
            {"done_reason": "length", "reply": "", "thinking": "Hm.", "tool_calls": [{}]},
            None,
        ),
        ({"error": error(C.RUNAWAY_GENERATION, "repetition")}, C.RUNAWAY_GENERATION),
        ({"error": error(C.BUDGET_EXHAUSTED, "budget-exhausted")}, C.BUDGET_EXHAUSTED),
        ({"error": error(C.BUDGET_EXHAUSTED, "budget-time")}, C.BUDGET_EXHAUSTED),
        ({"error": error(C.MODEL_SERVER_ERROR, "cut")}, None),
        ({"error": error(None, "refused")}, None),
    ],
)
def test_the_last_call_decides(fields: dict[str, Any], expected: C | None) -> None:
    found = conduct([call(), call(**fields)], "implement")
    assert (found.failure_class if found else None) == expected
    if found:
        assert found.stage == "implement"
        assert found.attribution == "model"


def test_a_stage_without_calls_says_nothing() -> None:
    assert conduct([], "s") is None


def test_a_call_before_the_last_was_recovered_from() -> None:
    assert conduct([call(error=error(C.RUNAWAY_GENERATION, "repetition")), call()], "s") is None


# --- the wallet ------------------------------------------------------------------------------

SPENT = Spent(Usage(calls=3, prompt_tokens=9000, reply_tokens=2000), agent_s=61.5)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(), None),
        (Budget(max_calls=4, max_tokens_in=9001, max_agent_time=61.6), None),
        (Budget(max_calls=3), "calls"),
        (Budget(max_tokens_in=9000), "tokens_in"),
        (Budget(max_tokens_out=1), "tokens_out"),
        (Budget(max_agent_time=61.5), "agent_s"),
        (Budget(max_cost=0.01), None),  # no price is known of it
        (Budget(max_cost=0.26), None),
        (Budget(max_cost=0.25), "cost"),
    ],
)
def test_when_the_agent_is_not_asked_any_more(budget: Budget, reason: str | None) -> None:
    priced = budget.max_cost is not None and budget.max_cost > 0.1
    cost = Spent(Usage(cost=0.25 if priced else None))
    found = Purse(budget, SPENT + cost).exhausted("docs")
    assert (found.reason if found else None) == reason
    if found:
        assert found.failure_class is C.BUDGET_EXHAUSTED
        assert found.sentence.startswith("the run has used ")


def test_the_gateway_is_told_limits_and_what_was_used() -> None:
    purse = Purse(Budget(max_calls=4, max_agent_time=100), SPENT + SPENT)
    order = purse.order()
    assert order["limits"] == {
        "calls": 4, "tokens_in": None, "tokens_out": None, "agent_s": 100, "cost": None,
    }  # fmt: skip
    assert order["used"]["tokens_in"] == 18000
    assert order["used"]["calls"] == 6
    assert order["price"] == {}
    priced = Purse(Budget(), SPENT, Price(input=2, output=8, as_of="2026-10")).order()
    assert priced["price"] == {"input": 2, "output": 8, "cached_input": None}
    assert purse.agent_s_left == 0
    assert Purse(Budget(max_agent_time=100), SPENT).agent_s_left == 38.5
    assert Purse(Budget(), SPENT).agent_s_left is None


def test_a_limit_of_the_cost_warns_of_models_without_a_price() -> None:
    price = Price(input=1, output=1)
    budget = Budget(max_cost=5)
    assert unpriced(budget, {"openai/a": price}) is None
    assert unpriced(Budget(), {"tiny:1b": None}) is None
    warning = unpriced(budget, {"openai/a": price, "tiny:1b": None})
    assert warning == "--max-cost does not limit tiny:1b: no price is known"


def test_the_users_limits_win_over_the_tasks() -> None:
    task = Budget(max_calls=10, max_tokens_in=5)
    assert chosen(Budget(max_calls=2), task) == Budget(max_calls=2, max_tokens_in=5)
    assert chosen(Budget(), task) == task
