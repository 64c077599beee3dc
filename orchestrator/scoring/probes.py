"""Does a submission use what it must not? It predicts again, with the column altered.

A probe never costs a score: what the submission does wrong while it is probed, and what we do,
stands in the probe alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt
from pathlib import Path

from orchestrator.errors import EngineError, ImageMissing, NotEnoughSpace
from orchestrator.records.failures import Attribution, FailureClass
from orchestrator.records.schema import Alteration, AlterationKind, Failure, LeakProbe
from orchestrator.scoring.alterations import Altered, altered
from orchestrator.scoring.grade import SOURCE, compare
from orchestrator.scoring.listed import listed_in
from orchestrator.scoring.runtime import ScoringBench, input_volume
from orchestrator.scoring.steps import Workplace, columns_of, header_of, ids_of
from orchestrator.scoring.twin import Twin

_OURS = (EngineError, ImageMissing, NotEnoughSpace)
_KINDS: tuple[AlterationKind, ...] = ("set", "shuffled", "dropped")
_REPEATS = 2
"""Predictions with nothing altered, where any changed: what differs by chance may not differ once.
"""
_NOT_PREDICTED = "the submission did not predict"


class Probes:
    """The probes of one submission, entered once it is trained, asked once it has predicted."""

    def __init__(
        self, bench: ScoringBench, files: Mapping[str, bytes], place: Workplace, features: Path
    ) -> None:
        self._bench = bench
        self._files = files
        self._place = place
        self._features = features
        self._next = 0
        self._twin: Twin | None = None
        self._broken: Failure | None = None

    @contextmanager
    def ready(self) -> Iterator[Probes]:
        """While this lasts the state that training left is kept: it is what each probe predicts
        with, and so it must begin before the submission predicts for its score."""
        columns = self._bench.task.scorer.leaked_columns
        if not columns:
            yield self
            return
        twin = Twin(self._bench, self._place, len(_KINDS) * len(columns) + _REPEATS)
        try:
            self._twin = twin.__enter__()
        except _OURS as error:
            self._broken = _our_failure(error)
        try:
            yield self
        finally:
            try:
                if self._twin is not None:
                    twin.__exit__(None, None, None)
            except _OURS as error:
                # What is left behind carries the trial's label and goes with it.
                self._broken = _our_failure(error)

    def ask(self, predicted: bytes) -> tuple[list[LeakProbe], float]:
        """A probe for each column that the task names, and the seconds that all took.

        `predicted` is what was graded.
        """
        began = time.monotonic()
        scorer = self._bench.task.scorer
        if not scorer.leaked_columns:
            return [], 0.0
        content = self._features.read_bytes()
        ids = ids_of(content, scorer.id_column)

        def shares(outputs: Sequence[bytes]) -> list[tuple[float | None, Failure | None]]:
            found = compare(predicted, outputs, ids, columns_of(scorer))
            if isinstance(found, Failure):
                return [(None, found)] * len(outputs)
            return [(one.changed, _unread(one.problems)) for one in found]

        results = {
            column: self._asked(altered(content, column), shares)
            for column in scorer.leaked_columns
        }
        repeated: list[Alteration] = []
        if any(_moved(result) for each in results.values() for result in each):
            again = Altered("repeated", content, "nothing altered")
            repeated = self._asked([again] * _REPEATS, shares)
        commands = (*scorer.train.command, *scorer.predict.command)
        probes = [
            verdict_of(column, made + repeated, listed_in(self._files, commands, column), len(ids))
            for column, made in results.items()
        ]
        return probes, time.monotonic() - began

    def _asked(
        self,
        holdouts: Sequence[Altered],
        shares: Callable[[Sequence[bytes]], list[tuple[float | None, Failure | None]]],
    ) -> list[Alteration]:
        results: list[Alteration] = []
        outputs: list[bytes] = []
        places: list[int] = []
        for holdout in holdouts:
            output, failure = self._predict(holdout.content)
            results.append(Alteration(kind=holdout.kind, note=holdout.note, failure=failure))
            if output is not None:
                places.append(len(results) - 1)
                outputs.append(output)
        if outputs:
            for place, (changed, failure) in zip(places, shares(outputs), strict=True):
                results[place].changed, results[place].failure = changed, failure
        return results

    def _predict(self, content: bytes) -> tuple[bytes | None, Failure | None]:
        if self._twin is None or self._broken is not None:
            return None, self._broken
        step = self._bench.task.scorer.predict
        try:
            inputs = input_volume(self._bench, content)
            done = self._twin.run(self._next, step, inputs, header_of(content))
        except _OURS as error:
            self._broken = _our_failure(error)
            return None, self._broken
        self._next += 1
        return done.output, done.failure


def verdict_of(
    column: str, results: Sequence[Alteration], listed: str | None, rows: int
) -> LeakProbe:
    """What the predictions on the altered holdouts say, beside where the code lists the column.

    Pure. `used` takes more change by other values than predicting twice on the same could give.
    """
    by_kind = {result.kind: result for result in results if result.kind != "repeated"}
    values = [by_kind[kind] for kind in ("set", "shuffled") if kind in by_kind]
    dropped = by_kind.get("dropped")
    noise = _noise([result for result in results if result.kind == "repeated"])
    listed_too = f"; the code lists it in {listed}" if listed else ""

    def probe(verdict: str, why: str) -> LeakProbe:
        return LeakProbe.model_validate(
            {
                "column": column,
                "verdict": verdict,
                "changed_when_set": by_kind["set"].changed if "set" in by_kind else None,
                "alterations": list(results),
                "evidence": why + listed_too,
            }
        )

    moved = [result for result in values if _moved(result)]
    if moved:
        most = max(moved, key=lambda result: result.changed or 0.0)
        share = f"{most.changed:.2%} of predictions change with {most.note}"
        if noise is None:
            return probe("unclear", f"{share}; whether they do with nothing altered is not known")
        if (most.changed or 0.0) > bound(noise, rows):
            beside = f" ({noise:.2%} with nothing altered)" if noise else ""
            return probe("used", share + beside)
        return probe("unclear", f"{share}, {noise:.2%} with nothing altered: too few to tell")
    lacking = [result for result in values if result.changed is None]
    if lacking:
        return probe("unclear", "; ".join(_went(result) for result in lacking))
    same = "no prediction changes with other values of it"
    if dropped is not None and dropped.failure is not None:
        if dropped.failure.attribution is Attribution.HARNESS:
            return probe("declared-not-used" if listed else "not-used", same)
        return probe("declared-not-used", f"{same}; {_went(dropped)}")
    if dropped is not None and _moved(dropped) and (dropped.changed or 0.0) > bound(noise, rows):
        return probe("unclear", f"{same}, but {dropped.changed:.2%} do with {dropped.note}")
    return probe("declared-not-used" if listed else "not-used", same)


def _noise(repeated: Sequence[Alteration]) -> float | None:
    """The largest share that changes with nothing altered; None where one of them failed."""
    shares = [result.changed for result in repeated if result.changed is not None]
    return max(shares, default=0.0) if len(shares) == len(repeated) else None


def bound(noise: float | None, rows: int) -> float:
    """The share of changed predictions that is still no sign of use, by the share that changes
    when nothing is altered: twice that, three standard errors of the difference of two such
    shares, and the three rows that a share seen as none can stand for."""
    share = noise or 0.0
    return 2 * share + 3 * sqrt(2 * share * (1 - share) / rows) + 3 / rows


def _moved(result: Alteration) -> bool:
    return bool(result.changed)


def _went(result: Alteration) -> str:
    """`with flag set to 1, …`: what went wrong there."""
    failure = result.failure
    if failure is None:
        return f"with {result.note}, {_NOT_PREDICTED}"
    return f"with {result.note}, {failure.failure_class.value}: {failure.sentence}"


def _unread(problems: Sequence[str]) -> Failure | None:
    if not problems:
        return None
    return Failure(
        failure_class=FailureClass.OUTPUT_SCHEMA, sentence=f"{SOURCE}: {'; '.join(problems)}"
    )


def _our_failure(error: EngineError | ImageMissing | NotEnoughSpace) -> Failure:
    return Failure(
        failure_class=FailureClass.SCORER_ERROR,
        sentence=f"the probe could not be made: {error}",
        reason=type(error).__name__,
    )
