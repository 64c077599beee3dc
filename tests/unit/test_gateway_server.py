"""The gateway's server against a faithful fake of Ollama: what passes, what is pinned, what is
refused, what is recorded."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.records.failures import FailureClass

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama("m") as server:
        server.reply = "Hello, this is a reply of some length.\n"
        yield server


def client(gateway: LiveGateway, token: str, **headers: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}", **headers}
    return httpx.Client(base_url=gateway.url, headers=headers, timeout=30)


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


# --- what passes ---------------------------------------------------------------------------


def test_a_stream_passes_as_the_server_sent_it(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.thinking = "Let me think about that."
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.post("/api/chat", json=ASK)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    direct = httpx.post(f"{fake.url}/api/chat", json=ASK)
    sent = lines_of(answer)
    assert [line["message"] for line in sent] == [line["message"] for line in lines_of(direct)]
    assert sent[-1]["done"] is True
    (call,) = gateway.close(token)
    assert call.reply == fake.reply
    assert call.thinking == fake.thinking
    assert call.done_reason == "stop"
    assert (call.prompt_tokens, call.reply_tokens) == (2, 17)
    assert not call.tokens_estimated
    assert call.timings.load_s == pytest.approx(2.5)
    assert call.first_token_s is not None
    assert 0 < call.first_token_s <= call.duration_s
    assert [attempt.cause for attempt in call.attempts] == ["ok"]
    assert call.error is None


def test_without_a_stream_the_reply_comes_whole(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.thinking = "Hm."
    token = gateway.open()
    with client(gateway, token) as http:
        chat = http.post("/api/chat", json=ASK | {"stream": False}).json()
        generated = http.post(
            "/api/generate", json={"model": "m", "prompt": "Hi", "stream": False}
        ).json()
    assert chat["message"] == {"role": "assistant", "content": fake.reply, "thinking": "Hm."}
    assert chat["done"] is True
    assert generated["response"] == fake.reply
    assert [call.endpoint for call in gateway.close(token)] == ["chat", "generate"]


def test_inventory_shows_this_stages_model_only(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.models["other:latest"] = fake.models["m:latest"]
    token = gateway.open()
    with client(gateway, token) as http:
        http.post("/api/chat", json=ASK)
        assert [m["name"] for m in http.get("/api/tags").json()["models"]] == ["m:latest"]
        assert [m["context_length"] for m in http.get("/api/ps").json()["models"]] == [8192]
        assert http.get("/api/version").json() == {"version": "0.33.1"}
        shown = http.post("/api/show", json={"name": "m:latest"})
        assert shown.json()["model_info"]["fake.context_length"] == 131072
        assert http.post("/api/show", json={"model": "other"}).status_code == 404


# --- what is pinned ------------------------------------------------------------------------


def test_model_context_seed_and_budget_are_pinned_and_recorded(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    token = gateway.open(temperature=0.2)
    asked = ASK | {
        "model": "m:latest",
        "keep_alive": 0,
        "truncate": True,
        "_debug_render_only": True,
        "options": {"num_ctx": 2048, "num_gpu": 0, "top_p": 0.5, "num_predict": -1, "seed": 1},
    }
    with client(gateway, token) as http:
        http.post("/api/chat", json=asked)
    (sent,) = fake.asked("/api/chat")
    assert sent == {
        "model": "m",
        "messages": ASK["messages"],
        "stream": True,
        "truncate": False,
        "shift": False,
        "keep_alive": "1h",
        "options": {
            "num_ctx": 8192,
            "seed": 7,
            "num_predict": 500,
            "temperature": 0.2,
            "top_p": 0.5,
        },
    }
    (call,) = gateway.close(token)
    assert call.request == asked
    pinned = {name: (change.asked, change.sent) for name, change in call.pinned.items()}
    assert pinned == {
        "_debug_render_only": (True, None),
        "keep_alive": (0, "1h"),
        "model": ("m:latest", "m"),
        "options.num_ctx": (2048, 8192),
        "options.num_gpu": (0, None),
        "options.num_predict": (-1, 500),
        "options.seed": (1, 7),
        "options.temperature": (None, 0.2),
        "shift": (None, False),
        "truncate": (True, False),
    }


def test_the_models_own_temperature_stands_where_the_trial_gives_none(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    token = gateway.open()
    with client(gateway, token) as http:
        http.post("/api/chat", json=ASK | {"options": {"temperature": 0, "num_predict": 10}})
    (sent,) = fake.asked("/api/chat")
    assert sent["options"] == {"num_ctx": 8192, "seed": 7, "num_predict": 10}


# --- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({}, 401, "no-token"),
        ({"Authorization": "Bearer"}, 401, "no-token"),
        ({"Authorization": "Basic abc"}, 401, "no-token"),
        ({"Authorization": "Bearer wrong"}, 401, "unknown-token"),
    ],
)
def test_no_call_without_the_right_token(
    gateway: LiveGateway, fake: FakeOllama, headers: dict[str, str], status: int, reason: str
) -> None:
    gateway.open()
    for path in ("/api/chat", "/api/pull", "/nowhere"):
        answer = httpx.post(f"{gateway.url}{path}", json=ASK, headers=headers)
        assert answer.status_code == status
        assert answer.json()["error"].startswith("refused: ")
    assert gateway.order("status")["refused"] == {reason: 3}
    assert fake.requests == []


def test_the_right_token_from_the_wrong_network_is_refused(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    token = gateway.open(sources=("10.1.2.0/24",))
    with client(gateway, token, **{"X-Forwarded-For": "10.1.2.3", "X-Real-IP": "10.1.2.3"}) as http:
        answer = http.post("/api/chat", json=ASK)
    assert answer.status_code == 403
    assert "network" in answer.json()["error"]
    assert fake.requests == []
    assert gateway.close(token) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/pull"),
        ("POST", "/api/push"),
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("DELETE", "/api/delete"),
        ("POST", "/api/embed"),
        ("POST", "/api/blobs/sha256:0"),
        ("GET", "/"),
        ("GET", "/api/chat"),
        ("POST", "/api/../api/pull"),
        ("POST", "//api/chat"),
        ("OPTIONS", "/api/chat"),
        ("PUT", "/api/tags"),
    ],
)
def test_nothing_but_the_model_is_let_through(
    gateway: LiveGateway, fake: FakeOllama, method: str, path: str
) -> None:
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.request(method, path, json={"model": "m"})
    assert answer.status_code in (403, 405)
    if answer.status_code == 403:
        (call,) = gateway.close(token)
        assert call.error is not None
        assert call.error.cause == "refused"
        assert call.error.failure_class is None
        assert call.attempts == []
    assert fake.requests == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"model": "m", "options": {"temperature": NaN}}', 400),
        (b'{"a":' * 100_000, 413),
        (b"\xff\xfe", 400),
        (b'{"model": "' + b"x" * (9 << 20) + b'"}', 413),
        (b'{"model": "other", "messages": []}', 404),
        (b'{"messages": []}', 404),
        (b'{"model": ["m"]}', 404),
    ],
)
def test_bad_requests_are_refused_and_recorded(
    gateway: LiveGateway, fake: FakeOllama, body: bytes, status: int
) -> None:
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.post("/api/chat", content=body)
        assert answer.status_code == status
        assert answer.json()["error"].startswith("refused: ")
        assert http.post("/api/chat", json=ASK).status_code == 200
    first, second = gateway.close(token)
    assert first.error is not None
    assert (first.seq, second.seq) == (0, 1)
    assert second.error is None
    assert len(fake.requests) == 1


def test_odd_but_valid_requests_are_recorded(gateway: LiveGateway) -> None:
    token = gateway.open()
    odd = {"model": "m", "messages": [{"role": "user", "content": "\ud83d half \u0000"}]}
    with client(gateway, token) as http:
        http.post("/api/chat", content=json.dumps(odd))
        http.post("/api/chat", json=ASK | {"options": "none"})
    first, second = gateway.close(token)
    assert first.request == odd
    assert second.error is None


# --- what goes wrong -----------------------------------------------------------------------

CLASS_OF = {
    "oom": ("out-of-memory", FailureClass.MODEL_SERVER_ERROR, 502, 3),
    "oom-old": ("out-of-memory", FailureClass.MODEL_SERVER_ERROR, 502, 3),
    "crashed": ("server-error", FailureClass.MODEL_SERVER_ERROR, 502, 3),
    "canceled": ("server-error", FailureClass.MODEL_SERVER_ERROR, 502, 3),
    "busy": ("busy", FailureClass.MODEL_UNAVAILABLE, 503, 3),
    "not-found": ("not-found", FailureClass.MODEL_UNAVAILABLE, 404, 1),
    "no-thinking": ("bad-request", FailureClass.MODEL_SERVER_ERROR, 400, 1),
    "html": ("not-ollama", FailureClass.MODEL_SERVER_ERROR, 502, 1),
    "load": ("only-loaded", FailureClass.MODEL_SERVER_ERROR, 502, 3),
    "unload": ("only-loaded", FailureClass.MODEL_SERVER_ERROR, 502, 3),
}
MIDWAY = {
    "cut": "cut",
    "no-done": "no-done",
    "error-line": "out-of-memory",
    "garbage": "malformed",
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", sorted(CLASS_OF))
def test_each_failure_has_its_cause_and_bounded_attempts(
    gateway: LiveGateway, fake: FakeOllama, fault: str, stream: bool
) -> None:
    cause, failure_class, status, attempts = CLASS_OF[fault]
    fake.faults.extend([fault] * 9)
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.post("/api/chat", json=ASK | {"stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"].startswith(f"{failure_class}: ")
    assert len(fake.asked("/api/chat")) == attempts
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.cause == cause
    assert call.error.failure_class is failure_class
    assert [attempt.cause for attempt in call.attempts] == [cause] * attempts
    assert call.reply == ""


@pytest.mark.parametrize("fault", sorted(MIDWAY))
def test_a_reply_that_breaks_off_never_looks_whole(
    gateway: LiveGateway, fake: FakeOllama, fault: str
) -> None:
    fake.faults.append(fault)
    token = gateway.open()
    with client(gateway, token) as http:
        streamed = lines_of(http.post("/api/chat", json=ASK))
    assert not any(line.get("done") for line in streamed)
    assert streamed[-1]["error"].startswith("model-server-error: ")
    assert len(fake.asked("/api/chat")) == 1
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.cause == MIDWAY[fault]
    assert fake.reply.startswith(call.reply)
    assert 0 < len(call.reply) < len(fake.reply)
    assert call.attempts[0].handed_on


@pytest.mark.parametrize("fault", sorted(MIDWAY))
def test_what_breaks_off_before_the_first_token_is_tried_again(
    gateway: LiveGateway, fake: FakeOllama, fault: str
) -> None:
    fake.faults.append(fault)
    fake.reply = ""
    token = gateway.open()
    with client(gateway, token) as http:
        assert lines_of(http.post("/api/chat", json=ASK))[-1]["done"] is True
    (call,) = gateway.close(token)
    assert [attempt.cause for attempt in call.attempts] == [MIDWAY[fault], "ok"]


def test_without_a_stream_half_a_reply_is_tried_again_too(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("cut")
    token = gateway.open()
    with client(gateway, token) as http:
        answer = http.post("/api/chat", json=ASK | {"stream": False})
    assert answer.json()["message"]["content"] == fake.reply
    (call,) = gateway.close(token)
    assert [attempt.cause for attempt in call.attempts] == ["cut", "ok"]
    assert call.reply == fake.reply


def test_passing_trouble_is_waited_out_and_recorded(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.faults.extend(["busy", "oom"])
    token = gateway.open()
    with client(gateway, token) as http:
        assert lines_of(http.post("/api/chat", json=ASK))[-1]["done"] is True
    (call,) = gateway.close(token)
    assert [attempt.cause for attempt in call.attempts] == ["busy", "out-of-memory", "ok"]
    assert call.attempts[1].detail.endswith("cudaMalloc failed")
    assert call.error is None


@pytest.mark.parametrize(("fault", "content"), [("empty", ""), ("think-only", "")])
def test_an_empty_reply_is_a_reply(
    gateway: LiveGateway, fake: FakeOllama, fault: str, content: str
) -> None:
    fake.faults.append(fault)
    token = gateway.open()
    with client(gateway, token) as http:
        assert lines_of(http.post("/api/chat", json=ASK))[-1]["done"] is True
    (call,) = gateway.close(token)
    assert call.error is None
    assert call.reply == content
    assert call.done_reason == ("stop" if fault == "empty" else "length")
    assert bool(call.thinking) is (fault == "think-only")


def test_the_reply_cap_ends_in_length(gateway: LiveGateway, fake: FakeOllama) -> None:
    fake.reply = "x" * 4000
    token = gateway.open(max_reply_tokens=100)
    with client(gateway, token) as http:
        http.post("/api/chat", json=ASK)
    (call,) = gateway.close(token)
    assert call.done_reason == "length"
    assert len(call.reply) == 400


@pytest.mark.parametrize("messages", [1, 3])
def test_a_prompt_that_does_not_fit_is_never_cut(
    gateway: LiveGateway, fake: FakeOllama, messages: int
) -> None:
    token = gateway.open(num_ctx=1024)
    long = {"role": "user", "content": "x" * 3000}
    with client(gateway, token) as http:
        answer = http.post(
            "/api/chat", json={"model": "m", "messages": [long, long][:messages] * 3}
        )
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("context-overflow: ")
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.failure_class is FailureClass.CONTEXT_OVERFLOW
    assert call.error.context_tokens == 1024
    assert call.error.prompt_tokens is not None
    assert call.error.prompt_tokens > 1024
    assert len(call.attempts) == 1


@pytest.mark.parametrize(
    ("fault", "pins", "cause"),
    [
        ("hang", {"silence_s": 0.3}, "no-first-token"),
        ("hang-midway", {"silence_s": 0.3}, "stalled"),
        ("hang", {"total_s": 0.3}, "too-long"),
        ("hang-midway", {"total_s": 0.3}, "too-long"),
    ],
)
def test_silence_has_an_end(
    gateway: LiveGateway, fake: FakeOllama, fault: str, pins: dict[str, float], cause: str
) -> None:
    fake.faults.append(fault)
    token = gateway.open(**pins)
    with client(gateway, token) as http:
        answer = http.post("/api/chat", json=ASK)
    assert answer.status_code == (504 if fault == "hang" else 200)
    assert lines_of(answer)[-1]["error"].startswith("model-server-error: ")
    (call,) = gateway.close(token)
    assert call.error is not None
    assert call.error.cause == cause
    assert len(fake.asked("/api/chat")) == 1


def test_no_server_at_all(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway:
        token = gateway.open()
        with client(gateway, token) as http:
            unknown = http.post("/api/chat", json=ASK)
            gateway.order("ollama", url="http://127.0.0.1:9")
            refused = http.post("/api/chat", json=ASK)
        assert unknown.status_code == refused.status_code == 502
        assert refused.json()["error"].startswith("model-unavailable: ")
        (call,) = gateway.close(token)
        assert [attempt.cause for attempt in call.attempts] == ["unreachable"] * 3


# --- leaving and closing -------------------------------------------------------------------


def test_an_agent_that_leaves_ends_the_call_upstream(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    for fault in ("hang-midway", "hang"):
        fake.faults.append(fault)
        token = gateway.open()
        with pytest.raises(httpx.ReadTimeout), client(gateway, token) as http:
            http.post("/api/chat", json=ASK, timeout=0.5)
        wait_until(lambda: gateway.order("status")["recorded"] > 0)
        (call,) = gateway.close(token)
        assert call.error is not None
        assert call.error.cause == "client-gone"
        assert call.error.failure_class is None
        gateway.desk.recorder.lines = 0
    wait_until(lambda: fake.clients_gone == 2)


def test_closing_ends_what_is_in_progress_and_the_record_is_complete(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.faults.append("hang-midway")
    token = gateway.open()
    with client(gateway, token) as http:
        with http.stream("POST", "/api/chat", json=ASK) as answer:
            lines = answer.iter_lines()
            next(lines)
            (call,) = gateway.close(token)
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert call.error is not None
        assert call.error.cause == "client-gone"
        assert http.post("/api/chat", json=ASK).status_code == 401
    with pytest.raises(ValueError, match="no such token"):
        gateway.order("close", token=token)


def wait_until(holds: Any) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("did not come true")


# --- scripted models and two runs at once --------------------------------------------------

SCRIPTS = {
    "careful": {"explore": {"0": "First.\n" * 30, "1": "Mended.\n"}},
    "careless": {"explore": {"0": "Other.\n"}},
}


def test_scripted_replies_have_the_shape_of_ollamas(
    gateway: LiveGateway, fake: FakeOllama, tmp_path: Path
) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(json.dumps(SCRIPTS))
    assert gateway.order("scripts", path=str(path)) == {"models": ["careful", "careless"]}
    texts = {}
    for stage, turn in (("explore", 0), ("explore", 1), ("explore", 2), ("decide", 0)):
        token = gateway.open("careful", upstream="scripted", stage=stage, turn=turn)
        with client(gateway, token) as http:
            answer = http.post("/api/chat", json=ASK | {"model": "careful"})
            assert http.post("/api/chat", json=ASK).status_code == 404
        sent = lines_of(answer)
        texts[stage, turn] = "".join(line["message"]["content"] for line in sent)
        shape = {
            key for line in lines_of(httpx.post(f"{fake.url}/api/chat", json=ASK)) for key in line
        }
        assert {key for line in sent for key in line} <= shape
        assert sent[-1]["done_reason"] == "stop"
        assert [line["done"] for line in sent] == [False] * (len(sent) - 1) + [True]
        call = gateway.close(token)[0]
        assert call.upstream == "scripted"
        assert call.tokens_estimated
        assert call.reply_tokens == -(-len(call.reply) // 4)
    assert texts == {
        ("explore", 0): "First.\n" * 30,
        ("explore", 1): "Mended.\n",
        ("explore", 2): "",
        ("decide", 0): "",
    }
    assert fake.asked("/api/tags") == []


def test_a_list_of_scripted_replies_has_one_for_each_call(
    gateway: LiveGateway, tmp_path: Path
) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(json.dumps({"m": {"s": {"0": ["First.", "", "Third."], "1": "Always."}}}))
    gateway.order("scripts", path=str(path))
    for turn, said in ((0, ["First.", "", "Third.", ""]), (1, ["Always.", "Always."])):
        token = gateway.open("m", upstream="scripted", stage="s", turn=turn)
        with client(gateway, token) as http:
            for text in said:
                answer = http.post("/api/chat", json=ASK | {"model": "m", "stream": False})
                assert answer.json()["message"]["content"] == text
        assert [call.reply for call in gateway.close(token)] == said


def test_an_undelivered_script_is_an_unavailable_model(gateway: LiveGateway) -> None:
    token = gateway.open("nobody", upstream="scripted")
    with client(gateway, token) as http:
        answer = http.post("/api/chat", json=ASK | {"model": "nobody"})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("model-unavailable: ")


def test_two_runs_at_once_do_not_mix(gateway: LiveGateway, tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(json.dumps(SCRIPTS))
    gateway.order("scripts", path=str(path))
    tokens = {
        model: gateway.open(model, upstream="scripted", run=f"run-{model}", stage="explore")
        for model in SCRIPTS
    }

    def ask(model: str) -> str:
        with client(gateway, tokens[model]) as http:
            answer = http.post("/api/chat", json=ASK | {"model": model, "stream": False})
            return str(answer.json()["message"]["content"])

    with ThreadPoolExecutor(8) as pool:
        asked = [*SCRIPTS] * 12
        replies = list(pool.map(ask, asked))
    assert replies == [SCRIPTS[model]["explore"]["0"] for model in asked]
    for model, token in tokens.items():
        calls = gateway.close(token)
        assert {(call.run, call.model) for call in calls} == {(f"run-{model}", model)}
        assert [call.seq for call in sorted(calls, key=lambda c: c.seq)] == list(range(12))
