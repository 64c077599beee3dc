"""The built-in agent as the trial sees it: its reports' verdicts and its scripted dialect."""

import json
import random
from typing import Any

import pytest

from orchestrator.agents.builtin.chat import SYSTEM_PROMPT
from orchestrator.agents.builtin.replies import parse_reply
from orchestrator.agents.builtin.work import MAX_ENTRIES
from orchestrator.agents.native import LOG_KB, BuiltinAgent, report_of
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Captured, Ending
from orchestrator.sandbox.exec import Ended

RENDER = BuiltinAgent.render_scripted


def rendered(say: str, files: dict[str, str]) -> str:
    return RENDER(None, say, files)  # type: ignore[arg-type]


# --- the scripted dialect ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\n",
        "",
        "no newline at the end",
        "# Title\n\n```bash\nls\n```\n\nInstall:\n```\npip install x\n```\n",
        "````markdown\n```\nx\n```\n````\n",
        "~~~\nx\n~~~~~\n",
        SYSTEM_PROMPT,
        "### FILE: other.py\n````python\nx = 1\n````\n",
        "HELP = '''\n```\nusage\n'''\n",
        "<think>\nnot thinking\n</think>\n",
        "   ```\n\t`````\n",
        "\n\n  leading and trailing  \n\n",
        "def f(:\n```\n",
        "`" * 40,
    ],
)
@pytest.mark.parametrize("path", ["README.md", "a.py", "notes.txt", "data.json", "Makefile"])
def test_every_text_comes_back_whole(path: str, text: str) -> None:
    reply = parse_reply(rendered("Here it is.", {path: text, "z.txt": "end\n"}))
    whole = text if not text or text.endswith("\n") else text + "\n"
    assert reply.files == {path: whole, "z.txt": "end\n"}
    assert not reply.refused


def test_random_texts_come_back_whole() -> None:
    dice = random.Random(7)
    lines = [
        "```", "````", "~~~", "```python", "### FILE: x.py", "a.py", "", "text:", "    ```",
        "'''", "<think>", "</think>", "</thinking>", "x = 1", "# Title", "`````", "**b.py**",
    ]  # fmt: skip
    for _ in range(500):
        files = {
            f"dir/f{number}.{dice.choice(['py', 'md', 'txt', 'json', 'toml'])}": "".join(
                dice.choice(lines) + "\n" for _ in range(dice.randint(0, 14))
            )
            for number in range(dice.randint(1, 4))
        }
        reply = parse_reply(rendered("Done:\n", files))
        assert reply.files == files
        assert not reply.refused


def test_saying_something_alone_holds_no_file() -> None:
    assert parse_reply(rendered("I would rather not.", {})).nothing == "prose-only"
    assert rendered("", {}) == ""


# --- verdicts ------------------------------------------------------------------------------


def ended(
    stdout: str, *, ending: Ending = Ending.EXITED, exit_code: int | None = 0, stderr: str = ""
) -> Ended:
    return Ended(
        ending=ending,
        exit_code=exit_code,
        duration_s=1.0,
        peak_memory_bytes=None,
        oom_kills=0,
        stdout=Captured(text=stdout, total_bytes=len(stdout)),
        stderr=Captured(text=stderr, total_bytes=len(stderr)),
        raw_stdout=stdout.encode(),
    )


def reported(**changes: Any) -> Ended:
    report = {
        "reply_chars": 10, "thinking_chars": 0, "done_reason": "stop", "tries": 1, "broken": [],
        "error": "", "error_class": "", "written": {}, "refused": [], "notes": [], "nothing": "",
    }  # fmt: skip
    return ended(json.dumps(report | changes) + "\n")


def refused(reason: str, path: str = "a.py") -> dict[str, str]:
    return {"path": path, "reason": reason, "detail": f"detail of {reason}"}


C = FailureClass


