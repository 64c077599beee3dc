"""Does a submission use what it must not? It predicts again, with the column altered.

A probe never costs a score: what the submission does wrong while it is probed, and what we do,
stands in the probe alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import EngineError, ImageMissing, NotEnoughSpace
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Alteration, AlterationKind, Failure, LeakProbe
from orchestrator.scoring.alterations import Altered, altered
from orchestrator.scoring.code import listed_read
from orchestrator.scoring.grade import SOURCE, Compared, Other, compare
from orchestrator.scoring.leak_verdict import verdict_of
from orchestrator.scoring.runtime import ScoringBench, input_volume
from orchestrator.scoring.steps import Workplace, columns_of, header_of, ids_of
from orchestrator.scoring.twin import Twin

_OURS = (EngineError, ImageMissing, NotEnoughSpace)
_KINDS: tuple[AlterationKind, ...] = ("set", "shuffled", "dropped")
_REPEATS = 2
"""Predictions with nothing altered, where any changed: what differs by chance may not differ once.
"""

WALL_FACTOR, LEAST_WALL_S = 4.0, 60.0
"""What a prediction for a probe may take, by what the one for the score took: who hangs when
probed does not hold up a trial for several times the limit."""


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
        self._wall_s = LEAST_WALL_S
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

    def ask(self, predicted: bytes, took_s: float) -> tuple[list[LeakProbe], float]:
        """A probe for each column that the task names, and the seconds that all took.

        `predicted` is what was graded, `took_s` the seconds that predicting it took.
        """
        began = time.monotonic()
        self._wall_s = max(LEAST_WALL_S, WALL_FACTOR * took_s)
        scorer = self._bench.task.scorer
        if not scorer.leaked_columns:
            return [], 0.0
        content = self._features.read_bytes()
        ids = ids_of(content, scorer.id_column)

        def beside(others: Sequence[Other]) -> list[Compared] | Failure:
            return compare(predicted, others, ids, columns_of(scorer))

        results = {
            column: self._asked(altered(content, column), beside)
            for column in scorer.leaked_columns
        }
        repeated: list[Alteration] = []
        if any(result.changed for each in results.values() for result in each):
            again = Altered("repeated", content, "nothing altered")
            repeated = self._asked([again] * _REPEATS, beside)
        commands = (*scorer.train.command, *scorer.predict.command)
        probes = [
            verdict_of(
                column, made + repeated, listed_read(self._files, commands, column), len(ids)
            )
            for column, made in results.items()
        ]
        return probes, time.monotonic() - began

    def _asked(
        self,
        holdouts: Sequence[Altered],
        beside: Callable[[Sequence[Other]], list[Compared] | Failure],
    ) -> list[Alteration]:
        results: list[Alteration] = []
        others: list[Other] = []
        predicted: list[Alteration] = []
        for holdout in holdouts:
            output, failure = self._predict(holdout.content)
            result = Alteration(
                kind=holdout.kind, note=holdout.note, touched=holdout.share, failure=failure
            )
            results.append(result)
            if output is not None:
                predicted.append(result)
                others.append(Other(output, holdout.touched))
        found = beside(others) if others else []
        if isinstance(found, Failure):
            for result in predicted:
                result.failure = found
            return results
        for result, compared in zip(predicted, found, strict=True):
            result.failure = _unread(compared.problems)
            result.changed, result.changed_touched = compared.changed, compared.changed_touched
        return results

    def _predict(self, content: bytes) -> tuple[bytes | None, Failure | None]:
        if self._twin is None or self._broken is not None:
            return None, self._broken
        step = self._bench.task.scorer.predict
        wall_s = min(step.wall_s or self._bench.limits.wall_s, self._wall_s)
        step = step.model_copy(update={"wall_s": wall_s})
        try:
            inputs = input_volume(self._bench, content)
            done = self._twin.run(self._next, step, inputs, header_of(content))
        except _OURS as error:
            self._broken = _our_failure(error)
            return None, self._broken
        self._next += 1
        return done.output, done.failure


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
