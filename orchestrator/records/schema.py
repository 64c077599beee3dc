"""What is kept of a trial and of a run. Versioned; every file is written atomically."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from orchestrator.config import Price
from orchestrator.records.failures import TABLE, Attribution, FailureClass
from orchestrator.records.reasons import MENDS

SCHEMA_VERSION = 1


class Record(BaseModel):
    """Base: unknown fields are errors, so that a record can't be misread in silence."""

    model_config = ConfigDict(extra="forbid")


class Evidence(Record):
    """Where a finding can be seen: a file of the record, a line in it (1-based), its text."""

    source: str
    line: int | None = None
    excerpt: str


class Failure(Record):
    """One classified failure. Attribution comes from the table, never from the caller."""

    failure_class: FailureClass
    sentence: str
    stage: str = ""
    reason: str = ""
    """Finer than the class where one is known, e.g. `prose-only` under `no-edits`."""
    evidence: list[Evidence] = []

    @property
    def attribution(self) -> Attribution:
        return TABLE[self.failure_class].attribution

    @property
    def valid(self) -> bool:
        """Whether the run still counts in the denominator."""
        return TABLE[self.failure_class].valid

    @property
    def mend(self) -> str:
        """What would fix it."""
        return MENDS.get(self.reason, TABLE[self.failure_class].mend)


class Ending(StrEnum):
    """Why a command in a container ended, by the engine's evidence."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"


class Captured(Record):
    """One output stream, head and tail kept; `total_bytes` counts what was written."""

    text: str
    total_bytes: int
    dropped_bytes: int = 0


class StepRecord(Record):
    """One command in one fresh container."""

    name: str
    command: list[str]
    ending: Ending
    exit_code: int | None
    duration_s: float
    peak_memory_bytes: int | None
    oom_kills: int | None
    stdout: Captured
    stderr: Captured


class FileChange(Record):
    path: str
    change: Literal["added", "modified", "deleted"]
    size: int
    """Bytes after the change; 0 for a deleted file."""


class Dropped(Record):
    """Something in a reply that did not land on disk, and why."""

    path: str
    reason: str


class Usage(Record):
    """Sums over model calls. Tokens as the server counted them; times in seconds."""

    calls: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    reasoning_tokens: int = 0
    """How many of the reply's tokens were reasoning, guessed by its share of the characters."""
    model_s: float = 0.0
    load_s: float = 0.0
    cost: float | None = None
    """US dollars, of the calls whose model has a known price; None where none has."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            reply_tokens=self.reply_tokens + other.reply_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            model_s=self.model_s + other.model_s,
            load_s=self.load_s + other.load_s,
            cost=_sum(self.cost, other.cost),
        )


def _sum(one: float | None, other: float | None) -> float | None:
    return (one or 0.0) + (other or 0.0) if (one, other) != (None, None) else None


class Commit(Record):
    """A commit that an agent made in the workspace, first line of its message."""

    id: str
    subject: str


class PromptCut(Record):
    """Part of the material that a prompt does not show. `size` and `kept` in characters, of a file
    that is no text in bytes."""

    what: Literal["file", "stdout", "stderr", "excerpt"]
    name: str = ""
    size: int
    kept: int


class PromptPlan(Record):
    """How a prompt was fitted into the context. Tokens are estimated."""

    tokens: int
    room: int
    """Tokens that it might have: the context less the reply's reserve and the agent's words."""
    ratio: float
    """Tokens to one of `trial.truncation.size`."""
    cuts: list[PromptCut] = []


class AgentStage(Record):
    """The model wrote. `turn` 0 is the stage's own prompt, 1.. are repair turns."""

    kind: Literal["agent"] = "agent"
    name: str
    turn: int = 0
    started_at: datetime
    duration_s: float
    tree: str
    """Git tree id of the workspace after the stage."""
    changes: list[FileChange] = []
    missing: list[str] = []
    dropped: list[Dropped] = []
    skipped: list[Dropped] = []
    """Entries of the workspace that the snapshot could not hold."""
    announced: list[str] = []
    """Files that the agent says it wrote."""
    junk: list[str] = []
    """New files named like a command, a language, a line of markup or words of the prompt."""
    data_touched: list[str] = []
    """Files of the data that were altered."""
    notes: list[str] = []
    """The agent's remarks, e.g. that a file came twice, or that the reply was cut and what came
    of asking once more."""
    prompt: PromptPlan | None = None
    usage: Usage = Usage()
    agent_output: Captured | None = None
    commits: list[Commit] | None = None
    """All in the workspace's repository after the stage, newest first; None: not asked for."""
    failure: Failure | None = None


