"""Grading against the key, in a child process with a time and a memory limit of its own.

Run as `python -m orchestrator.scoring.grade`: a job as JSON on stdin, a verdict as JSON on stdout.
Whatever a predictions file does to its reader stays in that process; the key is read there, from
the host, and never enters a container.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import DataInvalid
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure, Metrics
from orchestrator.scoring import predictions
from orchestrator.scoring.metrics import metrics
from orchestrator.scoring.predictions import Columns, Refused

SECONDS = 120.0
MEMORY_BYTES = 2 << 30
SOURCE = "predictions.csv"


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Job(_Wire):
    """Paths of the host. Without a key the file is only looked at: whether it has a label for each
    of `ids`, and where `altered` names more of them, how many labels of theirs are others."""

    predictions: str
    altered: list[str] = []
    key: str | None = None
    ids: list[str] = []
    columns: dict[str, Any]


class Compared(_Wire):
    """Predictions beside others: the share of rows that differ, or why they can't be read."""

    changed: float | None = None
    problems: list[str] = []


class Verdict(_Wire):
    problems: list[str] = []
    normalisations: list[str] = []
    metrics: Metrics | None = None
    compared: list[Compared] = []


def grade(content: bytes, key: Path, columns: Columns) -> Verdict | Failure:
    """Grade a predictions file's bytes against the key file of this host.

    A file that can't be graded gives an `output-schema` failure with all its problems; a child
    that does not come back with a verdict is our failure, `scorer-error`.
    """
    with _laid(content) as paths:
        job = Job(predictions=paths[0], key=str(key), columns=asdict(columns))
        return _judged(_in_child(job))


def check(content: bytes, ids: Sequence[str], columns: Columns) -> Failure | None:
    """Whether a predictions file could be graded: the failure that grading it would give."""
    with _laid(content) as paths:
        job = Job(predictions=paths[0], ids=list(ids), columns=asdict(columns))
        found = _judged(_in_child(job))
    return found if isinstance(found, Failure) else None


def compare(
    content: bytes, others: Sequence[bytes], ids: Sequence[str], columns: Columns
) -> list[Compared] | Failure:
    """How far other predictions for the same ids differ from those of a file that can be graded."""
    with _laid(content, *others) as paths:
        job = Job(predictions=paths[0], altered=paths[1:], ids=list(ids), columns=asdict(columns))
        found = _judged(_in_child(job))
    return found if isinstance(found, Failure) else found.compared


@contextmanager
def _laid(*contents: bytes) -> Iterator[list[str]]:
    """Paths of temporary files with these contents."""
    with tempfile.TemporaryDirectory(prefix="orch-grade-") as folder:
        paths = [Path(folder) / f"{number}.csv" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        yield [str(path) for path in paths]


def _judged(answer: Verdict | Failure) -> Verdict | Failure:
    if isinstance(answer, Failure) or not answer.problems:
        return answer
    return Failure(
        failure_class=FailureClass.OUTPUT_SCHEMA,
        sentence=f"{SOURCE}: {'; '.join(answer.problems)}",
        evidence=[Evidence(source=SOURCE, excerpt=problem) for problem in answer.problems],
    )


def _in_child(job: Job) -> Verdict | Failure:
    package_root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.scoring.grade"],
            input=job.model_dump_json().encode(),
            capture_output=True,
            timeout=SECONDS,
            cwd=package_root,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _scorer_error(f"grading was stopped after {SECONDS:.0f} s", "")
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else "no output"
        return _scorer_error(f"grading ended with status {done.returncode}: {last}", said)
    return Verdict.model_validate_json(done.stdout)


def _scorer_error(sentence: str, said: str) -> Failure:
    evidence = [Evidence(source="grading", excerpt=said[-800:])] if said else []
    return Failure(failure_class=FailureClass.SCORER_ERROR, sentence=sentence, evidence=evidence)


def verdict(content: bytes, key: Sequence[tuple[str, int]], columns: Columns) -> Verdict:
    """The verdict on a file's bytes; `key` holds (id, true label)."""
    found = predictions.read(content, [one for one, _ in key], columns)
    if isinstance(found, Refused):
        return Verdict(problems=found.problems)
    return Verdict(
        normalisations=found.normalisations,
        metrics=metrics([label for _, label in key], found.labels),
    )


def comparison(
    content: bytes, others: Iterable[bytes], ids: Sequence[str], columns: Columns
) -> Verdict:
    """Whether a file's bytes could be graded, and each of the others beside it."""
    found = predictions.read(content, ids, columns)
    if isinstance(found, Refused):
        return Verdict(problems=found.problems)
    compared = []
    for each in others:
        other = predictions.read(each, ids, columns)
        if isinstance(other, Refused):
            compared.append(Compared(problems=other.problems))
        else:
            differing = sum(a != b for a, b in zip(found.labels, other.labels, strict=True))
            compared.append(Compared(changed=differing / len(ids)))
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
    job = Job.model_validate_json(sys.stdin.buffer.read())
    columns = Columns(**job.columns)
    content = Path(job.predictions).read_bytes()
    if job.key is None:
        others = (Path(path).read_bytes() for path in job.altered)
        answer = comparison(content, others, job.ids, columns)
    else:
        answer = verdict(content, read_key(Path(job.key), columns), columns)
    sys.stdout.write(answer.model_dump_json())


if __name__ == "__main__":
    _main()
