"""aider as an agent: its dialect, and what its replies and the disk say together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agents.aider.agent import AiderAgent
from orchestrator.agents.aider.review import listings, review
from orchestrator.agents.base import Aftermath, AgentReport
from orchestrator.errors import TaskInvalid
from orchestrator.records.calls import CallError, CallRecord
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import AgentStage, Captured, Dropped, Failure, FileChange
from orchestrator.trial.judge import judge_agent_stage
from orchestrator.trial.landed import lost

CASES = Path(__file__).parents[1] / "cases"
render = cast("Callable[[str, Mapping[str, str]], str]", AiderAgent(None, None).render_scripted)  # type: ignore[arg-type]
WORKSPACE_KNOWS = ("g_symlink", "i_file_as_dir", "m_dir")
WHOLE = "Here it is.\n\nexplore.py\n```python\nprint(1)\nprint(2)\n```\n"


def call(reply: str, cause: str = "", **more: Any) -> CallRecord:
    error = None
    if cause:
        classes = {"client-gone": None, "refused": None, "not-found": "model-unavailable"}
        named = classes.get(cause, "model-server-error")
        error = CallError(
            failure_class=FailureClass(named) if named else None, cause=cause, sentence=cause
        )
    about = {"run": "r", "stage": "explore", "turn": 0, "seq": 0, "at": "", "endpoint": "chat"}
    return CallRecord.model_validate(
        about
        | {"model": "m", "upstream": "scripted", "request": {"stream": True}, "pinned": {}}
        | {"reply": reply, "done_reason": None if cause else "stop", "duration_s": 1.0}
        | {"error": error}
        | more
    )


def after(disk: Mapping[str, str], *calls: CallRecord) -> Aftermath:
    changes = [FileChange(path=path, change="added", size=len(disk[path])) for path in disk]
    return Aftermath(calls, changes, lambda path: disk[path].encode() if path in disk else None)


def report(failure: Failure | None = None, said: str = "") -> AgentReport:
    return AgentReport([], [], Captured(text=said, total_bytes=len(said)), failure)


def verdict(disk: Mapping[str, str], *calls: CallRecord, said: str = "") -> Failure | None:
    """What the stage comes to, review and judgement together."""
    left = after(disk, *calls)
    reviewed = review(report(said=said), left, "explore")
    return judge_agent_stage(
        stage="explore",
        expects=["explore.py"],
        present=disk.keys(),
        changes=left.changes,
        announced=reviewed.written,
        lost=lost(reviewed.written, reviewed.blobs, cast("Any", disk)),
        dropped=reviewed.dropped,
        reported=reviewed.failure,
    )


def failed(disk: Mapping[str, str], *calls: CallRecord, said: str = "") -> tuple[str, str]:
    failure = verdict(disk, *calls, said=said)
    assert failure is not None
    return str(failure.failure_class), failure.reason


def test_what_a_script_says_is_what_aider_reads() -> None:
    files = {"train.py": "import x\n", "pkg/a.py": "", "notes": "no newline"}
    reply = render("As asked.", files)
    assert reply.startswith("As asked.\n")
    assert listings(reply) == {"train.py": "import x\n", "pkg/a.py": "", "notes": "no newline\n"}


def test_a_readme_with_blocks_of_code_is_written_with_other_fences() -> None:
    text = "# Gate\n\n```bash\npython train.py\n```\n"
    (listed,) = (listings(render("", {"README.md": text})) or {}).values()
    assert listed == "# Gate\n\n~~~bash\npython train.py\n~~~\n"


def test_what_no_listing_can_hold_is_refused_by_name() -> None:
    with pytest.raises(TaskInvalid, match=r"train\.py: has a line that begins with ```"):
        render("", {"train.py": 'HELP = """\n```\n"""\n'})


def test_a_reply_that_landed_whole_is_no_failure() -> None:
    assert verdict({"explore.py": "print(1)\nprint(2)\n"}, call(WHOLE)) is None


def test_a_file_that_stays_as_it_was_is_no_lost_edit() -> None:
    left = Aftermath([call(WHOLE)], [], lambda _path: b"print(1)\nprint(2)\n")
    assert review(report(), left, "explore").failure is None


def test_a_listing_that_did_not_reach_the_disk_was_dropped() -> None:
    assert failed({}, call(WHOLE))[0] == "edit-dropped"


def test_a_nested_fence_leaves_a_stump_and_junk_that_are_named() -> None:
    reply = (CASES / "01" / "a_readme_triple.md").read_text()
    disk = {name: body for name, body in (listings(reply) or {}).items() if "/" not in name}
    assert "README.md" in disk
    failure = verdict(disk, call(reply))
    assert failure is not None
    assert (failure.failure_class, failure.reason) == (FailureClass.EDIT_DROPPED, "nested-fence")
    assert "README.md" in failure.sentence
    left = review(report(), after(disk, call(reply)), "docs")
    assert len(left.notes) == len(disk) - 1


def test_a_listing_that_aider_took_by_another_name_is_named() -> None:
    reply = WHOLE.replace("explore.py", "### FILE: explore.py")
    disk = listings(reply)
    assert list(disk or {}) == ["FILE: explore.py"]
    failure = verdict(disk or {}, call(reply))
    assert failure is not None
    assert failure.failure_class is FailureClass.ARTIFACT_MISSING
    assert failure.evidence[0].excerpt == (
        "explore.py: wrong-name: aider took it for 'FILE: explore.py'"
    )


def test_a_file_that_came_twice_is_named_where_the_last_one_was_lost() -> None:
    later = WHOLE.replace("print(1)", "print(7)")
    left = after({"explore.py": "print(1)\nprint(2)\n"}, call(WHOLE + "\n" + later))
    reviewed = review(report(), left, "explore")
    assert [one.reason for one in reviewed.dropped] == [
        "differs: the workspace has another text of it"
    ]
    assert review(report(), after({"explore.py": "print(7)\nprint(2)\n"}, call(WHOLE), call(later)),
                  "explore").dropped == []  # fmt: skip


def test_what_a_model_thought_of_writing_is_no_file() -> None:
    thought = "<think>\nMaybe\n\nexplore.py\n```\nprint(0)\n```\n</think>\n"
    assert verdict({"explore.py": "print(1)\nprint(2)\n"}, call(thought + WHOLE)) is None
    assert failed({}, call(thought))[0] == "no-edits"


def test_another_fence_than_the_one_asked_for_is_no_edit() -> None:
    reply = WHOLE.replace("```", "~~~")
    assert failed({}, call(reply)) == ("no-edits", "wrong-fence")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("a_empty.md", "empty"),
        ("b_prose_only.md", "prose-only"),
        ("d_no_filename.md", "no-file-name"),
        ("e_tool_call_json.md", "tool-call"),
        ("f_please_add.md", "prose-only"),
        ("g_unified_diff.md", "diff"),
    ],
)
def test_replies_that_change_nothing_say_why(case: str, reason: str) -> None:
    reply = (CASES / "03" / case).read_text()
    assert failed({}, call(reply)) == ("no-edits", reason)


