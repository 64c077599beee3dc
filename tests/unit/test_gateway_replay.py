"""The gateway answering from a recording: the same replies in the same shape, or a difference."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_apis import FakeApis
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.records.calls import CallRecord

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello?\nWho are you?"}]}
CHAT, OPENAI = "/api/chat", "/v1/chat/completions"

Work = Callable[[httpx.Client], Any]


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama("m") as server:
        server.reply = "A reply that is longer than one piece of a stream, " * 5
        server.thinking = "Let me see. " * 9
        yield server


@pytest.fixture
def live(tmp_path: Path, fake: FakeOllama) -> Iterator[LiveGateway]:
    (tmp_path / "live").mkdir()
    with LiveGateway(tmp_path / "live") as gateway:
        gateway.order("ollama", url=fake.url)
        yield gateway


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway that knows of no model server at all."""
    (tmp_path / "offline").mkdir()
    with LiveGateway(tmp_path / "offline") as gateway:
        yield gateway


def work(gateway: LiveGateway, do: Work, **opened: Any) -> tuple[Any, list[CallRecord]]:
    token = gateway.open(**opened)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=30) as http:
        result = do(http)
    return result, gateway.close(token)


def deliver(gateway: LiveGateway, calls: list[CallRecord], run: str = "r") -> None:
    path = gateway.desk.recorder.folder / f"replay-{run}.jsonl"
    path.write_text("".join(json.dumps(call.model_dump()) + "\n" for call in calls))
    assert gateway.order("replay", run=run, path=str(path)) == {"calls": len(calls)}


def both(
    live: LiveGateway, offline: LiveGateway, do: Work, **opened: Any
) -> tuple[Any, Any, list[CallRecord]]:
    """What the agent got and gets, and the calls of the replay, which are as they were."""
    was, calls = work(live, do, **opened)
    deliver(offline, calls)
    now, again = work(offline, do, upstream="replay", **opened)
    for one, other in zip(calls, again, strict=True):
        assert told(one) == told(other)
    assert {call.upstream for call in again} == {"replay"}
    return was, now, again


def told(call: CallRecord) -> dict[str, Any]:
    """All of a call but when it was and what it took here."""
    left_out = {"at", "upstream", "first_token_s", "duration_s", "attempts"}
    attempts = [(one.cause, one.status, one.handed_on) for one in call.attempts]
    return call.model_dump(exclude=left_out) | {"attempts": attempts}


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def joined(answer: httpx.Response, field: str) -> str:
    return "".join(line["message"].get(field) or "" for line in lines(answer))


