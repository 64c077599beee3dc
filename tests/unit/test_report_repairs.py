"""A repair turn in words: what it was worth, what it took."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from report_samples import repair

from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import AgentStage, Failure, RepairOutcome, Usage, Worth
from orchestrator.report.repairs import repair_line, repair_views

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