def test_a_reply_at_its_budget_writes_nothing_and_names_its_files() -> None:
    left = after({}, call(WHOLE + "\nb.py\n```\nx", done_reason="length"))
    reviewed = review(report(), left, "explore")
    assert reviewed.failure is not None
    assert reviewed.failure.failure_class is FailureClass.TRUNCATED_REPLY
    assert [one.path for one in reviewed.dropped] == ["explore.py", "b.py"]


def test_half_a_file_of_a_stream_that_claims_to_be_whole_is_named() -> None:
    half = WHOLE + "\nb.py\n```python\nimport csv\n"
    disk = {"explore.py": "print(1)\nprint(2)\n", "b.py": "import csv\n"}
    failure = verdict(disk, call(half))
    assert failure is not None
    assert failure.failure_class is FailureClass.TRUNCATED_REPLY
    assert (failure.reason, failure.evidence[0].excerpt) == ("no-closing-fence", "b.py")


@pytest.mark.parametrize("cause", ["no-done", "cut", "error-line"])
def test_half_a_file_of_a_broken_stream_never_counts(cause: str) -> None:
    half = WHOLE.partition("print(2)")[0]
    for disk in ({"explore.py": "print(1)\n"}, {"explore.py": ""}, {}):
        assert failed(disk, call(half, cause))[0] == "model-server-error"
        reviewed = review(report(), after(disk, call(half, cause)), "explore")
        assert [one.path for one in reviewed.dropped] == ["explore.py"]
        assert reviewed.written == []


