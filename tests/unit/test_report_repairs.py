"""A repair turn in words: what it was worth, what it took."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from report_samples import repair

from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import AgentStage, Failure, RepairOutcome, Usage, Worth
from orchestrator.report.repairs import mean_gain, repair_line, repair_views, summed

ASKED = AgentStage(
    name="implement",
    turn=1,
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    duration_s=12.3,
    tree="b",
    usage=Usage(calls=1, prompt_tokens=3000, reply_tokens=400),
)
OURS = Failure(failure_class=C.ENGINE_UNAVAILABLE, sentence="the engine \x1b[31mwent away")


@pytest.mark.parametrize(
    ("worth", "expected"),
    [
        ({}, "implement, turn 1: rescued; 3.4k tokens, 12s"),
        (
            {
                "before": Worth(score=0, failure=C.UNPICKLABLE_ARTIFACT),
                "after": Worth(score=0.631),
            },
            "implement, turn 1: rescued, 0 (unpicklable-artifact) to 0.631; 3.4k tokens, 12s",
        ),
        (
            {"before": Worth(score=0.25), "after": Worth(score=0.5)},
            "implement, turn 1: rescued, 0.250 to 0.500; 3.4k tokens, 12s",
        ),
    ],
)
def test_a_repair_is_a_line_with_both_scores_and_its_price(worth, expected):
    done = repair(RepairOutcome.RESCUED).model_copy(update={"tree_after": "b", **worth})
    (view,) = repair_views([done], [ASKED])
    assert repair_line(view) == expected


def test_a_score_that_is_missing_says_why():
    update = {"after": Worth(score=0.5), "unpriced": OURS, "tree_after": "b"}
    (view,) = repair_views([repair(RepairOutcome.RESCUED).model_copy(update=update)], [ASKED])
    line = repair_line(view)
    assert line.startswith("implement, turn 1: rescued by how far it got; a score is missing: the")
    assert "\x1b" not in line


def test_a_repair_whose_stage_is_not_in_the_record_took_nothing_that_is_known():
    (view,) = repair_views([repair(RepairOutcome.UNCHANGED)], [])
    assert (view.tokens, view.seconds) == (0, 0.0)


def test_the_mean_gain_is_over_the_turns_with_both_scores():
    worths = [
        {"before": Worth(score=0, failure=C.TIMEOUT), "after": Worth(score=0.6)},
        {"before": Worth(score=0.6), "after": Worth(score=0, failure=C.TIMEOUT)},
        {"before": Worth(score=0.5), "after": Worth(score=0.8)},
        {"after": Worth(score=0.9), "unpriced": OURS},
    ]
    repairs = [repair(RepairOutcome.RESCUED).model_copy(update=worth) for worth in worths]
    gain = mean_gain(repair_views(repairs, []))
    assert gain == pytest.approx(0.1)
    assert mean_gain(repair_views(repairs[3:], [])) is None
    counts = dict.fromkeys(RepairOutcome, 0) | {RepairOutcome.RESCUED: 2}
    assert summed(counts, gain) == "2 rescued, +0.100 each"
    assert summed(counts, None) == "2 rescued"
    assert summed(dict.fromkeys(RepairOutcome, 0), None) == "-"
