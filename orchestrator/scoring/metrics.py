"""Metrics of binary labels, by scikit-learn. Imported in the grading child process only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    precision_score,
    recall_score,
)

from orchestrator.records.schema import Metrics


def metrics(truth: Sequence[int], predicted: Sequence[int]) -> Metrics:
    """Both of equal length, labels 1 (positive) and 0. A ratio with nothing below it is 0."""
    true, said = np.asarray(truth), np.asarray(predicted)
    negatives, positives = confusion_matrix(true, said, labels=[0, 1])
    return Metrics(
        f1=float(f1_score(true, said, zero_division=0.0)),
        precision=float(precision_score(true, said, zero_division=0.0)),
        recall=float(recall_score(true, said, zero_division=0.0)),
        accuracy=float(accuracy_score(true, said)),
        flagged_rate=float(said.mean()),
        true_rate=float(true.mean()),
        true_positives=int(positives[1]),
        false_positives=int(negatives[1]),
        false_negatives=int(positives[0]),
        true_negatives=int(negatives[0]),
        rows=len(truth),
    )
