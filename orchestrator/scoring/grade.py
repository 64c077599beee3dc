"""Grading against the key, in a child process with a time and a memory limit of its own.

Run as `python -m orchestrator.scoring.grade [ahead]`: a job as JSON on stdin, a verdict as JSON on
stdout. Whatever a predictions file does to its reader stays in that process; the key is read there,
from the host, and never enters a container.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import DataInvalid
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure, Metrics
from orchestrator.scoring import metrics, predictions
from orchestrator.scoring.predictions import Columns, Refused

SECONDS = 120.0
MEMORY_BYTES = 2 << 30
SOURCE = "predictions.csv"
AHEAD = "ahead"


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Job(_Wire):
    """Paths of the host. Without a key the file is only looked at: whether it has a label for each
    of `ids`, and where `altered` names more of them, how many labels of theirs are others."""

    predictions: str
    altered: list[str] = []
    touched: list[list[int]] = []
    """For each of `altered` the places among `ids` that a share of their own is wanted for."""
    key: str | None = None
    ids: list[str] = []
    columns: dict[str, Any]


class Compared(_Wire):
    """Predictions beside others: the share of rows that differ, or why they can't be read."""

    changed: float | None = None
    changed_touched: float | None = None
    """Of the rows that were asked for; None where none was."""
    problems: list[str] = []


class Verdict(_Wire):
    problems: list[str] = []
    normalisations: list[str] = []
    metrics: Metrics | None = None
    compared: list[Compared] = []


class Grader:
    """One child process that grades once; a context manager, which ends it.

    `ahead` lets it import scikit-learn at once: a second that passes while a submission trains.
    What only looks at a file needs no metrics and no such import.
    """

    def __init__(self, *, ahead: bool = True) -> None:
        self._arguments = [AHEAD] if ahead else []

    def __enter__(self) -> Grader:
        # One thread: each of a linear algebra library's reserves memory, which is limited here.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.scoring.grade", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[2],
            env=os.environ | single,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()
        with self._child:
            """Its pipes are closed, and it is waited for."""

    def grade(self, content: bytes, key: Path, columns: Columns) -> Verdict | Failure:
        """Grade a predictions file's bytes against the key file of this host.

        A file that can't be graded gives an `output-schema` failure with all its problems; a child
        that does not come back with a verdict is our failure, `scorer-error`.
        """
        with _laid(content) as paths:
            job = Job(predictions=paths[0], key=str(key), columns=asdict(columns))
            return self.answer(job)

    def answer(self, job: Job) -> Verdict | Failure:
        """The child's answer to the one job that it takes."""
        try:
            out, err = self._child.communicate(job.model_dump_json().encode(), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return _scorer_error(f"grading was stopped after {SECONDS:.0f} s", "")
        if self._child.returncode != 0:
            said = err.decode("utf-8", "replace").strip()
            last = said.splitlines()[-1] if said else "no output"
            return _scorer_error(
                f"grading ended with status {self._child.returncode}: {last}", said
            )
        return _judged(Verdict.model_validate_json(out))


def check(content: bytes, ids: Sequence[str], columns: Columns) -> Failure | None:
    """Whether a predictions file could be graded: the failure that grading it would give."""
    with _laid(content) as paths:
        job = Job(predictions=paths[0], ids=list(ids), columns=asdict(columns))
        found = _asked(job)
    return found if isinstance(found, Failure) else None


@dataclass(frozen=True)
class Other:
    """Predictions to be compared; `touched` are places among the ids that are looked at apart."""

    content: bytes
    touched: Sequence[int] = ()


def compare(
    content: bytes, others: Sequence[Other], ids: Sequence[str], columns: Columns
) -> list[Compared] | Failure:
    """How far other predictions for the same ids differ from those of a file that can be graded."""
    with _laid(content, *(other.content for other in others)) as paths:
        job = Job(
            predictions=paths[0],
            altered=paths[1:],
            touched=[list(other.touched) for other in others],
            ids=list(ids),
            columns=asdict(columns),
        )
        found = _asked(job)
    return found if isinstance(found, Failure) else found.compared


@contextmanager
def _laid(*contents: bytes) -> Iterator[list[str]]:
    """Paths of temporary files with these contents."""
    with tempfile.TemporaryDirectory(prefix="orch-grade-") as folder:
        paths = [Path(folder) / f"{number}.csv" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        yield [str(path) for path in paths]


def _judged(answer: Verdict) -> Verdict | Failure:
    if not answer.problems:
        return answer
    return Failure(
        failure_class=FailureClass.OUTPUT_SCHEMA,
        sentence=f"{SOURCE}: {'; '.join(answer.problems)}",
        evidence=[Evidence(source=SOURCE, excerpt=problem) for problem in answer.problems],
    )


def _asked(job: Job) -> Verdict | Failure:
    with Grader(ahead=False) as grader:
        return grader.answer(job)


def _scorer_error(sentence: str, said: str) -> Failure:
    evidence = [Evidence(source="grading", excerpt=said[-800:])] if said else []
    return Failure(failure_class=FailureClass.SCORER_ERROR, sentence=sentence, evidence=evidence)


def verdict(content: bytes, key: Sequence[tuple[str, int]], columns: Columns) -> Verdict:
    """The verdict on a file's bytes; `key` holds (id, true label)."""
    found = predictions.read(content, [one for one, _ in key], columns)
    if isinstance(found, Refused):
        return Verdict(problems=found.problems)
    truth = [label for _, label in key]
    return Verdict(
        normalisations=found.normalisations,
        metrics=metrics.binary(truth, found.labels, found.scores),
    )


def comparison(
    content: bytes, others: Iterable[Other], ids: Sequence[str], columns: Columns
) -> Verdict:
    """Whether a file's bytes could be graded, and each of the others beside it."""
    found = predictions.read(content, ids, columns)
    if isinstance(found, Refused):
        return Verdict(problems=found.problems)
    compared = []
    for each in others:
        other = predictions.read(each.content, ids, columns)
        if isinstance(other, Refused):
            compared.append(Compared(problems=other.problems))
        else:
            differs = [a != b for a, b in zip(found.labels, other.labels, strict=True)]
            there = [differs[place] for place in each.touched]
            compared.append(
                Compared(
                    changed=sum(differs) / len(ids),
                    changed_touched=sum(there) / len(there) if there else None,
                )
            )
    return Verdict(compared=compared)


def read_key(file: Path, columns: Columns) -> list[tuple[str, int]]:
    """(id, true label) of each row. Raises DataInvalid naming the file and what is wrong."""
    known = {columns.positive: 1, columns.negative: 0}
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            key = [(row[columns.id], known[row[columns.label]]) for row in csv.DictReader(lines)]
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise DataInvalid(
            f"{file}: not a key with {columns.id}, {columns.label}: {error}"
        ) from None
    if not key or len({one for one, _ in key}) != len(key):
        raise DataInvalid(f"{file}: a key needs rows, each with an id of its own")
    return key


def _main() -> None:
    # macOS knows the limit and refuses to set it; there the time limit is what is left.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if sys.argv[1:] == [AHEAD]:
        metrics.library()
    job = Job.model_validate_json(sys.stdin.buffer.read())
    columns = Columns(**job.columns)
    content = Path(job.predictions).read_bytes()
    if job.key is None:
        others = (
            Other(Path(path).read_bytes(), touched)
            for path, touched in zip(job.altered, job.touched, strict=True)
        )
        answer = comparison(content, others, job.ids, columns)
    else:
        answer = verdict(content, read_key(Path(job.key), columns), columns)
    sys.stdout.write(answer.model_dump_json())


if __name__ == "__main__":
    _main()
