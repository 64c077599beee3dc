"""Where a request departs from the recorded one: what is named, and what is shown of it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.gateway.server.difference import difference

PROMPT = "\n".join(f"line {number}" for number in range(1, 21))


def ask(prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be."}, {"role": "user", "content": prompt}]
    return {"model": "m", "messages": messages, "stream": True, **more}


def recorded(**more: Any) -> dict[str, Any]:
    return {
        "endpoint": "chat",
        "request": ask(),
        "pinned": {"options.seed": {"asked": None, "sent": 7}},
        "error": None,
    } | more


SEED = {"options.seed": {"asked": None, "sent": 7}}


def found(body: dict[str, Any], pinned: dict[str, Any] = SEED, **more: Any) -> str:
    return difference(recorded(**more), "chat", body, pinned)


def test_the_same_request_does_not_differ() -> None:
    assert found(ask()) == ""


def test_a_changed_line_is_shown_with_the_lines_before_it() -> None:
    assert found(ask(PROMPT.replace("line 9", "line nine"))).splitlines() == [
        "messages[1].content differs from the recording in line 9",
        "  7   line 7",
        "  8   line 8",
        "  9 - line 9",
        "  9 + line nine",
    ]


def test_the_end_of_a_text_is_told() -> None:
    assert found(ask(PROMPT + "\nmore")).splitlines()[-2:] == [
        "  21 - (the text ends before)",
        "  21 + more",
    ]
    assert "(the text ends before)" in found(ask(PROMPT[:-8])).splitlines()[-1]


def test_of_a_long_line_the_part_that_differs_is_shown() -> None:
    long = "a" * 5000
    request = ask(f"{long}X{long}")
    lines = found(ask(f"{long}Y{long}"), request=request).splitlines()
    assert "aX" in lines[-2]
    assert "aY" in lines[-1]
    assert all(len(line) < 200 for line in lines)


def test_a_difference_is_short_whatever_the_texts_are() -> None:
    text = "\n".join("é" * 3000 for _ in range(50))
    request = ask(text)
    assert len(found(ask(text + "é"), request=request)) < 1000


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (ask(think=True), "think is absent in the recording and true now"),
        (ask(stream=False), "stream is true in the recording and false now"),
        (ask() | {"model": "n"}, "model differs"),
        (ask() | {"messages": ask()["messages"][:1]}, "messages[1] is {"),
        (
            ask() | {"messages": [*ask()["messages"], {"role": "tool"}]},
            'messages[2] is absent in the recording and {"role": "tool"} now',
        ),
    ],
)
def test_any_other_difference_is_named(body: dict[str, Any], says: str) -> None:
    assert says in found(body)


def test_true_is_not_one() -> None:
    assert found(ask(n=True), request=ask(n=1)) == "n is 1 in the recording and true now"


def test_half_a_surrogate_pair_is_as_the_record_keeps_it() -> None:
    assert found(ask("half \ud83d"), request=ask("half ?")) == ""


def test_another_seed_is_another_request() -> None:
    other = {"options.seed": {"asked": None, "sent": 8}}
    assert found(ask(), other) == "pinned options.seed is 7 in the recording and 8 now"


def test_another_endpoint_or_a_refusal_is_named() -> None:
    assert found(ask(), endpoint="openai-chat").startswith("endpoint openai-chat is recorded")
    refused = {"cause": "refused", "sentence": "the request is not valid JSON"}
    assert "refused when it was recorded: the request" in found(ask(), error=refused)
