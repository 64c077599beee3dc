"""Steering the gateway: `ctl` over the unix socket, `fetch` from where the gateway stands."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.gateway.server.causes import CAUSES, of_answer, of_error_line
from orchestrator.records.failures import FailureClass

SERVER = "orchestrator.gateway.server"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[LiveGateway]:
    with LiveGateway(tmp_path) as server:
        yield server


def run(module: str, *args: str, stdin: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"{SERVER}.{module}", *args],
        input=stdin if isinstance(stdin, str) else json.dumps(stdin),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_orders_go_over_the_socket(gateway: LiveGateway) -> None:
    order = {
        "do": "open", "run": "r", "stage": "s", "turn": 0, "model": "m", "upstream": "scripted",
        "sources": ["172.20.0.0/16"],
        "pins": {"num_ctx": 4096, "seed": 1, "max_reply_tokens": 100},
    }  # fmt: skip
    opened = json.loads(run("ctl", gateway.socket, stdin=order).stdout)
    assert len(opened["token"]) >= 32
    assert json.loads(run("ctl", gateway.socket, stdin={"do": "status"}).stdout)["open"] == 1
    closed = json.loads(run("ctl", gateway.socket, stdin={"do": "close", **opened}).stdout)
    assert closed["lines"] == 0


@pytest.mark.parametrize(
    "order",
    [
        "{",
        "",
        "[]",
        {},
        {"do": "dance"},
        {"do": "close", "token": "no"},
        {"do": "open", "run": "r"},
        {"do": "scripts", "path": "/nowhere"},
    ],
)
def test_bad_orders_are_answered(gateway: LiveGateway, order: object) -> None:
    answer = run("ctl", gateway.socket, stdin=order)
    assert "error" in json.loads(answer.stdout)
    assert "open" in json.loads(run("ctl", gateway.socket, stdin={"do": "status"}).stdout)


def test_a_gateway_that_is_not_there(tmp_path: Path) -> None:
    answer = run("ctl", str(tmp_path / "none.sock"), stdin={"do": "status"})
    assert answer.returncode == 1
    assert "does not listen" in answer.stderr


def fetch(url: str, method: str = "GET", body: str = "", timeout_s: float = 10.0) -> Any:
    order = {"url": url, "method": method, "body": body, "timeout_s": timeout_s}
    head, _, rest = run("fetch", stdin=order).stdout.partition("\n")
    return json.loads(head), rest


def test_fetch_gives_status_headers_and_body() -> None:
    with FakeOllama("m") as fake:
        head, body = fetch(f"{fake.url}/api/version")
        assert head["status"] == 200
        assert json.loads(body) == {"version": "0.33.1"}
        head, body = fetch(f"{fake.url}/api/show", "POST", json.dumps({"model": "gone"}))
        assert (head["status"], json.loads(body)) == (404, {"error": "model 'gone' not found"})
        fake.faults.append("hang")
        ask = json.dumps({"model": "m", "messages": [{"content": "x"}]})
        head, _ = fetch(f"{fake.url}/api/chat", "POST", ask, timeout_s=0.3)
        assert head["timeout"] is True
    head, _ = fetch("http://127.0.0.1:9/api/version")
    assert "refused" in head["error"]


# --- the reading of a server's words -------------------------------------------------------

LIMIT = "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it"
INNER = json.dumps(
    {
        "error": {
            "code": 400,
            "message": LIMIT,
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000,
            "n_ctx": 4096,
        }
    }
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (json.dumps({"error": INNER}), (9000, 4096)),
        (json.dumps({"error": json.loads(INNER)["error"]}), (9000, 4096)),
        (json.dumps({"error": LIMIT}), (9000, 4096)),
        (json.dumps({"error": {"message": LIMIT}}), (9000, 4096)),
        (
            json.dumps(
                {
                    "error": "the prompt is longer than the context length currently available to "
                    "the model; shorten the prompt"
                }
            ),
            (None, None),
        ),
        (json.dumps({"error": "the input length exceeds the context length"}), (None, None)),
    ],
)
def test_every_shape_of_an_overflow(text: str, numbers: tuple[int | None, int | None]) -> None:
    failed = of_answer(400, text)
    assert failed.cause == "context-overflow"
    assert (failed.prompt_tokens, failed.context_tokens) == numbers
    assert "does not fit" in failed.sentence


@pytest.mark.parametrize(
    ("status", "text", "cause"),
    [
        (500, '{"error":"llama runner process has terminated: CUDA error: out of memory"}',
         "out-of-memory"),
        (500, '{"error":"llama-server reported out-of-memory during startup: x"}', "out-of-memory"),
        (500, '{"error":"model requires more system memory (9 GiB) than is available"}',
         "out-of-memory"),
        (500, '{"error":"unexpected EOF"}', "server-error"),
        (500, "", "server-error"),
        (502, "<html>bad gateway</html>", "server-error"),
        (503, '{"error":"server busy, please try again.  maximum pending requests exceeded"}',
         "busy"),
        (404, '{"error":"model \'x\' not found"}', "not-found"),
        (404, '{"error":"model \\"x\\" not found, try pulling it first"}', "not-found"),
        (499, '{"error":"request canceled"}', "server-error"),
        (429, "slow down", "server-error"),
        (400, '{"error":"\\"x\\" does not support thinking"}', "bad-request"),
        (400, "[1, 2]", "bad-request"),
        (403, "", "bad-request"),
    ],
)  # fmt: skip
def test_answers_and_their_causes(status: int, text: str, cause: str) -> None:
    assert of_answer(status, text).cause == cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("an error was encountered while running the model: CUDA error: out of memory",
         "out-of-memory"),
        ("unexpected EOF", "error-line"),
        ({"message": "x"}, "error-line"),
        (None, "error-line"),
        (INNER, "context-overflow"),
    ],
)  # fmt: skip
def test_error_lines_and_their_causes(error: object, cause: str) -> None:
    assert of_error_line(error).cause == cause


def test_causes_name_classes_of_the_failure_table() -> None:
    assert {cause.failure_class for cause in CAUSES.values()} - {""} <= set(FailureClass)
