"""Grading against the key, in a child process with a time and a memory limit of its own.

Run as `python -m orchestrator.scoring.grade` it takes jobs as JSON and gives verdicts as JSON, each
in a fork (`worker`). Whatever a predictions file does to its reader stays in that process; the key
is read there, from the host, and never enters a container.
"""

from __future__ import annotations

import csv
import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import DataInvalid
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure, Metrics
from orchestrator.scoring import metrics, predictions
from orchestrator.scoring.predictions import Columns, Read, Refused
from orchestrator.scoring.worker import Worker, WorkerLost, serve

SECONDS = 120.0
MEMORY_BYTES = 2 << 30
SOURCE = "predictions.csv"
_HEAD_BYTES = 120
"""Of a refused file, kept as evidence of what it was."""

_worker = Worker("orchestrator.scoring.grade", seconds=SECONDS)


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


def get_ready() -> None:
    """Let the libraries that grading needs be imported while a submission trains."""
    _worker.start()


def grade(content: bytes, key: Path, columns: Columns) -> Verdict | Failure:
    """Grade a predictions file's bytes against the key file of this host.

    A file that can't be graded gives an `output-schema` failure with all its problems; a child
    that does not come back with a verdict is our failure, `scorer-error`.
    """
    with _laid(content) as paths:
        return _asked(Job(predictions=paths[0], key=str(key), columns=asdict(columns)))


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


def _judged(answer: Verdict, file: Path) -> Verdict | Failure:
    if not answer.problems:
        return answer
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES).decode("utf-8", "replace")
    return Failure(
        failure_class=FailureClass.OUTPUT_SCHEMA,
        sentence=f"{SOURCE}: {'; '.join(answer.problems)}",
        evidence=[
            *(Evidence(source=SOURCE, excerpt=problem) for problem in answer.problems),
            Evidence(source=SOURCE, excerpt=f"it begins with {head!a}"),
        ],
    )


def _asked(job: Job) -> Verdict | Failure:
    try:
        answer = _worker.ask(job.model_dump_json().encode())
    except WorkerLost as error:
        return _scorer_error(f"grading gave no verdict: {error}", "")
    if answer.status == -signal.SIGALRM:
        return _scorer_error(f"grading was stopped after {SECONDS:.0f} s", "")
    if answer.status != 0:
        said = answer.content.decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else "no output"
        return _scorer_error(f"grading ended with status {answer.status}: {last}", said)
    return _judged(Verdict.model_validate_json(answer.content), Path(job.predictions))


def _scorer_error(sentence: str, said: str) -> Failure:
    evidence = [Evidence(source="grading", excerpt=said[-800:])] if said else []
    return Failure(failure_class=FailureClass.SCORER_ERROR, sentence=sentence, evidence=evidence)


def _read(content: bytes, ids: Sequence[str], columns: Columns) -> Read | Refused:
    """As `predictions.read`; what its reader's memory does not hold is the file's own fault."""
    try:
        return predictions.read(content, ids, columns)
    except MemoryError:
        return Refused([f"the file can't be read with {MEMORY_BYTES >> 20} MiB of memory"])


def verdict(content: bytes, key: Sequence[tuple[str, int]], columns: Columns) -> Verdict:
    """The verdict on a file's bytes; `key` holds (id, true label)."""
    found = _read(content, [one for one, _ in key], columns)
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
    found = _read(content, ids, columns)
    if isinstance(found, Refused):
        return Verdict(problems=found.problems)
    compared = []
    for each in others:
        other = _read(each.content, ids, columns)
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


def answer(content: bytes) -> bytes:
    """The verdict on a job, both as JSON."""
    job = Job.model_validate_json(content)
    columns = Columns(**job.columns)
    predicted = Path(job.predictions).read_bytes()
    if job.key is None:
        others = (
            Other(Path(path).read_bytes(), touched)
            for path, touched in zip(job.altered, job.touched, strict=True)
        )
        found = comparison(predicted, others, job.ids, columns)
    else:
        found = verdict(predicted, read_key(Path(job.key), columns), columns)
    return found.model_dump_json().encode()


if __name__ == "__main__":
    metrics.library()
    serve(answer, seconds=SECONDS, memory_bytes=MEMORY_BYTES)
