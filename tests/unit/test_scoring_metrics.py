"""Metrics against tables worked out by hand."""

from __future__ import annotations

import pytest

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
