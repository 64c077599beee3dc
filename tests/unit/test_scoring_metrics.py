"""Metrics against tables worked out by hand, and against scikit-learn."""

from __future__ import annotations

import random

import pytest
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from orchestrator.scoring.metrics import metrics

# tp, fp, fn, tn → precision, recall, f1, accuracy
TABLE = [
    ((1, 0, 0, 1), (1.0, 1.0, 1.0, 1.0)),
    ((3, 1, 1, 5), (3 / 4, 3 / 4, 3 / 4, 8 / 10)),
    ((2, 2, 1, 5), (2 / 4, 2 / 3, 4 / 7, 7 / 10)),
    ((1, 0, 3, 4), (1.0, 1 / 4, 2 / 5, 5 / 8)),
    ((9, 1, 0, 0), (9 / 10, 1.0, 18 / 19, 9 / 10)),
    ((0, 0, 5, 5), (0.0, 0.0, 0.0, 1 / 2)),
    ((0, 5, 0, 5), (0.0, 0.0, 0.0, 1 / 2)),
    ((0, 3, 2, 5), (0.0, 0.0, 0.0, 1 / 2)),
    ((0, 0, 0, 4), (0.0, 0.0, 0.0, 1.0)),
    ((4, 0, 0, 0), (1.0, 1.0, 1.0, 1.0)),
]


@pytest.mark.parametrize(("counts", "expected"), TABLE)
def test_metrics_by_hand(counts, expected):
    tp, fp, fn, tn = counts
    truth = [1] * tp + [0] * fp + [1] * fn + [0] * tn
    predicted = [1] * tp + [1] * fp + [0] * fn + [0] * tn
    found = metrics(truth, predicted)
    assert (found.precision, found.recall, found.f1, found.accuracy) == pytest.approx(expected)
    assert (
        found.true_positives,
        found.false_positives,
        found.false_negatives,
        found.true_negatives,
    ) == counts
    assert found.rows == sum(counts)
    assert found.flagged_rate == pytest.approx((tp + fp) / sum(counts))
    assert found.true_rate == pytest.approx((tp + fn) / sum(counts))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.4, 0.97, 1.0])
def test_metrics_are_those_of_scikit_learn_to_the_last_bit(share):
    draw = random.Random(share)
    for rows in (1, 7, 150, 1999):
        truth = [int(draw.random() < share) for _ in range(rows)]
        predicted = [one if draw.random() < 0.8 else 1 - one for one in truth]
        found = metrics(truth, predicted)
        pairs = ((f1_score, found.f1), (precision_score, found.precision))
        pairs += ((recall_score, found.recall),)
        for theirs, ours in pairs:
            assert ours == theirs(truth, predicted, zero_division=0.0)
        assert found.accuracy == accuracy_score(truth, predicted)