class ExecuteStage(Record):
    """The harness ran what the model wrote, on a copy of the workspace."""

    kind: Literal["execute"] = "execute"
    name: str
    turn: int = 0
    started_at: datetime
    duration_s: float
    environment: "EnvironmentRecord | None" = None
    steps: list[StepRecord] = []
    failure: Failure | None = None

    @property
    def passed(self) -> bool:
        return self.failure is None


StageRecord = Annotated[AgentStage | ExecuteStage, Field(discriminator="kind")]


class EnvironmentRecord(Record):
    """Declared dependencies, resolved. `lock` is requirements text with hashes ("" = none)."""

    declared_in: str | None
    """`requirements.txt`, `pyproject.toml`, or None where nothing was declared."""
    lock_sha256: str
    lock: str
    python: str
    """Interpreter version, e.g. `3.11.2`."""
    packages: dict[str, str] = {}
    reused: bool = False
    resolve_s: float = 0.0
    install_s: float = 0.0


class Metrics(Record):
    """Grading against the key. All fractions in [0, 1]."""

    f1: float
    precision: float
    recall: float
    flagged_rate: float
    true_rate: float
    accuracy: float
    macro_f1: float | None = None
    """Over both classes; None in older records."""
    pr_auc: float | None = None
    """Average precision, where the submission gave scores."""
    ece: float | None = None
    """Expected calibration error, where they are probabilities for every row."""
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    rows: int


AlterationKind = Literal["set", "shuffled", "dropped", "repeated"]


class Alteration(Record):
    """Predicting again on the holdout with a column altered; `repeated`: with nothing altered."""

    kind: AlterationKind
    note: str = ""
    """How the column was altered, or why nothing came of it."""
    changed: float | None = None
    """Share of rows whose prediction changes."""
    touched: float | None = None
    """Share of rows whose value is another one than before; None where the column is dropped."""
    changed_touched: float | None = None
    """Share of those whose prediction changes."""
    failure: Failure | None = None
    """What went wrong, be it the submission's doing or ours; the score is not touched by it."""


class LeakProbe(Record):
    """Whether predictions depend on a column that must not be used."""

    column: str
    verdict: Literal["used", "not-used", "declared-not-used", "unclear"]
    changed_when_set: float | None = None
    """Share of rows whose prediction changes when the column is set to one value throughout."""
    alterations: list[Alteration] = []
    evidence: str = ""


class Claim(Record):
    """What a submission's own text says of one topic, with the sentences that say it.

    Answers: `plan` of a column: excluded, used; `availability` of a column when it predicts:
    available, unavailable; `metric`: its name; `imbalance`: handled, noted, denied. Of each also
    unclear (said both ways, on a condition, or by nothing that a rule knows) and unmentioned.
    """

    topic: Literal["plan", "availability", "metric", "imbalance"]
    column: str | None = None
    answer: str
    evidence: list[Evidence] = []


class MissingImport(Record):
    """An import in the submission's code that nothing it declares provides."""

    module: str
    package: str
    """Its package, where the names are known to differ; else the module's own first name."""
    path: str
    line: int
    optional: bool = False
    """The code says what to do without it."""


class Spread(Record):
    """One tree trained and scored several times from scratch, in order; the score's own first."""

    scores: list[float]
    predictions_sha256: list[str | None]
    failures: list[FailureClass | None]
    distinct: int
    """How many different results: 1 where each time gave the same predictions or failure."""


class ScoreRecord(Record):
    """One scoring of one tree. `score` is the task's headline number in [0, 1]."""

    tree: str
    score: float
    metrics: Metrics | None = None
    failure: Failure | None = None
    environment: EnvironmentRecord | None = None
    steps: list[StepRecord] = []
    predictions_sha256: str | None = None
    normalisations: list[str] = []
    missing_imports: list[MissingImport] = []
    """Found in its code without running it; empty where no environment could be made."""
    leaks: list[LeakProbe] = []
    """One for each column that the task names."""
    probes_s: float = 0.0
    """What the probes took of the duration."""
    claims: list[Claim] = []
    expected_f1: float | None = None
    """The submission's own estimate, from EVALUATION.md."""
    runtime: str | None = None
    """The engine's runtime that the steps ran under; None: its default."""
    spread: Spread | None = None
    duration_s: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _one_probe(cls, given: Any) -> Any:
        """Records of old have one probe, or none, as `leak`."""
        if isinstance(given, dict) and "leak" in given:
            leak = given["leak"]
            rest = {name: value for name, value in given.items() if name != "leak"}
            return rest | {"leaks": [] if leak is None else [leak]}
        return given

    @property
    def leak(self) -> LeakProbe | None:
        """The gravest of the probes."""
        order = ("used", "unclear", "declared-not-used", "not-used")
        return min(self.leaks, key=lambda probe: order.index(probe.verdict), default=None)