@pytest.mark.parametrize(
    ("changes", "failure_class", "reason"),
    [
        ({"nothing": "empty"}, C.NO_EDITS, "empty"),
        ({"nothing": "prose-only"}, C.NO_EDITS, "prose-only"),
        ({"nothing": "no-file-name"}, C.NO_EDITS, "no-file-name"),
        ({"nothing": "tool-call"}, C.NO_EDITS, "tool-call"),
        ({"nothing": "only-thinking"}, C.NO_EDITS, "only-thinking"),
        (
            {"nothing": "only-thinking", "done_reason": "length"},
            C.REASONING_EXHAUSTED,
            "only-thinking",
        ),
        ({"nothing": "empty", "done_reason": "length"}, C.TRUNCATED_REPLY, "length"),
        ({"written": {"a.py": "1"}, "done_reason": "length"}, C.TRUNCATED_REPLY, "length"),
        (
            {"written": {"a.py": "1"}, "refused": [refused("truncated")]},
            C.TRUNCATED_REPLY,
            "no-closing-fence",
        ),
        ({"refused": [refused("unsafe-path"), refused("unsafe-path", "b")]}, C.UNSAFE_PATH, ""),
        ({"refused": [refused("unsafe-path"), refused("elided")]}, C.NO_EDITS,
         "elided, unsafe-path"),
        ({"refused": [refused("did-not-apply")]}, C.EDIT_DID_NOT_APPLY, "did-not-apply"),
        (
            {"written": {"b.py": "1"}, "refused": [refused("did-not-apply")]},
            C.EDIT_DID_NOT_APPLY,
            "did-not-apply",
        ),
        ({"refused": [refused("read-only-data"), refused("unsafe-path")]}, C.UNSAFE_PATH, ""),
        ({"written": {"b.py": "1"}, "refused": [refused("disk-full")]}, C.DISK_FULL, ""),
        (
            {"error": "context-overflow: too long", "error_class": "context-overflow"},
            C.CONTEXT_OVERFLOW,
            "",
        ),
        (
            {"error": "model-unavailable: gone", "error_class": "model-unavailable"},
            C.MODEL_UNAVAILABLE,
            "",
        ),
        ({"error": "refused: no", "error_class": "agent-error"}, C.AGENT_ERROR, ""),
        ({"error": "never-heard-of: x", "error_class": "never-heard-of"}, C.AGENT_ERROR, ""),
    ],
)  # fmt: skip
def test_verdicts(changes: dict[str, Any], failure_class: FailureClass, reason: str) -> None:
    failure = report_of(reported(**changes), "explore").failure
    assert failure is not None
    assert failure.failure_class is failure_class
    assert failure.reason == reason
    assert failure.stage == "explore"
    assert failure.sentence


def test_files_beside_a_refused_one_are_no_failure_but_it_is_told() -> None:
    report = report_of(
        reported(written={"a.py": "1f"}, refused=[refused("unsafe-path", "../x")], notes=["n"]), "s"
    )
    assert report.failure is None
    assert (report.written, report.blobs) == (["a.py"], {"a.py": "1f"})
    assert [(item.path, item.reason) for item in report.dropped] == [
        ("../x", "unsafe-path: detail of unsafe-path")
    ]
    assert report.notes == ["n"]


def test_the_attempts_that_broke_off_are_evidence() -> None:
    report = report_of(
        reported(
            error="model-server-error: cut", error_class="model-server-error", broken=["one", "two"]
        ),
        "s",
    )
    assert report.failure is not None
    assert report.failure.sentence == "cut"
    assert [item.excerpt for item in report.failure.evidence] == ["one", "two"]


@pytest.mark.parametrize(
    ("how", "failure_class"),
    [
        (ended("", ending=Ending.TIMEOUT, exit_code=None), C.TIMEOUT),
        (ended("", ending=Ending.OUT_OF_MEMORY, exit_code=137), C.AGENT_ERROR),
        (ended("", exit_code=1, stderr="Traceback\nKeyError: 'x'\n"), C.AGENT_ERROR),
        (ended("not json"), C.AGENT_ERROR),
        (ended(""), C.AGENT_ERROR),
        (ended("{}"), C.AGENT_ERROR),
    ],
)
def test_an_agent_without_a_report(how: Ended, failure_class: FailureClass) -> None:
    report = report_of(how, "s")
    assert report.failure is not None
    assert report.failure.failure_class is failure_class
    assert report.written == []
    if how.stderr.text:
        assert report.failure.evidence[0].excerpt == "KeyError: 'x'"


def test_the_largest_report_fits_into_what_is_kept() -> None:
    entry = {"path": "\u20ac" * 300, "reason": "language-mismatch", "detail": "\u20ac" * 300}
    written = {f"{n:01024}": "0" * 40 for n in range(MAX_ENTRIES)}
    largest = json.dumps({"refused": [entry] * MAX_ENTRIES, "written": written})
    assert len(largest) < LOG_KB * 1024 * 2
