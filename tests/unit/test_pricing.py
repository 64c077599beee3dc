"""Each repair turn gets the score before and after it, and its outcome by both."""

from __future__ import annotations

import pytest

from orchestrator.errors import EngineError, RecordUnwritable
from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import Failure, Repair, RepairOutcome, ScoreRecord, Worth
from orchestrator.trial.pricing import outcome, price


def scored(tree: str, score: float = 0.0, failure: C | None = None) -> ScoreRecord:
    found = None if failure is None else Failure(failure_class=failure, sentence="it broke")
    return ScoreRecord(tree=tree, score=score, failure=found, predictions_sha256=f"sha-{tree}")


def repair(before: str, after: str, turn: int = 1) -> Repair:
    return Repair(
        stage="check",
        turn=turn,
        passed_before=False,
        passed_after=True,
        tree_before=before,
        tree_after=after,
        failed_step_before=0,
        failed_step_after=None,
        outcome=RepairOutcome.RESCUED,
    )


CRASH = Worth(score=0.0, failure=C.RUNTIME_ERROR)
OTHER = Worth(score=0.0, failure=C.OUTPUT_SCHEMA)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (CRASH, Worth(score=0.6), RepairOutcome.RESCUED),
        (CRASH, Worth(score=0.0), RepairOutcome.RESCUED),
        (Worth(score=0.6), CRASH, RepairOutcome.REGRESSED),
        (Worth(score=0.0), CRASH, RepairOutcome.REGRESSED),
        (Worth(score=0.6), Worth(score=0.600001), RepairOutcome.IMPROVED),
        (Worth(score=0.6), Worth(score=0.5), RepairOutcome.WORSENED),
        (Worth(score=0.6), Worth(score=0.6), RepairOutcome.UNCHANGED),
        (CRASH, OTHER, RepairOutcome.UNCHANGED),
    ],
)
def test_an_outcome_is_by_both_scores(before, after, expected):
    assert outcome(before, after) is expected


def test_each_tree_is_scored_once_and_the_known_one_never():
    asked: list[str] = []
    saved: list[int] = []
    repairs = [repair("a", "b"), repair("b", "b", 2), repair("b", "c", 3)]

    def score(tree: str) -> ScoreRecord:
        asked.append(tree)
        return scored(tree, {"a": 0.0, "b": 0.5}[tree], C.TIMEOUT if tree == "a" else None)

    price(repairs, scored("c", 0.7), score, lambda: saved.append(len(asked)))
    assert asked == ["a", "b"]
    assert saved == [2, 2, 2]
    assert [one.outcome for one in repairs] == [
        RepairOutcome.RESCUED,
        RepairOutcome.UNCHANGED,
        RepairOutcome.IMPROVED,
    ]
    assert repairs[0].before == Worth(score=0, failure=C.TIMEOUT, predictions_sha256="sha-a")
    assert repairs[2].after == Worth(score=0.7, predictions_sha256="sha-c")


@pytest.mark.parametrize(
    ("wrong", "failure_class", "says"),
    [
        (EngineError("the engine went away"), C.ENGINE_UNAVAILABLE, "the engine went away"),
        (ZeroDivisionError("oh"), C.SCORER_ERROR, "orch itself failed: ZeroDivisionError: oh"),
    ],
)
def test_what_goes_wrong_on_our_side_stands_at_its_repair_alone(wrong, failure_class, says):
    repairs = [repair("a", "b"), repair("b", "c", 2)]

    def score(tree: str) -> ScoreRecord:
        if tree == "a":
            raise wrong
        return scored(tree, 0.5)

    price(repairs, scored("c", 0.7), score, lambda: None)
    assert (repairs[0].before, repairs[0].after) == (
        None,
        Worth(score=0.5, predictions_sha256="sha-b"),
    )
    assert repairs[0].unpriced is not None
    assert repairs[0].unpriced.failure_class is failure_class
    assert repairs[0].unpriced.sentence == says
    assert repairs[0].outcome is RepairOutcome.RESCUED
    assert (repairs[1].outcome, repairs[1].unpriced) == (RepairOutcome.IMPROVED, None)


def test_a_score_that_we_are_to_blame_for_is_no_price():
    repairs = [repair("a", "b")]
    price(repairs, scored("b", 0.5), lambda tree: scored(tree, 0.0, C.SCORER_ERROR), lambda: None)
    assert repairs[0].before is None
    assert repairs[0].unpriced is not None
    assert repairs[0].unpriced.failure_class is C.SCORER_ERROR


@pytest.mark.parametrize("wrong", [RecordUnwritable("full"), KeyboardInterrupt()])
def test_what_ends_the_trial_is_raised(wrong):
    def score(tree: str) -> ScoreRecord:
        raise wrong

    with pytest.raises(type(wrong)):
        price([repair("a", "b")], scored("b", 0.5), score, lambda: None)


def test_an_interrupt_is_not_taken_for_what_its_cleaning_up_ran_into():
    def score(tree: str) -> ScoreRecord:
        try:
            raise KeyboardInterrupt
        finally:
            raise EngineError("the container is gone")

    with pytest.raises(KeyboardInterrupt):
        price([repair("a", "b")], scored("b", 0.5), score, lambda: None)


def test_a_turn_that_changed_nothing_is_not_scored():
    def score(tree: str) -> ScoreRecord:
        raise AssertionError(tree)

    repairs = [repair("a", "a"), repair("b", "b", 2)]
    price(repairs, scored("b", 0.5), score, lambda: None)
    assert [one.outcome for one in repairs] == [RepairOutcome.UNCHANGED] * 2
    assert (repairs[0].before, repairs[0].after) == (None, None)
    assert repairs[1].before == repairs[1].after == Worth(score=0.5, predictions_sha256="sha-b")