class RepairOutcome(StrEnum):
    RESCUED = "rescued"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    WORSENED = "worsened"
    UNCHANGED = "unchanged"


class Worth(Record):
    """What a submission was worth at one point of its run, by the task's own score."""

    score: float
    failure: FailureClass | None = None
    """The model's, which made it 0."""
    predictions_sha256: str | None = None


class Repair(Record):
    """One repair turn: the trees before and after it, how far each got, and what each scores."""

    stage: str
    turn: int
    passed_before: bool
    passed_after: bool
    tree_before: str
    tree_after: str
    failed_step_before: int | None
    """Index of the step that failed (the later, the further it got); None when it passed."""
    failed_step_after: int | None
    outcome: RepairOutcome
    """By both scores; where they are not known, by how far the execute stage got."""
    before: Worth | None = None
    after: Worth | None = None
    unpriced: Failure | None = None
    """Why a score is not known: a failure that is not the model's. It leaves the run's standing."""


class RunSpec(Record):
    """One planned run. `index` counts per model from 0; the seed is the same for all models."""

    run_id: str
    model: str
    index: int
    seed: int


class RunStatus(StrEnum):
    PLANNED = "planned"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class RunRecord(Record):
    schema_version: int = SCHEMA_VERSION
    spec: RunSpec
    status: RunStatus = RunStatus.PLANNED
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_s: float = 0.0
    stages: list[StageRecord] = []
    repairs: list[Repair] = []
    score: ScoreRecord | None = None
    failure: Failure | None = None
    """What decided the run: the harness failure that ended it, else the score's failure."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def usage(self) -> Usage:
        total = Usage()
        for stage in self.stages:
            if isinstance(stage, AgentStage):
                total = total + stage.usage
        return total

    @property
    def commits(self) -> list[Commit] | None:
        """What the workspace's repository held at last; None where nobody was to commit."""
        last = [stage.commits for stage in self.stages if isinstance(stage, AgentStage)]
        return next((commits for commits in reversed(last) if commits is not None), None)


class ImageRecord(Record):
    """`id` is the engine's image id; `inputs_sha256` hashes all that the build read."""

    name: str
    id: str
    inputs_sha256: str
    repo_digest: str | None = None


class ModelRecord(Record):
    """What the upstream said of a model at the trial's start."""

    reference: str
    upstream: Literal["ollama", "openai", "anthropic", "scripted", "replay"]
    name: str
    digest: str | None = None
    parameters: dict[str, str] = {}
    size_bytes: int | None = None
    context_loaded: int | None = None
    context_trained: int | None = None
    vram_bytes: int | None = None
    loaded_bytes: int | None = None
    """In memory and on the GPU together; `vram_bytes` is the part on the GPU."""
    processor: str | None = None
    """Where it lies, as Ollama words it: `100% GPU`, `42%/58% CPU/GPU`."""
    load_s: float | None = None
    """What loading took before the first run; near 0 where it was loaded already."""
    server: str | None = None
    """Program and version that serve it, e.g. `Ollama 0.33.1`."""
    price: Price | None = None
    """By which the cost of its calls was computed."""
    notes: list[str] = []


class DataRecord(Record):
    """The task's generated data: `files` maps relative path to sha256."""

    seed: int
    scale: float
    generator_sha256: str
    """Over the files beside the generator, itself included: other code makes other data."""
    files: dict[str, str]


class Budget(Record):
    """What one run may use up; None: no limit. A call that begins below a limit may end above."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_tokens_in: int | None = Field(None, ge=1)
    max_tokens_out: int | None = Field(None, ge=1)
    max_calls: int | None = Field(None, ge=1)
    max_agent_time: float | None = Field(None, gt=0)
    """Seconds of wall time, agent stages and repair turns together."""
    max_cost: float | None = Field(None, gt=0)
    """US dollars, of models whose prices are known."""


class TrialSettings(Record):
    runs: int
    seed: int
    repair_turns: int
    num_ctx: int
    temperature: float | None = None
    think: str | None = None
    """Thinking level; None: the model's own."""
    budget: Budget = Budget()
    scale: float = 1.0
    repeat: int = 1
    """Times that each submission is trained and scored from scratch."""
    runtime: str | None = None
    """The engine's runtime that submissions ran under; None: its default."""
    agent: str = "builtin"


class TrialRecord(Record):
    schema_version: int = SCHEMA_VERSION
    trial_id: str
    orch_version: str
    created_at: datetime
    task: str
    task_sha256: str
    settings: TrialSettings
    data: DataRecord
    images: list[ImageRecord]
    models: list[ModelRecord]
    engine: dict[str, str]
    plan: list[RunSpec]
