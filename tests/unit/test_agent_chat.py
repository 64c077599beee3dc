"""The built-in agent through the gateway to a server that misbehaves: half a reply is never
applied, tries are bounded and visible, each failure has its class."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.agents.builtin.__main__ import work
from orchestrator.agents.builtin.chat import SYSTEM_PROMPT
from orchestrator.agents.builtin.replies import parse_reply

CASE = Path(__file__).parents[1] / "cases" / "05"


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama("m") as server:
        server.reply = (CASE / "reply.md").read_text()
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    before = CASE / "workspace_before" / "predict.py"
    (root / "predict.py").write_bytes(before.read_bytes())
    return root


def stage(url: str, token: str, workspace: Path, prompt: str, **more: str) -> dict[str, Any]:
    """The whole agent, but for its container."""
    environment = {
        "ORCH_MODEL_URL": url,
        "ORCH_MODEL_TOKEN": token,
        "ORCH_MODEL": "m",
        "ORCH_WORKSPACE": str(workspace),
    }
    return work(environment | more, prompt)


def test_a_whole_reply_is_applied(gateway: LiveGateway, fake: FakeOllama, workspace: Path) -> None:
    token = gateway.open()
    report = stage(gateway.url, token, workspace, "Write predict.py.")
    assert list(report["written"]) == ["predict.py"]
    assert (workspace / "predict.py").read_text() == 'print("v")\n'
    assert report["tries"] == 1
    (call,) = gateway.close(token)
    roles = [message["role"] for message in call.request["messages"]]
    assert roles == ["system", "user"]
    assert call.request["messages"][1]["content"] == "Write predict.py."


# Fault → class that the agent reports, calls it makes, requests that reach the server.
TABLE = {
    "cut": ("model-server-error", 3, 3),
    "no-done": ("model-server-error", 3, 3),
    "error-line": ("model-server-error", 3, 3),
    "garbage": ("model-server-error", 3, 3),
    "oom": ("model-server-error", 1, 3),
    "load": ("model-server-error", 1, 3),
    "busy": ("model-unavailable", 1, 3),
    "not-found": ("model-unavailable", 1, 1),
    "hang": ("model-server-error", 1, 1),
    "hang-midway": ("model-server-error", 3, 3),
}


@pytest.mark.parametrize("fault", sorted(TABLE))
def test_trouble_ends_bounded_and_changes_nothing(
    gateway: LiveGateway, fake: FakeOllama, workspace: Path, fault: str
) -> None:
    failure_class, calls, requests = TABLE[fault]
    before = (workspace / "predict.py").read_bytes()
    fake.faults.extend([fault] * 20)
    token = gateway.open(silence_s=0.3)
    report = stage(gateway.url, token, workspace, "p")
    assert report["error_class"] == failure_class
    assert report["error"].startswith(f"{failure_class}: ")
    assert report["written"] == {}
    assert report["tries"] == calls
    assert len(report["broken"]) == calls - 1
    assert (workspace / "predict.py").read_bytes() == before
    assert len(fake.asked("/api/chat")) == requests
    recorded = gateway.close(token)
    assert len(recorded) == calls
    assert sum(len(call.attempts) for call in recorded) == requests
    assert all(call.error and str(call.error.failure_class) == failure_class for call in recorded)


def test_a_stream_that_broke_once_is_asked_for_again(
    gateway: LiveGateway, fake: FakeOllama, workspace: Path
) -> None:
    fake.faults.append("cut")
    token = gateway.open()
    report = stage(gateway.url, token, workspace, "p")
    assert list(report["written"]) == ["predict.py"]
    assert (report["tries"], len(report["broken"])) == (2, 1)
    assert [call.error is None for call in gateway.close(token)] == [False, True]


@pytest.mark.parametrize(
    ("fault", "nothing", "reason"),
    [("empty", "empty", "stop"), ("think-only", "only-thinking", "length")],
)
def test_replies_without_text(
    gateway: LiveGateway, fake: FakeOllama, workspace: Path, fault: str, nothing: str, reason: str
) -> None:
    fake.faults.append(fault)
    report = stage(gateway.url, gateway.open(), workspace, "p")
    assert (report["nothing"], report["done_reason"], report["error"]) == (nothing, reason, "")


def test_a_prompt_that_does_not_fit_has_its_own_class(
    gateway: LiveGateway, workspace: Path
) -> None:
    token = gateway.open(num_ctx=512)
    report = stage(gateway.url, token, workspace, "x" * 4000)
    assert report["error_class"] == "context-overflow"


def test_a_gateway_that_is_gone(workspace: Path) -> None:
    report = stage("http://127.0.0.1:9", "t", workspace, "p")
    assert report["error_class"] == "model-unavailable"


def test_a_file_in_the_field_of_reasoning_is_none(
    gateway: LiveGateway, fake: FakeOllama, workspace: Path
) -> None:
    fake.thinking = "### FILE: draft.py\n````python\nDRAFT = 1\n````\n"
    report = stage(gateway.url, gateway.open(), workspace, "p")
    assert list(report["written"]) == ["predict.py"]
    assert report["thinking_chars"] == len(fake.thinking)
    assert not (workspace / "draft.py").exists()


def test_a_closed_token(gateway: LiveGateway, workspace: Path) -> None:
    token = gateway.open()
    gateway.close(token)
    report = stage(gateway.url, token, workspace, "p")
    assert report["error"].startswith("refused: ")
    assert report["error_class"] == "agent-error"


def test_the_format_that_is_asked_for_is_the_one_that_is_read() -> None:
    (example,) = parse_reply(SYSTEM_PROMPT).files.items()
    assert example == ("path/to/file.py", "the complete text of the file\n")
