"""What is kept of a submission that is scored more than once."""

from collections.abc import Callable

from report_samples import failure

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Captured, Ending, ScoreRecord, StepRecord
from orchestrator.scoring.repeats import with_spread

STEP = StepRecord(
    name="train",
    command=["python"],
    ending=Ending.EXITED,
    exit_code=0,
    duration_s=1,
    peak_memory_bytes=None,
    oom_kills=None,
    stdout=Captured(text="", total_bytes=0),
    stderr=Captured(text="", total_bytes=0),
)


def scored(value: float, sha: str | None = None, failed: str = "") -> ScoreRecord:
    return ScoreRecord(
        tree="t",
        score=value,
        predictions_sha256=sha,
        failure=failure(failed) if failed else None,
        steps=[STEP],
    )


def from_list(*records: ScoreRecord) -> Callable[[], ScoreRecord]:
    left = iter(records)
    return lambda: next(left)


def never() -> ScoreRecord:
    raise AssertionError("scored once more")


def test_once_is_once() -> None:
    first = scored(0.8, "a")
    assert with_spread(first, 1, never) is first


def test_the_first_decides_and_all_are_kept() -> None:
    first = scored(0.8, "a")
    again = from_list(scored(0.8, "a"), scored(0.9, "b"), scored(0.0, failed="runtime-error"))
    record = with_spread(first, 4, again)
    assert record.model_copy(update={"spread": None}) == first
    assert record.spread is not None
    assert record.spread.scores == [0.8, 0.8, 0.9, 0.0]
    assert record.spread.predictions_sha256 == ["a", "a", "b", None]
    assert record.spread.failures == [None, None, None, FailureClass.RUNTIME_ERROR]
    assert record.spread.distinct == 3
    assert ScoreRecord.model_validate_json(record.model_dump_json()) == record


def test_the_same_failure_each_time_is_one_result() -> None:
    crashed = scored(0.0, failed="runtime-error")
    record = with_spread(crashed, 2, from_list(crashed))
    assert record.spread is not None
    assert record.spread.distinct == 1


def test_where_nothing_of_the_submission_ran_there_is_nothing_to_repeat() -> None:
    refused = scored(0.0, failed="dependency-refused").model_copy(update={"steps": []})
    assert with_spread(refused, 5, never) is refused
