"""Metrics against tables worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.scoring.metrics import average_precision, binary, calibration_error, macro_f1
from orchestrator.scoring.predictions import MISSING

VECTORS = json.loads((Path(__file__).parents[1] / "cases" / "20" / "vectors.json").read_text())

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
    found = binary(truth, predicted)
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


def test_macro_f1_is_the_mean_over_both_classes():
    # positive: 2 of 3 right, one false alarm → 2/3; negative: 3 of 4, one missed → 3/4
    truth, predicted = [1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0]
    assert binary(truth, predicted).macro_f1 == pytest.approx((2 / 3 + 3 / 4) / 2)


def test_a_missing_prediction_is_wrong_whatever_is_true():
    found = binary([1, 0, 1, 0], [1, MISSING, MISSING, 0])
    assert (found.true_positives, found.false_positives) == (1, 1)
    assert (found.false_negatives, found.true_negatives) == (1, 1)
    assert found.f1 == 0.5


# truth and scores, then precision at each positive by falling score, over the positives
AVERAGE_PRECISION = [
    ([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1], 1.0),
    ([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], (1 / 1 + 2 / 3) / 2),
    ([0, 0, 1], [3.0, 2.0, -1.5], 1 / 3),
    ([1, 0], [0.5, 0.5], 1 / 2),
    ([1, 1, 0, 0], [None, 0.8, 0.9, 0.1], (1 / 2 + 2 / 4) / 2),
    ([1, 0, 0, 0], [0.8, None, 0.7, 0.1], 1 / 2),
    ([1, 0], [None, None], 1 / 2),
    ([1, 0], [1e300, -1e300], 1.0),
    ([0, 0], [0.1, 0.9], None),
]


@pytest.mark.parametrize(("truth", "scores", "expected"), AVERAGE_PRECISION)
def test_average_precision_by_hand(truth, scores, expected):
    found = average_precision(truth, scores)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_scores_that_are_no_probabilities_have_no_calibration():
    truth, predicted = [1, 0, 1], [1, 0, 0]
    assert binary(truth, predicted).ece is None
    assert binary(truth, predicted, [0.9, 0.1, 2.0]).ece is None
    assert binary(truth, predicted, [0.9, 0.1, None]).ece is None
    # sure of each label: 0.9 right, 0.9 right, 0.7 wrong
    assert binary(truth, predicted, [0.9, 0.1, 0.3]).ece == pytest.approx((0.2 + 0.7) / 3)


def chosen(case):
    """The likeliest class of each, the first of several, and how sure it is."""
    likeliest = [max(range(len(one)), key=one.__getitem__) for one in case["p"]]
    return [case["classes"][one] for one in likeliest], [max(one) for one in case["p"]]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_case_20(case):
    predicted, sure = chosen(case)
    right = [true == one for true, one in zip(case["y"], predicted, strict=True)]
    if str(case.get("expect", "")).startswith("error"):
        with pytest.raises(ValueError, match="no examples"):
            macro_f1(case["y"], predicted)
        with pytest.raises(ValueError, match="no examples"):
            calibration_error(right, sure)
        return
    wanted = {name: value for name, value in case.items() if isinstance(value, float)}
    found = {
        "macro_f1": macro_f1(case["y"], predicted),
        "macro_f1_over_seen": macro_f1(case["y"], predicted),
        "ece": calibration_error(right, sure),
        "ece_right_closed_bins": calibration_error(right, sure),
        "acc_first_index": sum(right) / len(right),
    }
    checked = wanted.keys() & found.keys()
    for name in checked:
        assert found[name] == pytest.approx(wanted[name], abs=1e-6), name
    assert checked or case["name"] == "predicted_class_absent_in_truth"


def test_a_class_that_is_predicted_and_never_true_counts_as_none():
    assert macro_f1(["a", "b"], ["a", "c"]) == pytest.approx(1 / 3)
