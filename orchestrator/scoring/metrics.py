"""Metrics of labels and probabilities, by scikit-learn where it has them.

It is imported where it is first needed: that takes about a second, which no command should wait for
at its start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import ceil
from types import ModuleType

from orchestrator.records.schema import Metrics
from orchestrator.scoring.predictions import MISSING

BINS = 15


def library() -> ModuleType:
    """scikit-learn's metrics, imported."""
    import sklearn.metrics

    found: ModuleType = sklearn.metrics
    return found


def binary(
    truth: Sequence[int], predicted: Sequence[int], scores: Sequence[float | None] | None = None
) -> Metrics:
    """Metrics of the positive class; all of one length, in one order, labels 1 (positive) and 0.

    A prediction that is MISSING counts as the wrong label, and its score as the worst of all. A
    ratio with nothing below it is 0. Raises ValueError where there are no examples.
    """
    if not truth:
        raise ValueError("no examples")
    sk = library()
    labels = [
        1 - true if one == MISSING else one for true, one in zip(truth, predicted, strict=True)
    ]
    counts = sk.confusion_matrix(truth, labels, labels=[0, 1])
    (tn, fp), (fn, tp) = ((int(one) for one in row) for row in counts)
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        truth, labels, average="binary", zero_division=0.0
    )
    rows = len(truth)
    return Metrics(
        f1=float(f1),
        precision=float(precision),
        recall=float(recall),
        accuracy=float(sk.accuracy_score(truth, labels)),
        macro_f1=macro_f1(truth, labels),
        pr_auc=None if scores is None else average_precision(truth, scores),
        ece=None if scores is None else _calibration(truth, predicted, scores),
        flagged_rate=(tp + fp) / rows,
        true_rate=(tp + fn) / rows,
        true_positives=tp,
        false_positives=fp,
        false_negatives=fn,
        true_negatives=tn,
        rows=rows,
    )


def macro_f1(truth: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Mean F1 over the classes that are true or predicted somewhere, each of the same weight.

    Raises ValueError where there are no examples.
    """
    if not truth:
        raise ValueError("no examples")
    return float(library().f1_score(truth, predicted, average="macro", zero_division=0.0))


def average_precision(truth: Sequence[int], scores: Sequence[float | None]) -> float | None:
    """PR-AUC: over falling thresholds the sum of precision times the gain in recall, without
    interpolation (`sklearn.metrics.average_precision_score`). A score that is None is the worst
    there can be for its row. None where nothing is positive."""
    if 1 not in truth:
        return None
    order = sorted({score for score in scores if score is not None})
    # By rank: only the order counts, and beyond both ends there is a rank for what is missing.
    ranks = {score: rank for rank, score in enumerate(order)}
    ranked = [
        ranks[score] if score is not None else (-1 if true else len(order))
        for true, score in zip(truth, scores, strict=True)
    ]
    return float(library().average_precision_score(truth, ranked))


def calibration_error(correct: Sequence[bool], confidence: Sequence[float]) -> float:
    """ECE: the mean over examples of |accuracy - mean confidence| of the bin that each falls into,
    of BINS equal bins over [0, 1], right-closed, 0 in the first (Guo et al. 2017, section 3).

    Confidences in [0, 1], one for each example. Raises ValueError where there are none.
    """
    if not correct:
        raise ValueError("no examples")
    bins: defaultdict[int, list[tuple[bool, float]]] = defaultdict(list)
    for right, sure in zip(correct, confidence, strict=True):
        bins[max(ceil(sure * BINS), 1)].append((right, sure))
    gaps = (
        abs(sum(right for right, _ in held) - sum(sure for _, sure in held))
        for held in bins.values()
    )
    return sum(gaps) / len(correct)


def _calibration(
    truth: Sequence[int], predicted: Sequence[int], scores: Sequence[float | None]
) -> float | None:
    """Of scores that are probabilities of the positive label for every row, else None."""
    sure: list[float] = []
    for label, score in zip(predicted, scores, strict=True):
        if score is None or not 0 <= score <= 1:
            return None
        sure.append(score if label == 1 else 1 - score)
    right = [true == label for true, label in zip(truth, predicted, strict=True)]
    return calibration_error(right, sure)
