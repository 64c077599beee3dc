"""What each repair turn was worth: its submission scored as it stood before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orchestrator.errors import RecordUnwritable
from orchestrator.records.schema import Failure, Repair, RepairOutcome, ScoreRecord, Worth
from orchestrator.trial.faults import fault, follows_an_interrupt

Score = Callable[[str], ScoreRecord]
"""The score of a tree, by its id."""


def price(
    repairs: Iterable[Repair], known: ScoreRecord, score: Score, saved: Callable[[], None]
) -> None:
    """Give each repair its two scores, and its outcome by them; `saved` is called after each.

    `known` is the score that the run has already. A tree is scored once, however often it comes.
    What goes wrong on our side stands at the repair that it keeps from its scores; only that
    records can't be written is raised.
    """
    found: dict[str, Worth | Failure] = {known.tree: _worth(known)}

    def worth(tree: str) -> Worth | Failure:
        if tree not in found:
            try:
                found[tree] = _worth(score(tree))
            except RecordUnwritable:
                raise
            except Exception as exc:  # noqa: BLE001 - the run is done and must not suffer from it
                if follows_an_interrupt(exc):
                    raise KeyboardInterrupt from None
                found[tree] = fault(exc)
        return found[tree]

    for repair in repairs:
        if repair.tree_before == repair.tree_after and repair.tree_after not in found:
            # The model changed nothing: whatever it is worth, that is the same.
            repair.outcome = RepairOutcome.UNCHANGED
            continue
        before, after = worth(repair.tree_before), worth(repair.tree_after)
        repair.before = before if isinstance(before, Worth) else None
        repair.after = after if isinstance(after, Worth) else None
        repair.unpriced = next((one for one in (before, after) if isinstance(one, Failure)), None)
        if repair.before is not None and repair.after is not None:
            repair.outcome = outcome(repair.before, repair.after)
        saved()


def outcome(before: Worth, after: Worth) -> RepairOutcome:
    """`rescued`: without a score, then with one; `regressed`: the other way round; `improved` and
    `worsened` of two scores; else `unchanged`, two failures of any class too. Scores are of seeded
    programs on the same rows: any difference counts."""
    if before.failure is not None or after.failure is not None:
        if before.failure is None:
            return RepairOutcome.REGRESSED
        return RepairOutcome.RESCUED if after.failure is None else RepairOutcome.UNCHANGED
    if before.score == after.score:
        return RepairOutcome.UNCHANGED
    return RepairOutcome.IMPROVED if after.score > before.score else RepairOutcome.WORSENED


def _worth(record: ScoreRecord) -> Worth | Failure:
    failure = record.failure
    if failure is not None and not failure.valid:
        return failure
    return Worth(
        score=record.score,
        failure=None if failure is None else failure.failure_class,
        predictions_sha256=record.predictions_sha256,
    )
