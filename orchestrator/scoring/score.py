"""One score: environment, train, predict, look at what came out, grade, probe for the leak."""

from __future__ import annotations

import csv
import hashlib
import io
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records.schema import Failure, LeakProbe, MissingImport, ScoreRecord
from orchestrator.sandbox.environment import Environment
from orchestrator.sandbox.history import History
from orchestrator.sandbox.installed import importable
from orchestrator.scoring.claims import expected_f1
from orchestrator.scoring.grade import Verdict, grade
from orchestrator.scoring.imports import missing_imports
from orchestrator.scoring.runtime import ScoringBench, input_volume
from orchestrator.scoring.steps import (
    StepResult,
    Workplace,
    columns_of,
    environment_of,
    header_of,
)
from orchestrator.scoring.submission import read_folder, without_built

ALTERED = "1"
"""What the probe sets the leaked column to, throughout."""


@dataclass(frozen=True)
class Holdout:
    """Files of the host. `features` is mounted where a submission predicts; `key` never is."""

    features: Path
    key: Path


def score_tree(bench: ScoringBench, history: History, tree: str, holdout: Holdout) -> ScoreRecord:
    """Score a snapshot. A crash is a classified failure with score 0; engine errors are raised."""
    return score_files(bench, history.extract(tree), tree, holdout)


def score_folder(bench: ScoringBench, folder: Path, holdout: Holdout) -> ScoreRecord:
    """Score a folder of the host. Raises SubmissionNotFound where it holds none."""
    found = read_folder(folder)
    return score_files(bench, found.files, found.tree, holdout)


def score_files(
    bench: ScoringBench, files: Mapping[str, bytes], tree: str, holdout: Holdout
) -> ScoreRecord:
    """Score a submission, given as path → content, without what it built before."""
    began = time.monotonic()
    attempt = _Attempt(bench, without_built(files), tree, holdout)
    attempt.go()
    record = attempt.record
    record.duration_s = time.monotonic() - began
    return record


class _Attempt:
    """The record of one score, filled as it goes; the first failure ends it."""

    def __init__(
        self, bench: ScoringBench, files: Mapping[str, bytes], tree: str, holdout: Holdout
    ) -> None:
        self._bench = bench
        self._files = files
        self._holdout = holdout
        self._scorer = bench.task.scorer
        self.record = ScoreRecord(
            tree=tree, score=0.0, expected_f1=self._estimate(), runtime=bench.runtime
        )

    def _estimate(self) -> float | None:
        named = self._scorer.estimate_file
        content = self._files.get(named) if named else None
        return None if content is None else expected_f1(content.decode("utf-8", "replace"))

    def go(self) -> None:
        environment = environment_of(self._bench, self._files)
        if isinstance(environment, Failure):
            self.record.failure = environment
            return
        self.record.environment = environment.record
        self.record.missing_imports = self._missing_imports(environment)
        self._train_and_predict(environment)

    def _missing_imports(self, environment: Environment) -> list[MissingImport]:
        bench = self._bench
        ours = "{}.{}".format(*sys.version_info)
        # Most programs that need no package are told without asking a container.
        same = environment.record.python.startswith(f"{ours}.")

        def provides(module: str) -> bool:
            if same and module.partition(".")[0] in sys.stdlib_module_names:
                return True
            known = importable(bench.engine, bench.scorer, environment, bench.owner)
            return known.provides(module)

        return missing_imports(self._files, provides)

    def _train_and_predict(self, environment: Environment) -> None:
        bench, scorer = self._bench, self._scorer
        inputs = input_volume(bench, self._holdout.features)
        columns = header_of(_first_line(self._holdout.features))
        with ExitStack() as stack:
            place = stack.enter_context(Workplace(bench, self._files, environment))
            trained = place.run(scorer.train, None, bench.data_columns or None)
            self.record.steps.append(trained.record)
            if trained.failure is not None:
                self.record.failure = trained.failure
                return
            # What the first prediction leaves must not be there for the second.
            probing = scorer.leaked_column in columns
            twin = stack.enter_context(place.copy()) if probing else None
            predicted = place.run(scorer.predict, inputs, columns)
            self.record.steps.append(predicted.record)
            if predicted.failure is not None or predicted.output is None:
                self.record.failure = predicted.failure
                return
            probe = self._probe(twin, columns) if twin else None
        self.record.predictions_sha256 = hashlib.sha256(predicted.output).hexdigest()
        self._grade(predicted.output, probe)

    def _probe(self, place: Workplace, columns: frozenset[str]) -> StepResult:
        """Predict once more with the leaked column set throughout, with the model as trained."""
        column = self._scorer.leaked_column or ""
        altered = altered_column(self._holdout.features.read_bytes(), column, ALTERED)
        return place.run(self._scorer.predict, input_volume(self._bench, altered), columns)

    def _grade(self, output: bytes, probed: StepResult | None) -> None:
        columns = columns_of(self._scorer)
        altered = probed.output if probed else None
        graded = grade(output, self._holdout.key, columns, altered)
        if isinstance(graded, Failure):
            self.record.failure = graded
            return
        assert graded.metrics is not None
        self.record.metrics = graded.metrics
        self.record.normalisations = graded.normalisations
        self.record.score = graded.metrics.f1
        if probed is not None:
            self.record.leak = self._leak(probed, graded)

    def _leak(self, probed: StepResult, graded: Verdict) -> LeakProbe:
        column = self._scorer.leaked_column or ""
        if probed.failure is not None:
            why = f"with {column} set to {ALTERED}, {probed.failure.sentence}"
            return LeakProbe(column=column, verdict="unclear", evidence=why)
        if graded.changed is None:
            why = f"with {column} set to {ALTERED}: {'; '.join(graded.altered_problems)}"
            return LeakProbe(column=column, verdict="unclear", evidence=why)
        return verdict_of(column, graded.changed, named_in(self._files, column))


def verdict_of(column: str, changed: float, named: str | None) -> LeakProbe:
    """What the share of changed predictions says, beside where the code names the column."""
    evidence = f"{changed:.2%} of predictions change with {column} set to {ALTERED} throughout"
    if named is not None:
        evidence += f"; named in {named}"
    if changed > 0:
        return LeakProbe(column=column, verdict="used", changed_when_set=changed, evidence=evidence)
    return LeakProbe(
        column=column,
        verdict="not-used" if named is None else "declared-not-used",
        changed_when_set=changed,
        evidence=evidence,
    )


def named_in(files: Mapping[str, bytes], column: str) -> str | None:
    """`path, line n` of the first mention of the column in the submission's code."""
    for path in sorted(files):
        if not path.endswith(".py"):
            continue
        for number, line in enumerate(files[path].splitlines(), 1):
            if column.encode() in line:
                return f"{path}, line {number}"
    return None


def altered_column(content: bytes, column: str, value: str) -> bytes:
    """A CSV file of ours with one column set to `value` in each row, all else as it was."""
    rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    header = next(rows)
    place = header.index(column)
    writer.writerow(header)
    for row in rows:
        row[place] = value
        writer.writerow(row)
    return out.getvalue().encode()


def _first_line(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.readline()