def test_a_stream_comes_as_a_stream_with_its_reasoning_and_its_last_line(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    was, now, _ = both(live, offline, lambda http: http.post(CHAT, json=ASK))
    assert now.headers["content-type"] == was.headers["content-type"] == "application/x-ndjson"
    assert joined(now, "content") == fake.reply
    assert joined(now, "thinking") == fake.thinking
    assert len(lines(now)) > 3
    last, before = lines(now)[-1], lines(was)[-1]
    assert {k: v for k, v in last.items() if k != "created_at"} == {
        k: v for k, v in before.items() if k != "created_at"
    }


def test_generate_and_a_whole_reply_come_back(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    def do(http: httpx.Client) -> list[Any]:
        one = http.post("/api/generate", json={"model": "m", "prompt": "Hi", "stream": False})
        return [one.json(), http.post(CHAT, json=ASK | {"stream": False}).json()]

    was, now, _ = both(live, offline, do)
    assert now[0]["response"] == was[0]["response"] == fake.reply
    assert now[0]["thinking"] == was[0]["thinking"] == fake.thinking
    assert now[1]["message"] == was[1]["message"]


def test_server_sent_events_come_as_such(live: LiveGateway, offline: LiveGateway) -> None:
    body = ASK | {"stream": True, "stream_options": {"include_usage": True}}
    was, now, _ = both(live, offline, lambda http: http.post(OPENAI, json=body))
    assert now.headers["content-type"] == was.headers["content-type"]
    assert "text/event-stream" in now.headers["content-type"]
    assert said(now) == said(was)
    assert now.text.endswith("data: [DONE]\n\n")


def said(answer: httpx.Response) -> tuple[str, str, Any]:
    """Text, reasoning and usage of a stream of events."""
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n")[:-2]]
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    return (
        "".join(delta.get("content") or "" for delta in deltas),
        "".join(delta.get("reasoning") or "" for delta in deltas),
        events[-1]["usage"],
    )


@pytest.mark.parametrize("faults", [["not-found"], ["oom"] * 3, ["busy", "oom"], ["no-thinking"]])
def test_errors_and_attempts_come_as_they_came(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama, faults: list[str]
) -> None:
    fake.faults.extend(faults)
    was, now, again = both(live, offline, lambda http: http.post(CHAT, json=ASK))
    assert now.status_code == was.status_code
    if now.status_code != 200:
        assert now.json() == was.json()
    assert len(again[0].attempts) == (3 if len(faults) > 1 else 1)


@pytest.mark.parametrize("fault", ["cut", "no-done", "error-line", "garbage"])
def test_a_stream_that_broke_off_breaks_off_at_the_same_place(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama, fault: str
) -> None:
    fake.faults.append(fault)
    was, now, _ = both(live, offline, lambda http: http.post(CHAT, json=ASK))
    assert now.status_code == was.status_code == 200
    assert lines(now)[-1] == lines(was)[-1]
    assert lines(now)[-1].keys() == {"error"}


def test_a_reply_that_repeated_itself_is_cut_off_at_the_same_place(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    fake.reply = "Begin.\n" + "again and again\n" * 3000
    budget = {"max_reply_tokens": 20_000}
    was, now, again = both(live, offline, lambda http: http.post(CHAT, json=ASK), **budget)
    assert again[0].error is not None
    assert again[0].error.cause == "repetition"
    assert len(again[0].reply) < len(fake.reply)
    assert joined(now, "content") == joined(was, "content")
    assert lines(now)[-1]["done_reason"] == lines(was)[-1]["done_reason"] == "length"


def test_what_the_gateway_refused_it_refuses_again(live: LiveGateway, offline: LiveGateway) -> None:
    def do(http: httpx.Client) -> list[int]:
        refused = http.post(CHAT, json=ASK | {"model": "other"})
        return [refused.status_code, http.post(CHAT, json=ASK).status_code]

    was, now, _ = both(live, offline, do)
    assert now == was == [404, 200]


def test_several_calls_of_stages_and_turns_are_each_answered_with_their_own(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    calls: list[CallRecord] = []
    places = [("a", 0), ("b", 0), ("b", 1)]
    for stage, turn in places:
        fake.reply = f"reply of {stage} {turn}"
        recorded = work(live, lambda http: http.post(CHAT, json=ASK), stage=stage, turn=turn)
        calls += recorded[1]
    deliver(offline, calls)
    for stage, turn in reversed(places):
        answer, _ = work(
            offline,
            lambda http: http.post(CHAT, json=ASK),
            stage=stage,
            turn=turn,
            upstream="replay",
        )
        assert joined(answer, "content") == f"reply of {stage} {turn}"


def replayed(offline: LiveGateway, body: dict[str, Any], **opened: Any) -> tuple[int, str]:
    answer, calls = work(
        offline, lambda http: http.post(CHAT, json=body), upstream="replay", **opened
    )
    (call,) = calls
    assert call.error is not None
    assert (call.error.failure_class, call.error.cause) == ("replay-differs", "replay-differs")
    assert call.reply == ""
    assert answer.json()["error"] == f"replay-differs: {call.error.sentence}"
    return answer.status_code, call.error.sentence


def test_another_prompt_ends_the_call_with_what_differs(
    live: LiveGateway, offline: LiveGateway
) -> None:
    deliver(offline, work(live, lambda http: http.post(CHAT, json=ASK), stage="explore")[1])
    other = {"model": "m", "messages": [{"role": "user", "content": "Hello?\nWhat are you?"}]}
    status, sentence = replayed(offline, other, stage="explore")
    assert status == 409
    assert sentence.splitlines() == [
        "explore, call 1: messages[0].content differs from the recording in line 2",
        "  1   Hello?",
        "  2 - Who are you?",
        "  2 + What are you?",
    ]


def test_a_call_more_than_was_recorded_is_named(live: LiveGateway, offline: LiveGateway) -> None:
    deliver(offline, work(live, lambda http: http.post(CHAT, json=ASK), stage="implement")[1])
    _, sentence = replayed(offline, ASK, stage="implement", turn=1)
    assert sentence == "implement, repair turn 1: one more call than was recorded"


def test_runs_of_one_model_differ_in_their_seeds_and_replay_each_to_itself(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    for seed in (1, 2, 3, 4, 5):
        fake.reply = f"reply to seed {seed}"
        _, calls = work(live, lambda http: http.post(CHAT, json=ASK), run=f"r{seed}", seed=seed)
        deliver(offline, calls, run=f"r{seed}")
    for seed in (5, 4, 3, 2, 1):
        answer, _ = work(
            offline,
            lambda http: http.post(CHAT, json=ASK),
            run=f"r{seed}",
            seed=seed,
            upstream="replay",
        )
        assert joined(answer, "content") == f"reply to seed {seed}"
    _, sentence = replayed(offline, ASK, run="r1", seed=2)
    assert sentence == "s, call 1: pinned options.seed is 1 in the recording and 2 now"


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_model_behind_another_api_replays_what_that_api_had_room_for(
    live: LiveGateway, offline: LiveGateway, kind: str
) -> None:
    body = {"model": "fake", "messages": ASK["messages"], "options": {"top_k": 5, "num_ctx": 99}}
    with FakeApis(key="sk-0123456789") as api:
        live.order("remote", kind="openai", url=f"{api.url}/v1", key="sk-0123456789")
        live.order("remote", kind="anthropic", url=api.url, key="sk-0123456789")
        _, calls = work(
            live, lambda http: http.post(CHAT, json=body), model="fake", upstream=kind, seed=3
        )
    assert calls[0].error is None
    assert calls[0].cached_tokens > 0
    recorded = calls
    for _ in range(2):  # the second time it is the replay that is replayed
        deliver(offline, recorded)
        answer, again = work(
            offline,
            lambda http: http.post(CHAT, json=body),
            model="fake",
            upstream="replay",
            seed=3,
        )
        assert joined(answer, "content") == calls[0].reply
        assert told(again[0]) == told(calls[0])
        recorded = again


def test_a_run_without_a_recording_is_told_so(offline: LiveGateway) -> None:
    answer, _ = work(offline, lambda http: http.post(CHAT, json=ASK), upstream="replay")
    assert answer.status_code == 404
    assert "no recording for 'r'" in answer.json()["error"]


def test_inventory_needs_no_model_server(offline: LiveGateway) -> None:
    def do(http: httpx.Client) -> list[int]:
        asked = [http.get("/api/tags"), http.get("/api/ps"), http.get("/api/version")]
        asked.append(http.post("/api/show", json={"model": "m"}))
        return [answer.status_code for answer in asked]

    assert work(offline, do, upstream="replay")[0] == [200] * 4


def test_an_agent_that_had_left_by_then_is_waited_for(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("hang-midway")

    def leave(http: httpx.Client) -> str:
        with http.stream("POST", CHAT, json=ASK) as answer:
            return next(answer.iter_lines())

    _, calls = work(live, leave)
    assert calls[0].error is not None
    assert calls[0].error.cause == "client-gone"
    deliver(offline, calls)
    _, again = work(offline, leave, upstream="replay")
    assert again[0].error is not None
    assert again[0].error.cause == "client-gone"


def test_a_recording_that_can_not_be_read_is_an_error_of_the_order(offline: LiveGateway) -> None:
    path = offline.desk.recorder.folder / "broken.jsonl"
    path.write_text('{"stage": "a", "tur')
    with pytest.raises(ValueError, match="Unterminated"):
        offline.order("replay", run="r", path=str(path))


def test_where_the_agents_time_ended_it_ends_again(
    live: LiveGateway, offline: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("hang-midway")
    order = {"run": "r", "stage": "s", "turn": 0, "model": "m", "sources": ["127.0.0.0/8"]}
    pins = {"num_ctx": 8192, "seed": 7, "max_reply_tokens": 500}
    limit = {"limits": {"agent_s": 20.3}, "used": {"agent_s": 20}}
    answers: list[list[tuple[int, str]]] = []
    records: list[list[CallRecord]] = []
    for gateway, upstream, wallet in ((live, "ollama", limit), (offline, "replay", {})):
        opened = gateway.order("open", **order, upstream=upstream, pins=pins, wallet=wallet)
        headers = {"Authorization": f"Bearer {opened['token']}"}
        with httpx.Client(base_url=gateway.url, headers=headers, timeout=30) as http:
            sent = [http.post(CHAT, json=ASK) for _ in range(2)]
        answers.append([(one.status_code, one.text.splitlines()[-1]) for one in sent])
        records.append(gateway.close(opened["token"]))
        deliver(offline, records[0])
    assert answers[0] == answers[1]
    assert "the call was ended" in answers[0][0][1]
    assert [status for status, _ in answers[0]] == [200, 402]
    assert records[0][0].reply == records[1][0].reply != ""
    causes = [[call.error and call.error.cause for call in calls] for calls in records]
    assert causes == [["budget-time", "budget-exhausted"]] * 2
