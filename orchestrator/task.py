"""tasks/<name>/task.toml → `Task`. Strict: an unknown key names the nearest known one."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from orchestrator.errors import TaskInvalid, TaskNotFound, did_you_mean
from orchestrator.records.schema import Budget
from orchestrator.sandbox.limits import EnvironmentRules, Limits

TASK_FILE = "task.toml"
SPEC = "SPEC.md"
"""What the prompts call the spec, in the task's repo folder."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ValueError("must be a relative path inside its folder")
    return path


InsidePath = Annotated[str, Field(min_length=1)]
PlainName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""Becomes part of file names in the records."""


class Data(_Table):
    """How the data come to be, outside what the agent sees."""

    generator: InsidePath
    """Script of the task folder, run as `python GENERATOR --out DIR --seed N --scale F`."""
    seed: int
    train_rows: int | None = None
    holdout_rows: int | None = None
    sha256: dict[str, dict[str, str]] = {}
    """Scale (as text, e.g. "1" or "0.02") → file → sha256, for the default seed."""

    _check = field_validator("generator")(_inside)


class AgentStageSpec(_Table):
    """The model writes. `expects` are the files it must leave."""

    kind: Literal["agent"] = "agent"
    name: PlainName
    prompt: InsidePath
    expects: tuple[str, ...] = ()

    _check = field_validator("prompt")(_inside)


class Step(_Table):
    """One command in one fresh container; see `Placeholders` in the docs for `{data}` etc."""

    name: PlainName
    command: tuple[str, ...] = Field(min_length=1)
    wall_s: float | None = Field(None, gt=0)
    needs_input: bool = False
    """Mount the input features (the excerpt here, the holdout when scoring)."""


class ExecuteStageSpec(_Table):
    """The harness runs `steps` on a copy; a failure opens repair turns of stage `repairs`."""

    kind: Literal["execute"]
    name: PlainName
    environment: bool = False
    """Install the declared dependencies first."""
    steps: tuple[Step, ...] = Field(min_length=1)
    repairs: str | None = None
    """Name of the agent stage that gets the repair turns."""
    repair_prompt: InsidePath | None = None

    @model_validator(mode="after")
    def _paired(self) -> ExecuteStageSpec:
        if (self.repairs is None) != (self.repair_prompt is None):
            raise ValueError("repairs and repair_prompt go together")
        return self


StageSpec = Annotated[AgentStageSpec | ExecuteStageSpec, Field(discriminator="kind")]


class PredictionsScorer(_Table):
    """Train, then predict on the holdout, each in a fresh container; graded outside."""

    kind: Literal["predictions"]
    train: Step
    predict: Step
    id_column: str
    label_column: str
    positive: str = "1"
    negative: str = "0"
    positive_words: tuple[str, ...] = ()
    """Further spellings of the positive label that are accepted, without regard to case."""
    negative_words: tuple[str, ...] = ()
    score_column: str | None = Field(None, min_length=1)
    """A further column that predictions may have: any number, the higher the surer of the positive
    label. Where they have it, average precision is reported."""
    missing_rows: Literal["refuse", "wrong"] = "refuse"
    """A holdout row without a prediction refuses the file, or is a wrong prediction."""
    leaked_columns: tuple[str, ...] = ()
    """Columns that must not be used; each is probed by predicting with it altered."""
    decisions_file: str | None = None
    """Where the submission says what it does with those columns."""
    estimate_file: str | None = None
    """Where the submission states its own expected F1."""

    @model_validator(mode="after")
    def _columns_apart(self) -> PredictionsScorer:
        if self.label_column == self.id_column:
            raise ValueError(f"label_column is {self.label_column!r}, which is another column")
        if self.score_column in (self.id_column, self.label_column):
            raise ValueError(f"score_column is {self.score_column!r}, which is another column")
        return self

    @model_validator(mode="after")
    def _labels_apart(self) -> PredictionsScorer:
        positive = {word.lower() for word in (self.positive, *self.positive_words)}
        negative = {word.lower() for word in (self.negative, *self.negative_words)}
        if both := positive & negative:
            raise ValueError(f"{min(both)!r} is a spelling of both labels")
        return self

    @model_validator(mode="after")
    def _probed_apart(self) -> PredictionsScorer:
        named = self.leaked_columns
        if "" in named or len(set(named)) != len(named):
            raise ValueError("leaked_columns: each needs a name, and is named once")
        if self.id_column in named:
            raise ValueError(f"leaked_columns names the id column {self.id_column!r}")
        return self


class Defaults(_Table):
    """What a trial uses where the user says nothing."""

    runs: int = Field(5, ge=1)
    repair_turns: int = Field(1, ge=0)
    num_ctx: int = Field(32768, ge=1024)
    max_reply_tokens: int = Field(12288, ge=256)
    stage_wall_s: float = Field(1800.0, gt=0)


class LimitSets(_Table):
    agent: Limits = Limits(memory_mb=1024, cpus=1.0, wall_s=1800, tmp_mb=128)
    execute: Limits = Limits()


class AgentRules(_Table):
    """What agents are asked for beside files."""

    commits: bool = False
    """Keep the work in a git repository in the workspace; agents that can't commit don't."""


class Calibration(_Table):
    """Bounds that a reference must keep at scale 1."""

    f1: tuple[float, float] | None = None
    local_f1_min: float | None = None
    f1_below_half_of: str | None = None


class Task(_Table):
    schema_: Literal[1] = Field(alias="schema")
    name: PlainName
    title: str
    summary: str
    repo: InsidePath = "repo"
    """Folder that the agent's workspace starts from."""
    data: Data
    defaults: Defaults = Defaults()
    limits: LimitSets = LimitSets()
    environment: EnvironmentRules = EnvironmentRules()
    budget: Budget = Budget()
    agent: AgentRules = AgentRules()
    stage: tuple[StageSpec, ...] = Field(min_length=1)
    scorer: PredictionsScorer
    calibration: dict[str, Calibration] = {}
    folder: Path = Path()
    """Where the task lives; set by `load_task`, not by the file."""

    @model_validator(mode="after")
    def _stages_fit(self) -> Task:
        names = [stage.name for stage in self.stage]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two stages are called {name!r}")
        agents = {s.name for s in self.stage if isinstance(s, AgentStageSpec)}
        for stage in self.stage:
            if isinstance(stage, ExecuteStageSpec) and stage.repairs not in agents | {None}:
                raise ValueError(
                    f"stage {stage.name!r}: repairs names no agent stage: {stage.repairs!r}"
                )
        return self

    def scripted_models(self) -> list[str]:
        """Names of the scripted models that this task ships."""
        return sorted(p.parent.name for p in self.folder.glob("scripted/*/script.toml"))

    def fingerprint(self) -> str:
        """sha256 over every file of the task folder (path, then content), sorted by path."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


def load_task(folder: Path) -> Task:
    """Read and check a task folder.

    Raises TaskNotFound (no task.toml) or TaskInvalid (a sentence naming file, field, mend).
    """
    file = folder / TASK_FILE
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskNotFound(f"{file}: no such file; a task is a folder with a task.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise TaskInvalid(f"{file}: not valid TOML: {exc}") from None
    if "folder" in raw:
        raise TaskInvalid(f"{file}: unknown key 'folder'; remove it")
    try:
        task = TypeAdapter(Task).validate_python(raw | {"folder": folder.resolve()})
    except ValidationError as exc:
        raise TaskInvalid(f"{file}: {_sentence(exc)}") from None
    _check_files(task, file)
    return task


def _check_files(task: Task, file: Path) -> None:
    if not (task.folder / task.repo).is_dir():
        raise TaskInvalid(f"{file}: repo names {task.repo!r}, which is no folder of the task")
    wanted = [("data.generator", task.data.generator), ("repo", f"{task.repo}/{SPEC}")]
    for stage in task.stage:
        if isinstance(stage, AgentStageSpec):
            wanted.append((f"stage {stage.name}: prompt", stage.prompt))
        elif stage.repair_prompt is not None:
            wanted.append((f"stage {stage.name}: repair_prompt", stage.repair_prompt))
    for field, path in wanted:
        if not (task.folder / path).is_file():
            raise TaskInvalid(f"{file}: {field} names {path!r}, which is not in the task folder")
    if task.name != task.folder.name:
        raise TaskInvalid(f"{file}: name is {task.name!r} but its folder is {task.folder.name!r}")


def _sentence(exc: ValidationError) -> str:
    """The most telling error as `field: what; mend`, dropping pydantic's own tag levels.

    A misspelt key also leaves its right spelling missing: the unknown key comes first.
    """
    error = min(exc.errors(), key=lambda error: error["type"] != "extra_forbidden")
    loc = error["loc"]
    # A stage's place is told with its kind, which no file has as a key: stage.0.agent.prompt.
    kind = 2 if loc[:1] == ("stage",) and loc[2:3] in (("agent",), ("execute",)) else None
    where = ".".join(str(part) for place, part in enumerate(loc) if place != kind)
    if error["type"] == "extra_forbidden":
        key = str(error["loc"][-1])
        return f"{where}: unknown key {key!r}; {did_you_mean(key, _known_keys(), 'remove it')}"
    if error["type"] == "missing":
        return f"{where}: missing; add it"
    return f"{where or 'the file'}: {error['msg'].removeprefix('Value error, ')}"


def _known_keys() -> list[str]:
    tables = (
        Task, Data, AgentStageSpec, ExecuteStageSpec, Step, PredictionsScorer,
        Defaults, LimitSets, Limits, EnvironmentRules, Budget, AgentRules, Calibration,
    )  # fmt: skip
    return sorted(
        {field.alias or name for table in tables for name, field in table.model_fields.items()}
    )
