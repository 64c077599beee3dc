"""A reply that was cut: whole files stay, the rest is asked for once, and the record shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.agents.builtin.__main__ import work
from orchestrator.agents.builtin.chat import Answer
from orchestrator.agents.builtin.continuing import Cut, exhausted, goes_round, messages
from orchestrator.agents.builtin.work import cut_of, finish, first, report
from orchestrator.agents.builtin.writer import Workspace

WHOLE = "### FILE: a.py\n````python\nA = 1\n````\n"
BEGUN = "### FILE: b.py\n````python\nB = 'half of it"
REST = "### FILE: b.py\n````python\nB = 2\n````\n"


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    """What the gateway stands before; nothing is asked of it here."""
    with FakeOllama("m") as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


def stage(
    gateway: LiveGateway, folder: Path, workspace: Path, replies: list[str], **more: Any
) -> tuple[dict[str, Any], list[Any]]:
    """The whole agent but for its container, answered by `replies`; its report and its calls."""
    script = folder / "scripts.json"
    script.write_text(json.dumps({"m": {"s": {"0": replies}}}))
    gateway.order("scripts", path=str(script))
    wallet = more.pop("wallet", {})
    order = {"run": "r", "stage": "s", "turn": 0, "model": "m", "upstream": "scripted"}
    pins = {"num_ctx": 8192, "seed": 7, "max_reply_tokens": 500}
    opened = gateway.order("open", **order, sources=["127.0.0.0/8"], pins=pins, wallet=wallet)
    environment = {
        "ORCH_MODEL_URL": gateway.url,
        "ORCH_MODEL_TOKEN": str(opened["token"]),
        "ORCH_MODEL": "m",
        "ORCH_WORKSPACE": str(workspace),
    }
    told = work(environment | more, "Write a.py and b.py.")
    return told, gateway.close(str(opened["token"]))


def test_the_file_that_was_cut_is_asked_for_anew(
    gateway: LiveGateway, tmp_path: Path, workspace: Path
) -> None:
    told, calls = stage(gateway, tmp_path, workspace, [WHOLE + "\n" + BEGUN, REST])
    assert list(told["written"]) == ["a.py", "b.py"]
    assert (workspace / "b.py").read_text() == "B = 2\n"
    assert (told["refused"], told["continued"]) == ([], True)
    assert told["notes"] == ["the reply was cut off in b.py; asked once more, b.py came"]
    assert [call.reply for call in calls] == [WHOLE + "\n" + BEGUN, REST]
    first_call, second = (call.request["messages"] for call in calls)
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first_call
    assert second[2]["content"] == WHOLE.strip()
    for words in ("`a.py`", "Write it again as a whole", "`b.py`"):
        assert words in second[3]["content"]


def test_the_same_once_more_asks_the_same(
    gateway: LiveGateway, tmp_path: Path, workspace: Path
) -> None:
    asked = []
    for _ in range(2):
        _, calls = stage(gateway, tmp_path, workspace, [WHOLE + BEGUN, REST])
        asked.append([call.request for call in calls])
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("second", "missing"),
    [
        (BEGUN, ["b.py"]),
        ("", ["b.py"]),
        ("I can't.", ["b.py"]),
        ("### FILE: c.py\n````python\nC = 3\n````\n", ["b.py"]),
    ],
)
def test_it_is_asked_for_once_only(
    gateway: LiveGateway, tmp_path: Path, workspace: Path, second: str, missing: list[str]
) -> None:
    told, calls = stage(gateway, tmp_path, workspace, [WHOLE + BEGUN, second, REST])
    assert len(calls) == 2
    assert [item["path"] for item in told["refused"]] == missing
    assert told["refused"][0]["reason"] == "truncated"
    assert not (workspace / "b.py").exists()
    assert (workspace / "a.py").exists()


def test_a_wallet_with_one_call_is_not_overdrawn(
    gateway: LiveGateway, tmp_path: Path, workspace: Path
) -> None:
    told, calls = stage(
        gateway, tmp_path, workspace, [WHOLE + BEGUN, REST], wallet={"limits": {"calls": 1}}
    )
    assert len(calls) == 1
    assert told["notes"] == ["the reply was cut off; nothing is left to ask for its rest"]
    assert [item["path"] for item in told["refused"]] == ["b.py"]


def test_without_room_it_is_not_asked(
    gateway: LiveGateway, tmp_path: Path, workspace: Path
) -> None:
    told, calls = stage(gateway, tmp_path, workspace, [WHOLE + BEGUN, REST], ORCH_ROOM_CHARS="300")
    assert len(calls) == 1
    assert "no room" in told["notes"][0]


def test_a_whole_reply_is_not_asked_about(
    gateway: LiveGateway, tmp_path: Path, workspace: Path
) -> None:
    told, calls = stage(gateway, tmp_path, workspace, [WHOLE, REST])
    assert (len(calls), told["continued"], told["notes"]) == (1, False, [])


# --- when ----------------------------------------------------------------------------------


def cut(text: str, done_reason: str, workspace: Path, **more: Any) -> Cut | None:
    with Workspace(str(workspace)) as opened:
        return cut_of(first(Answer(text=text, done_reason=done_reason, **more), opened))


@pytest.mark.parametrize(
    ("text", "done_reason", "missing"),
    [
        (WHOLE + BEGUN, "length", ("b.py",)),
        (WHOLE + BEGUN, "stop", ("b.py",)),  # a server that lied
        (WHOLE, "length", ()),
        ("Let me think about it.", "length", ()),
        ("```diff\n--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x", "length", ("b.py",)),
        ("README.md\n```markdown\n# T\nInstall:\n```\npip install x\n```\n\nThen", "length",
         ("README.md",)),
        ("<think>hm</think>\n" + WHOLE + BEGUN, "length", ("b.py",)),
    ],
)  # fmt: skip
def test_what_counts_as_cut(
    text: str, done_reason: str, missing: tuple[str, ...], workspace: Path
) -> None:
    found = cut(text, done_reason, workspace)
    assert found is not None
    assert found.missing == missing
    assert "b.py" not in found.before
    assert "hm" not in found.before


@pytest.mark.parametrize(
    ("text", "done_reason", "more"),
    [
        (WHOLE, "stop", {}),
        ("", "length", {"thinking_chars": 9}),
        ("", "stop", {}),
        ("<think>on and on", "length", {}),
        (WHOLE + BEGUN, "content_filter", {}),
        (WHOLE + "Let me check that once more. " * 20, "length", {}),
        (WHOLE + BEGUN, "length", {"error": "model-server-error: x", "error_class": "x"}),
        ("Only prose.", "stop", {}),
    ],
)
def test_when_asking_again_is_no_use(
    text: str, done_reason: str, more: dict[str, Any], workspace: Path
) -> None:
    assert cut(text, done_reason, workspace, **more) is None


def joined(workspace: Path, before: Answer, rest: Answer) -> dict[str, Any]:
    with Workspace(str(workspace)) as opened:
        done = first(before, opened)
        found = cut_of(done)
        assert found is not None
        finish(done, found, lambda _: rest, opened, prompt_chars=10, room_chars=None)
    return report(done)


def test_how_the_second_reply_ends_is_how_the_stage_ends(workspace: Path) -> None:
    before = Answer(text=WHOLE + BEGUN, done_reason="length", tries=1)
    told = joined(workspace, before, Answer(text=REST, done_reason="stop", tries=1))
    assert (told["done_reason"], told["tries"]) == ("stop", 2)
    before = Answer(text=WHOLE + BEGUN, done_reason="length", tries=1)
    told = joined(workspace, before, Answer(text=REST, done_reason="length", tries=1))
    assert told["done_reason"] == "length"


@pytest.mark.parametrize(
    ("failure_class", "kept"),
    [
        ("model-server-error", True),
        ("model-unavailable", True),
        ("replay-differs", True),
        ("context-overflow", False),
        ("budget-exhausted", False),
        ("agent-error", False),
    ],
)
def test_a_second_call_that_fails(workspace: Path, failure_class: str, kept: bool) -> None:
    error = f"{failure_class}: no"
    rest = Answer(error=error, error_class=failure_class)
    told = joined(workspace, Answer(text=WHOLE + BEGUN, done_reason="length"), rest)
    assert told["error"] == (error if kept else "")
    assert list(told["written"]) == ["a.py"]
    assert [item["path"] for item in told["refused"]] == ["b.py"]
    assert error in told["notes"][-1]


# --- what is said --------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "said"), [(None, "Long. " * 50), (700, "(The reply was cut")])
def test_only_what_has_room_is_repeated(room: int | None, said: str) -> None:
    found = Cut(("b.py",), "Long. " * 50)
    after = messages(found, ["a.py"], 100, room)
    assert after is not None
    assert after[0]["content"].startswith(said.strip())


def test_nothing_is_said_where_nothing_fits() -> None:
    assert messages(Cut((), ""), [], 1000, 1100) is None


@pytest.mark.parametrize(
    ("text", "round_and_round"),
    [
        ("ha" * 200, True),
        ("Wait, let me check that once more. " * 14, True),
        ("x = 1\n" * 80, True),
        ("Done.\n" + "!" * 32, True),
        ("-" * 24, False),
        ("".join(f"sentence {n} of a page. " for n in range(100)) * 6, True),
        ("".join(f"sentence {n} of a page. " for n in range(100)) * 4, False),
        ("A quite ordinary text. It ends.", False),
        ("", False),
        ("x = 1\n" * 29, False),
        ("\n".join(f"row {n}" for n in range(400)), False),
    ],
)
def test_what_goes_round(text: str, round_and_round: bool) -> None:
    assert goes_round(text) is round_and_round


@pytest.mark.parametrize(
    ("left", "nothing"),
    [
        ({"calls": 0, "cost": None}, True),
        ({"calls": 1, "tokens_out": None}, False),
        ({"tokens_out": 0.0}, True),
        (None, False),
        ("odd", False),
    ],
)
def test_what_the_wallet_says(left: object, nothing: bool) -> None:
    assert exhausted(left) is nothing
