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
from collections.abc import Iterator, Sequence
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
    """Paths of the host. `altered` holds predictions on the altered holdout, where probed.

    Without a key the file is only looked at: whether it has a label for each of `ids`.
    """

    predictions: str
    altered: str | None = None
    key: str | None = None
    ids: list[str] = []
    columns: dict[str, Any]


class Verdict(_Wire):
    problems: list[str] = []
    normalisations: list[str] = []
    metrics: Metrics | None = None
    changed: float | None = None
    """Share of rows whose prediction on the altered holdout differs."""
    altered_problems: list[str] = []


def grade(
    content: bytes, key: Path, columns: Columns, altered: bytes | None = None
) -> Verdict | Failure:
    """Grade a predictions file's bytes against the key file of this host.

    A file that can't be graded gives an `output-schema` failure with all its problems; a child
    that does not come back with a verdict is our failure, `scorer-error`.
    """
    with _laid(content, altered) as paths:
        job = Job(
            predictions=paths[0],
            altered=paths[1] if altered is not None else None,
            key=str(key),
            columns=asdict(columns),
        )
        return _judged(_in_child(job))


def check(content: bytes, ids: Sequence[str], columns: Columns) -> Failure | None:
    """Whether a predictions file could be graded: the failure that grading it would give."""
    with _laid(content) as paths:
        job = Job(predictions=paths[0], ids=list(ids), columns=asdict(columns))
        found = _judged(_in_child(job))
    return found if isinstance(found, Failure) else None


@contextmanager
def _laid(*contents: bytes | None) -> Iterator[list[str]]:
    """Paths of temporary files with these contents; None gives an empty one."""
    with tempfile.TemporaryDirectory(prefix="orch-grade-") as folder:
        paths = [Path(folder) / f"{number}.csv" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content or b"")
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


def verdict(
    content: bytes,
    key: Sequence[tuple[str, int]],
    columns: Columns,
    altered: bytes | None = None,
) -> Verdict:
    """The verdict on a file's bytes; `key` holds (id, true label)."""
    ids = [one for one, _ in key]
    found = predictions.read(content, ids, columns)
    if isinstance(found, Refused):
        return Verdict(problems=found.problems)
    answer = Verdict(
        normalisations=found.normalisations,
        metrics=metrics([label for _, label in key], found.labels),
    )
    if altered is not None:
        other = predictions.read(altered, ids, columns)
        if isinstance(other, Refused):
            answer.altered_problems = other.problems
        else:
            differing = sum(a != b for a, b in zip(found.labels, other.labels, strict=True))
            answer.changed = differing / len(ids)
    return answer


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
        found = predictions.read(content, job.ids, columns)
        answer = Verdict(problems=found.problems if isinstance(found, Refused) else [])
    else:
        altered = Path(job.altered).read_bytes() if job.altered else None
        answer = verdict(content, read_key(Path(job.key), columns), columns, altered)
    sys.stdout.write(answer.model_dump_json())


if __name__ == "__main__":
    _main()
