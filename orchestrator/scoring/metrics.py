"""Metrics of binary labels, out of the four counts.

In plain integers and one division each, which is what scikit-learn does too: its import would take
a second of each score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.records.schema import Metrics


def metrics(truth: Sequence[int], predicted: Sequence[int]) -> Metrics:
    """Both of equal length, labels 1 (positive) and 0. A ratio with nothing below it is 0."""
    counts = Counter(zip(truth, predicted, strict=True))
    tp, fp, fn, tn = counts[1, 1], counts[0, 1], counts[1, 0], counts[0, 0]
    rows = len(truth)
    return Metrics(
        f1=_ratio(2 * tp, 2 * tp + fp + fn),
        precision=_ratio(tp, tp + fp),
        recall=_ratio(tp, tp + fn),
        accuracy=_ratio(tp + tn, rows),
        flagged_rate=_ratio(tp + fp, rows),
        true_rate=_ratio(tp + fn, rows),
        true_positives=tp,
        false_positives=fp,
        false_negatives=fn,
        true_negatives=tn,
        rows=rows,
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