def test_a_whole_reply_after_broken_ones_counts() -> None:
    disk = {"explore.py": "print(1)\nprint(2)\n"}
    assert verdict(disk, call(WHOLE[:40], "cut"), call(WHOLE)) is None


def test_a_model_that_is_not_there_is_not_the_models_fault() -> None:
    calls = [call("", "not-found")] * 5
    assert failed({}, *calls) == ("model-unavailable", "not-found")


def test_an_aider_that_asked_nothing_has_crashed() -> None:
    failure = verdict({}, said="Traceback\nKeyError: 'x'")
    assert failure is not None
    assert failure.failure_class is FailureClass.AGENT_ERROR
    assert failure.evidence[-1].excerpt == "KeyError: 'x'"


def test_a_call_that_aider_left_or_that_was_refused_is_its_own_fault() -> None:
    assert failed({}, call("", "client-gone"))[0] == "agent-error"
    assert failed({}, call("", "refused"))[0] == "agent-error"


def test_a_deadline_outranks_the_call_that_it_ended() -> None:
    late = Failure(failure_class=FailureClass.TIMEOUT, sentence="late")
    reviewed = review(report(late), after({}, call(WHOLE[:30], "client-gone")), "explore")
    assert reviewed.failure is late


def test_the_call_for_a_commit_message_brings_no_file() -> None:
    commit = call("train.py\n```\nx\n```\n", request={"stream": False})
    left = after({"explore.py": "print(1)\nprint(2)\n"}, call(WHOLE), commit)
    assert review(report(), left, "explore").written == ["explore.py"]


@pytest.mark.parametrize(
    "path", [path for path in sorted((CASES / "13").glob("?_*.md")) if path.stem != "j_long"]
)
def test_hostile_names_are_dropped_beside_a_good_file(path: Path) -> None:
    reply = path.read_text(encoding="utf-8")
    (hostile,) = (listings(reply) or {}).keys() - {"inside.txt"}
    # What only the workspace can tell, aider's start refuses there.
    refused = [Dropped(path=hostile, reason="unsafe-path: the path leads through a link")]
    left = after({"inside.txt": "fine\n"}, call(reply))
    for told in (refused, []) if path.stem not in WORKSPACE_KNOWS else (refused,):
        reviewed = review(replace(report(), dropped=told), left, "explore")
        assert reviewed.written == ["inside.txt"]
        assert [one.reason.partition(":")[0] for one in reviewed.dropped] == ["unsafe-path"]
        assert reviewed.failure is None


def test_a_block_without_a_usable_name_costs_the_whole_reply_until_a_better_one() -> None:
    replies = [
        (CASES / "13" / "j_long.md").read_text(),
        WHOLE + "\nThen run:\n\n```\npython x\n```\n",
    ]
    for reply in replies:
        assert listings(reply) is None
        assert failed({}, call(reply)) == ("no-edits", "unnamed-block")
    left = after({"explore.py": "print(1)\nprint(2)\n"}, call(replies[1]), call(WHOLE))
    reviewed = review(report(), left, "explore")
    assert (reviewed.failure, reviewed.dropped) == (None, [])


def test_all_files_refused_for_their_path_is_a_failure_of_its_own() -> None:
    assert failed({}, call("../x.py\n```\nx\n```\n")) == ("unsafe-path", "unsafe-path")


def test_records_without_commits_stay_readable() -> None:
    assert AgentStage.model_fields["commits"].default is None
