"""The estimate a submission gives of itself."""

from __future__ import annotations

import pytest

from orchestrator.scoring.claims import expected_f1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Expected F1: 0.80", 0.80),
        ("Expected F1 on the holdout: **0.79**", 0.79),
        ("I expect an F1 of about 0.78 in production.", 0.78),
        ("We estimate 0.81 F1 on unseen messages.", 0.81),
        ("| metric | value |\n|---|---|\n| Expected F1 | 0.77 |", 0.77),
        ("Expected F1-score between 0.76 and 0.80", 0.78),
        ("Expected F1 score: 0.78–0.82", 0.80),
        ("expected F1 = 0.80 ± 0.02", 0.80),
        ("Expected F1: ~80 %", 0.80),
        ("expected f1: .8", 0.8),
        ("Expected F1 of 0.80 at threshold 0.42", 0.80),
        ("Expected F1 (class 1, 5-fold): 0.80", 0.80),
        ("Validation F1: 0.83\n\nExpected holdout F1: 0.80", 0.80),
        ("Validation F1 0.95 with moderator_flagged, expected F1 0.79 without", 0.79),
        ("F1: 0.801", 0.801),
        ("Validation F1: 0.83\nCross-validated F1: 0.83", 0.83),
        ("Validation F1: 0.83\nCross-validated F1: 0.81", None),
        ("Precision 0.9, recall 0.8", None),
        ("", None),
        ("Expected F1: as good as can be", None),
        ("Expected F1 at F1@0.5: 0.8", 0.8),
        ("Expected F1: 1.25", None),
        ("Expected F1: 0.80.", 0.80),
    ],
)
def test_expected_f1(text, value):
    assert expected_f1(text) == (None if value is None else pytest.approx(value))
