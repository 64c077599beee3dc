from datetime import UTC, datetime

import pytest

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import (
    AgentStage,
    Captured,
    Dropped,
    Ending,
    ExecuteStage,
    Failure,
    FileChange,
    RepairOutcome,
    ScoreRecord,
    StepRecord,
)
from orchestrator.trial.judge import decide_run, judge_agent_stage, repair_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EMPTY = Captured(text="", total_bytes=0)


def failure(failure_class: FailureClass, sentence: str = "it failed") -> Failure:
    return Failure(failure_class=failure_class, sentence=sentence)


def change(path: str) -> FileChange:
    return FileChange(path=path, change="added", size=1)


def verdict(**over: object) -> Failure | None:
    given: dict[str, object] = {
        "stage": "implement",
        "expects": ["train.py"],
        "present": ["train.py"],
        "changes": [change("train.py")],
        "announced": ["train.py"],
        "lost": [],
        "dropped": [],
        "reported": None,
    }
    return judge_agent_stage(**(given | over))  # type: ignore[arg-type]


def test_expected_files_on_disk_pass() -> None:
    assert verdict() is None


def test_a_file_the_agent_says_it_wrote_and_the_disk_lacks_is_the_harness_fault() -> None:
    found = verdict(
        present=[], changes=[], lost=["train.py"], reported=failure(FailureClass.NO_EDITS)
    )
    assert found is not None
    assert found.failure_class is FailureClass.EDIT_DROPPED
    assert found.attribution == "harness"
    assert "train.py" in found.sentence


def test_a_model_server_fault_outranks_missing_files() -> None:
    reported = failure(FailureClass.MODEL_UNAVAILABLE)
    assert verdict(present=[], changes=[], announced=[], reported=reported) == reported


def test_nothing_changed_is_no_edits_even_when_the_agent_exits_cleanly() -> None:
    dropped = [Dropped(path="x", reason="prose-only")]
    found = verdict(present=[], changes=[], announced=[], dropped=dropped)
    assert found is not None
    assert (found.failure_class, found.reason) == (FailureClass.NO_EDITS, "prose-only")


def test_a_repair_turn_of_prose_is_no_edits_although_the_files_are_there() -> None:
    found = verdict(changes=[], announced=[])
    assert found is not None
    assert found.failure_class is FailureClass.NO_EDITS


def test_writing_the_same_text_again_is_no_failure() -> None:
    assert verdict(changes=[]) is None


def test_other_files_than_the_expected_are_artifact_missing_with_the_refusals() -> None:
    found = verdict(
        present=["notes.md"],
        changes=[change("notes.md")],
        announced=["notes.md"],
        dropped=[Dropped(path="../train.py", reason="leaves the workspace")],
    )
    assert found is not None
    assert found.failure_class is FailureClass.ARTIFACT_MISSING
    assert found.evidence[0].excerpt == "../train.py: leaves the workspace"


def execute(codes: list[int], environment_failed: bool = False) -> ExecuteStage:
    steps = [
        StepRecord(
            name=str(i), command=["x"], ending=Ending.EXITED, exit_code=code, duration_s=0,
            peak_memory_bytes=None, oom_kills=None, stdout=EMPTY, stderr=EMPTY,
        )
        for i, code in enumerate(codes)
    ]  # fmt: skip
    broken = environment_failed or any(codes)
    return ExecuteStage(
        name="check",
        started_at=NOW,
        duration_s=0,
        steps=steps,
        failure=failure(FailureClass.RUNTIME_ERROR) if broken else None,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (execute([0, 1]), execute([0, 0]), RepairOutcome.RESCUED),
        (execute([0, 1]), execute([1]), RepairOutcome.WORSENED),
        (execute([1]), execute([0, 1]), RepairOutcome.IMPROVED),
        (execute([0, 1]), execute([0, 1]), RepairOutcome.UNCHANGED),
        (execute([0, 0]), execute([0, 1]), RepairOutcome.REGRESSED),
        (execute([], environment_failed=True), execute([1]), RepairOutcome.IMPROVED),
        (execute([1]), execute([], environment_failed=True), RepairOutcome.WORSENED),
    ],
)
def test_a_repair_is_named_by_how_far_the_program_gets(
    before: ExecuteStage, after: ExecuteStage, expected: RepairOutcome
) -> None:
    assert repair_of(before, after) is expected


def agent_stage(missing: list[str], found: Failure | None) -> AgentStage:
    return AgentStage(
        name="implement", started_at=NOW, duration_s=0, tree="t", missing=missing, failure=found
    )


def score(found: Failure | None) -> ScoreRecord:
    return ScoreRecord(tree="t", score=0.0, failure=found)


def test_a_missing_entry_point_is_explained_by_the_stage_that_left_nothing() -> None:
    empty = Failure(failure_class=FailureClass.NO_EDITS, sentence="empty reply", reason="empty")
    stages = [agent_stage(["explore.py"], None), agent_stage(["train.py"], empty)]
    missing = score(failure(FailureClass.NO_ENTRY_POINT, "there is no train.py"))
    assert decide_run(stages, missing) == empty
    other = score(failure(FailureClass.NO_ENTRY_POINT, "there is no predict.py"))
    assert decide_run(stages, other) == other.failure
    assert decide_run(stages, score(None)) is None


def test_a_used_up_budget_decides_a_run_whose_submission_was_scored() -> None:
    spent = failure(FailureClass.BUDGET_EXHAUSTED)
    stages = [agent_stage([], None), agent_stage(["README.md"], spent), agent_stage([], spent)]
    assert decide_run(stages, score(None)) == spent
    crash = score(failure(FailureClass.RUNTIME_ERROR))
    assert decide_run(stages, crash) == crash.failure
    assert decide_run(stages, None) is None


@pytest.mark.parametrize(
    "failure_class",
    [
        FailureClass.RUNAWAY_GENERATION,
        FailureClass.REASONING_EXHAUSTED,
        FailureClass.BUDGET_EXHAUSTED,
    ],
)
def test_what_the_gateway_saw_outranks_what_is_missing(failure_class: FailureClass) -> None:
    seen = failure(failure_class)
    assert verdict(reported=seen, expects=["train.py", "predict.py"]) == seen
    assert verdict(reported=seen) == seen
    cut = failure(FailureClass.TRUNCATED_REPLY)
    found = verdict(reported=cut, expects=["train.py", "predict.py"])
    assert found is not None
    assert found.failure_class is FailureClass.ARTIFACT_MISSING
