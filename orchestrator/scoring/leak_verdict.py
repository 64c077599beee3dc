"""What predictions on altered holdouts say of the use of a column. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Literal

from orchestrator.records.failures import Attribution
from orchestrator.records.schema import Alteration, LeakProbe

_Verdict = Literal["used", "not-used", "declared-not-used", "unclear"]
_MANY = 10
"""Rows that would change: so many are not missing by chance."""
_SAME = "no prediction changes with other values of it"


def verdict_of(
    column: str, results: Sequence[Alteration], listed: str | None, rows: int
) -> LeakProbe:
    """The probe of a column; `listed` is where the code lists it, `rows` those of the holdout.

    `used` takes more change by other values than predicting again on the same gives, and more in
    the rows whose value is another one than in those whose value stayed.
    """
    verdict, why = _judged(results, rows)
    if verdict == "not-used" and listed:
        verdict = "declared-not-used"
    when_set = [result.changed for result in results if result.kind == "set"]
    return LeakProbe(
        column=column,
        verdict=verdict,
        changed_when_set=when_set[0] if when_set else None,
        alterations=list(results),
        evidence=f"{why}; the code lists it in {listed}" if listed else why,
    )


def _judged(results: Sequence[Alteration], rows: int) -> tuple[_Verdict, str]:
    values = [result for result in results if result.kind in ("set", "shuffled")]
    dropped = next((result for result in results if result.kind == "dropped"), None)
    noise = _noise([result for result in results if result.kind == "repeated"])
    if any(result.changed for result in values):
        return _by_values(values, noise, rows)
    if lacking := [result for result in values if result.changed is None]:
        return "unclear", "; ".join(_went(result) for result in lacking)
    if dropped is None or dropped.changed == 0.0:
        return "not-used", _SAME
    if dropped.failure is not None:
        if dropped.failure.attribution is Attribution.HARNESS:
            return "not-used", _SAME
        return "declared-not-used", f"{_SAME}; {_went(dropped)}"
    if (dropped.changed or 0.0) > bound(noise, rows):
        return "unclear", f"{_SAME}, but {dropped.changed:.2%} do with {dropped.note}"
    return "not-used", _SAME


def _by_values(
    values: Sequence[Alteration], noise: float | None, rows: int
) -> tuple[_Verdict, str]:
    moved = [result for result in values if result.changed]
    most = max(moved, key=lambda result: result.changed or 0.0)
    share = f"{most.changed:.2%} of predictions change with {most.note}"
    if noise is None:
        return "unclear", f"{share}; whether they do with nothing altered is not known"
    if (most.changed or 0.0) <= bound(noise, rows):
        return "unclear", f"{share}, {noise:.2%} with nothing altered: too few to tell"
    follow = [_follows(result, rows) for result in moved]
    if False in follow and True not in follow:
        return "unclear", f"{share}, and as many of the rows whose value stayed as it was"
    for still in values:
        # What a row's own value does to all rows it does to some of them too.
        wanted = (most.changed or 0.0) * (still.touched or 0.0) * rows
        if still.kind == "shuffled" and still.changed == 0.0 and wanted > _MANY:
            return "unclear", f"{share}, and none with {still.note}"
    return "used", f"{share} ({noise:.2%} with nothing altered)" if noise else share


def bound(noise: float | None, rows: int) -> float:
    """The share of changed predictions that is still no sign of use, by the share that changes
    when nothing is altered: twice that, three standard errors of the difference of two such
    shares, and the three rows that a share seen as none can stand for."""
    share = noise or 0.0
    return 2 * share + 3 * sqrt(2 * share * (1 - share) / rows) + 3 / rows


def _follows(result: Alteration, rows: int) -> bool | None:
    """Whether predictions change where the value did and not elsewhere alike: by more than three
    standard errors of the difference. None where there are not rows of both kinds.

    A program whose predictions change from one start to the next changes them anywhere.
    """
    touched, there, changed = result.touched, result.changed_touched, result.changed
    if not touched or touched == 1.0 or there is None or changed is None:
        return None
    elsewhere = (changed - touched * there) / (1 - touched)
    # What rounding leaves of nothing is nothing.
    if elsewhere * rows < 0.5:
        return True
    error = sqrt(changed * (1 - changed) * (1 / touched + 1 / (1 - touched)) / rows)
    return there - elsewhere > 3 * error


def _noise(repeated: Sequence[Alteration]) -> float | None:
    """The largest share that changes with nothing altered; None where one of them failed."""
    shares = [result.changed for result in repeated if result.changed is not None]
    return max(shares, default=0.0) if len(shares) == len(repeated) else None


def _went(result: Alteration) -> str:
    """`with flag set to 1, …`: what went wrong there."""
    failure = result.failure
    if failure is None:
        return f"with {result.note}, the submission did not predict"
    return f"with {result.note}, {failure.failure_class.value}: {failure.sentence}"
