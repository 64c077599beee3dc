"""Running a submission's steps: a fresh capped workspace, each command in a fresh container."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType

from orchestrator.errors import UnsafeOutput
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import (
    Ending,
    EnvironmentRecord,
    ExecuteStage,
    Failure,
    StepRecord,
)
from orchestrator.sandbox import environment as environments
from orchestrator.sandbox.container import ContainerSpec, Mount, run_step
from orchestrator.sandbox.environment import Environment
from orchestrator.sandbox.limits import MIB
from orchestrator.sandbox.volume import Scratch, Volume
from orchestrator.scoring.evidence import StepEvidence
from orchestrator.scoring.failures import classify, without_output
from orchestrator.scoring.grade import check, get_ready
from orchestrator.scoring.predictions import Columns
from orchestrator.scoring.runtime import (
    DATA,
    INPUT,
    OUTPUT,
    OUTPUT_NAME,
    PLACEHOLDERS,
    WORKSPACE,
    ScoringBench,
    input_volume,
    submission_env,
)
from orchestrator.task import ExecuteStageSpec, PredictionsScorer, Step

WORK = "work"
_IN_HOME = 'mkdir -p "$XDG_CACHE_HOME" "$MPLCONFIGDIR" "$XDG_DATA_HOME"; exec "$@"'
"""HOME lies in /tmp, which is empty in each fresh container."""


@dataclass(frozen=True)
class StepResult:
    """One step as it went. `output` is what it left where {output} points, if it names that."""

    record: StepRecord
    failure: Failure | None = None
    output: bytes | None = None


@dataclass(frozen=True)
class StepsResult:
    """Steps up to the first that failed; `output` is of the last that names {output}."""

    steps: list[StepRecord] = field(default_factory=list)
    failure: Failure | None = None
    output: bytes | None = None


@dataclass(frozen=True)
class Spot:
    """Names of two scratch volumes: a workspace, and an empty one for the output of one step."""

    scratch: Scratch
    work: str
    out: str


class Workplace:
    """A submission laid out on a volume of its own; a context manager.

    What the steps leave is seen by the steps after them and by nobody else. Each step that names
    {output} has an output volume of its own: `outputs` says for how many of them there are.
    """

    def __init__(
        self,
        bench: ScoringBench,
        files: Mapping[str, bytes],
        environment: Environment | None,
        outputs: int,
    ) -> None:
        self._bench = bench
        self._files = files
        self._environment = environment
        names = [f"output{n}" for n in range(outputs)]
        sizes = {WORK: bench.limits.work_mb} | dict.fromkeys(names, bench.limits.output_mb)
        self._scratch = Scratch(bench.engine, bench.owner.as_role(WORK), bench.tools.id, sizes)
        self._outputs = iter(names)
        self._too_large: Failure | None = None

    def __enter__(self) -> Workplace:
        # What the steps predict will be looked at.
        get_ready()
        with ExitStack() as stack:
            stack.enter_context(self._scratch)
            self._lay()
            stack.pop_all()
        return self

    def _lay(self) -> None:
        try:
            self._scratch.put(WORK, self._files)
        except UnsafeOutput as error:
            self._too_large = Failure(
                failure_class=FailureClass.DISK_FULL,
                sentence=f"the submission does not fit into its workspace: {error}",
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scratch.__exit__(kind, error, trace)

    @property
    def work(self) -> Volume:
        return self._scratch.volume(WORK)

    def run(self, step: Step, inputs: Volume | None, columns: frozenset[str] | None) -> StepResult:
        """Run one step in a fresh container; `inputs` is mounted only where the step needs it.

        `columns` are those of the file it reads. Raises the engine's errors.
        """
        if not has_output(step):
            return self._judged(self._execute(step, self._mounts(step, self.work, inputs)), columns)
        spot = Spot(self._scratch, WORK, next(self._outputs))
        return self.run_at(spot, step, inputs, columns)

    def run_at(
        self, spot: Spot, step: Step, inputs: Volume | None, columns: frozenset[str] | None
    ) -> StepResult:
        """As `run`, for a step with an output, in another workspace than this one's."""
        mounts = self._mounts(step, spot.scratch.volume(spot.work), inputs)
        mounts.append(spot.scratch.volume(spot.out).at(OUTPUT, read_only=False))
        result = self._judged(self._execute(step, mounts), columns)
        if result.failure is not None:
            return result
        # The step's container is gone by now: nothing can change what is looked at.
        found = read_output(spot, self._bench.limits.output_mb * MIB)
        if found is None:
            found = without_output(self._evidence(result.record, columns), OUTPUT_NAME)
        if isinstance(found, Failure):
            return StepResult(result.record, failure=found)
        return StepResult(result.record, output=found)

    def _mounts(self, step: Step, work: Volume, inputs: Volume | None) -> list[Mount]:
        mounts = [work.at(WORKSPACE, read_only=False), self._bench.data.at(DATA)]
        if self._environment is not None:
            mounts.append(self._environment.mount)
        if step.needs_input and inputs is not None:
            mounts.append(inputs.at(INPUT))
        return mounts

    def _execute(self, step: Step, mounts: Sequence[Mount]) -> StepRecord:
        bench = self._bench
        command = [filled(part) for part in step.command]
        spec = ContainerSpec(
            bench.scorer.id,
            bench.owner.as_role(step.name),
            bench.limits,
            mounts=tuple(mounts),
            env=submission_env(bench.limits, bench.seed),
            workdir=WORKSPACE,
            runtime=bench.runtime,
        )
        ended = run_step(
            bench.engine,
            spec,
            ("/bin/sh", "-c", _IN_HOME, "sh", *command),
            timeout_s=step.wall_s or bench.limits.wall_s,
        )
        return StepRecord(
            name=step.name,
            command=command,
            ending=ended.ending,
            exit_code=ended.exit_code,
            duration_s=ended.duration_s,
            peak_memory_bytes=ended.peak_memory_bytes,
            oom_kills=ended.oom_kills,
            stdout=ended.stdout,
            stderr=ended.stderr,
        )

    def _judged(self, record: StepRecord, columns: frozenset[str] | None) -> StepResult:
        if record.ending is Ending.EXITED and record.exit_code == 0:
            return StepResult(record)
        failure = self._too_large or classify(self._evidence(record, columns))
        return StepResult(record, failure=failure)

    def _evidence(self, record: StepRecord, columns: frozenset[str] | None) -> StepEvidence:
        return StepEvidence(
            step=record,
            tree=self._files.keys(),
            packages=self._environment.packages if self._environment else frozenset(),
            columns=columns,
            columns_elsewhere=self._bench.data_columns,
        )


