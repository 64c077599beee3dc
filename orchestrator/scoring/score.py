"""One score: environment, train, predict, look at what came out, grade, probe for the leak."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records.schema import Claim, Failure, MissingImport, ScoreRecord
from orchestrator.sandbox.environment import Environment
from orchestrator.sandbox.history import History
from orchestrator.sandbox.installed import importable
from orchestrator.scoring import code
from orchestrator.scoring.claims import expected_f1
from orchestrator.scoring.grade import grade
from orchestrator.scoring.imports import missing_imports, own_modules
from orchestrator.scoring.probes import Probes
from orchestrator.scoring.runtime import ScoringBench, input_volume
from orchestrator.scoring.said import claims
from orchestrator.scoring.steps import Workplace, columns_of, environment_of, header_of
from orchestrator.scoring.submission import read_folder, without_built


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
        estimate = self._text(self._scorer.estimate_file)
        self.record = ScoreRecord(
            tree=tree,
            score=0.0,
            expected_f1=None if estimate is None else expected_f1(estimate),
            claims=self._claims(),
            runtime=bench.runtime,
        )

    def _text(self, path: str | None) -> str | None:
        content = self._files.get(path) if path else None
        return None if content is None else content.decode("utf-8", "replace")

    def _claims(self) -> list[Claim]:
        path = self._scorer.decisions_file
        text = self._text(path)
        return claims(text, self._scorer.leaked_columns, path) if path and text is not None else []

    def go(self) -> None:
        code.get_ready()
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

        return missing_imports(code.imports_read(self._files), own_modules(self._files), provides)

    def _train_and_predict(self, environment: Environment) -> None:
        bench, scorer = self._bench, self._scorer
        inputs = input_volume(bench, self._holdout.features)
        columns = header_of(_first_line(self._holdout.features))
        with ExitStack() as stack:
            place = stack.enter_context(Workplace(bench, self._files, environment, outputs=1))
            trained = place.run(scorer.train, None, bench.data_columns or None)
            self.record.steps.append(trained.record)
            if trained.failure is not None:
                self.record.failure = trained.failure
                return
            probes = Probes(bench, self._files, place, self._holdout.features)
            stack.enter_context(probes.ready())
            predicted = place.run(scorer.predict, inputs, columns)
            self.record.steps.append(predicted.record)
            if predicted.failure is not None or predicted.output is None:
                self.record.failure = predicted.failure
                return
            self.record.predictions_sha256 = hashlib.sha256(predicted.output).hexdigest()
            self._grade(predicted.output)
            if self.record.failure is None:
                self.record.leaks, self.record.probes_s = probes.ask(
                    predicted.output, predicted.record.duration_s
                )

    def _grade(self, output: bytes) -> None:
        graded = grade(output, self._holdout.key, columns_of(self._scorer))
        if isinstance(graded, Failure):
            self.record.failure = graded
            return
        assert graded.metrics is not None
        self.record.metrics = graded.metrics
        self.record.normalisations = graded.normalisations
        self.record.score = graded.metrics.f1


def _first_line(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.readline()