def read_output(spot: Spot, max_bytes: int) -> bytes | Failure | None:
    """The predictions a step left, if they are one regular file within limits; None: no file."""
    try:
        entry = spot.scratch.stat(spot.out, OUTPUT_NAME)
        if entry is None:
            return None
        if entry.kind == "file" and entry.size > max_bytes:
            text = f"has {entry.size} bytes; at most {max_bytes} are read"
            return _output_failure(FailureClass.OUTPUT_TOO_LARGE, text)
        return spot.scratch.get(spot.out, OUTPUT_NAME, max_bytes)
    except UnsafeOutput as error:
        return _output_failure(FailureClass.OUTPUT_SCHEMA, error.reason)


def _output_failure(failure_class: FailureClass, what: str) -> Failure:
    return Failure(failure_class=failure_class, sentence=f"{OUTPUT_NAME} {what}")


def has_output(step: Step) -> bool:
    return any("{output}" in part for part in step.command)


def filled(part: str) -> str:
    """A part of a step's command with what stands in place of {data}, {input} and {output}."""
    for placeholder, value in PLACEHOLDERS.items():
        part = part.replace(placeholder, value)
    return part


def run_steps(
    bench: ScoringBench,
    files: Mapping[str, bytes],
    steps: Sequence[Step],
    environment: Environment | None,
    input_csv: bytes | None = None,
) -> StepsResult:
    """Run steps in order on a fresh copy of `files`, up to the first that fails."""
    inputs = None if input_csv is None else input_volume(bench, input_csv)
    columns = None if input_csv is None else header_of(input_csv)
    records: list[StepRecord] = []
    output: bytes | None = None
    outputs = sum(has_output(step) for step in steps)
    with Workplace(bench, files, environment, outputs) as place:
        for step in steps:
            result = place.run(step, inputs, _columns_read(bench, step, columns))
            records.append(result.record)
            if result.failure is not None:
                return StepsResult(records, result.failure, output)
            output = result.output if result.output is not None else output
    return StepsResult(records, None, output)


def _columns_read(
    bench: ScoringBench, step: Step, input_columns: frozenset[str] | None
) -> frozenset[str] | None:
    if step.needs_input:
        return input_columns
    return bench.data_columns or None


def header_of(content: bytes) -> frozenset[str]:
    """Column names of a CSV file of ours."""
    first = content.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return frozenset(next(csv.reader(io.StringIO(first)), []))


def ids_of(content: bytes, column: str) -> list[str]:
    """The ids in a CSV file of ours, in its order."""
    rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    return [row[column] for row in rows]


def columns_of(scorer: PredictionsScorer) -> Columns:
    return Columns(
        id=scorer.id_column,
        label=scorer.label_column,
        positive=scorer.positive,
        negative=scorer.negative,
        positive_words=scorer.positive_words,
        negative_words=scorer.negative_words,
        score=scorer.score_column,
        missing_are_wrong=scorer.missing_rows == "wrong",
    )


def environment_of(bench: ScoringBench, files: Mapping[str, bytes]) -> Environment | Failure:
    """The environment that a submission's files declare, found or made."""
    declared = environments.declared(files)
    if isinstance(declared, Failure):
        return declared
    return environments.build(bench.engine, bench, declared, bench.owner, bench.task.environment)


def run_stage(
    bench: ScoringBench,
    stage: ExecuteStageSpec,
    *,
    turn: int,
    files: Mapping[str, bytes],
    input_csv: bytes,
) -> ExecuteStage:
    """An execute stage: the environment where it asks for one, then its steps on a copy.

    Predictions that the steps leave must be fit to be graded, for each row of `input_csv`.
    """
    started, began = datetime.now(UTC), time.monotonic()
    environment: Environment | None = None
    failure: Failure | None = None
    record: EnvironmentRecord | None = None
    done = StepsResult()
    if stage.environment:
        built = environment_of(bench, files)
        if isinstance(built, Failure):
            failure = built
        else:
            environment, record = built, built.record
    if failure is None:
        done = run_steps(bench, files, stage.steps, environment, input_csv)
        failure = done.failure
        if failure is None and done.output is not None:
            columns = columns_of(bench.task.scorer)
            failure = check(done.output, ids_of(input_csv, columns.id), columns)
    if failure is not None:
        failure = failure.model_copy(update={"stage": stage.name})
    return ExecuteStage(
        name=stage.name,
        turn=turn,
        started_at=started,
        duration_s=time.monotonic() - began,
        environment=record,
        steps=done.steps,
        failure=failure,
    )
