"""Prompts: the task's templates, filled with what is on disk and what really came out."""

import csv
import io
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2.meta import find_undeclared_variables

from orchestrator.errors import TaskInvalid
from orchestrator.records.schema import Ending, ExecuteStage, Failure, StepRecord
from orchestrator.task import SPEC, AgentStageSpec, Task

MAX_FILE_CHARS = 24_000
MAX_FILES_CHARS = 60_000
MAX_STREAM_CHARS = 12_000
VARIABLES = frozenset({"spec", "excerpt", "files", "output", "expected"})
"""What a prompt's template may use; see `render`."""
_ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - plain text, not HTML
)


@dataclass(frozen=True)
class PromptFile:
    path: str
    text: str


@dataclass(frozen=True)
class PromptOutput:
    """What an execute stage printed, as a prompt shows it: no durations, no memory."""

    command: str
    exit_code: int | None
    ending: str
    stdout: str
    stderr: str


@dataclass(frozen=True)
class StageOutput:
    """What an execute stage printed, whole: a text for each step."""

    command: str
    exit_code: int | None
    ending: str
    stdout: tuple[str, ...]
    stderr: tuple[str, ...]

    def shown(self, limit: int) -> PromptOutput:
        """For a prompt, no text of it longer than `limit` characters."""
        return PromptOutput(
            command=self.command,
            exit_code=self.exit_code,
            ending=self.ending,
            stdout="".join(clip(text, limit) for text in self.stdout),
            stderr="".join(clip(text, limit) for text in self.stderr),
        )


def render(
    task: Task,
    template: str,
    expected: tuple[str, ...],
    excerpt: str,
    files: list[PromptFile],
    output: PromptOutput | None,
) -> str:
    """The prompt's text. Raises TaskInvalid naming template and variable."""
    path = task.folder / template
    spec = task.folder / task.repo / SPEC
    try:
        return _ENVIRONMENT.from_string(_text(path)).render(
            spec=_text(spec),
            excerpt=excerpt,
            files=files,
            output=output,
            expected=list(expected),
        )
    except jinja2.TemplateError as exc:
        raise TaskInvalid(f"{path}: {exc}") from None


def variables(task: Task, template: str) -> frozenset[str]:
    """What the template shows."""
    return frozenset(find_undeclared_variables(_ENVIRONMENT.parse(_text(task.folder / template))))


def check_prompts(task: Task) -> None:
    """Refuse before any run what would fail in one. Raises TaskInvalid naming the template."""
    _text(task.folder / task.repo / SPEC)
    for stage in task.stage:
        name = stage.prompt if isinstance(stage, AgentStageSpec) else stage.repair_prompt
        if name is None:
            continue
        path = task.folder / name
        try:
            unknown = find_undeclared_variables(_ENVIRONMENT.parse(_text(path))) - VARIABLES
        except jinja2.TemplateSyntaxError as exc:
            raise TaskInvalid(f"{path}: line {exc.lineno}: {exc}") from None
        if unknown:
            known = ", ".join(sorted(VARIABLES))
            raise TaskInvalid(f"{path}: unknown variable {min(unknown)!r}; there are {known}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise TaskInvalid(f"{path}: byte {exc.start} is not UTF-8; save it as UTF-8") from None


def own_files(tree: dict[str, bytes], baseline: Collection[str]) -> dict[str, str | int]:
    """The workspace's own files by path: their text, or their bytes where they are no text."""
    found: dict[str, str | int] = {}
    for path in sorted(set(tree) - set(baseline)):
        try:
            found[path] = tree[path].decode("utf-8")
        except UnicodeDecodeError:
            found[path] = len(tree[path])
    return found


def output_of(stage: ExecuteStage) -> StageOutput | None:
    """The output to hand back: the failing step's, else all steps' in order."""
    failed = [step for step in stage.steps if step_failed(step)]
    if failed or (stage.failure and not stage.steps):
        return _failed_output(failed[-1] if failed else None, stage.failure)
    if not stage.steps:
        return None
    last = stage.steps[-1]
    failure = stage.failure
    return StageOutput(
        command=" && ".join(" ".join(step.command) for step in stage.steps),
        exit_code=last.exit_code,
        ending=describe(last) if failure is None else failure.sentence,
        stdout=tuple(step.stdout.text for step in stage.steps),
        stderr=tuple(step.stderr.text for step in stage.steps),
    )


def _failed_output(step: StepRecord | None, failure: Failure | None) -> StageOutput:
    if step is None:
        sentence = failure.sentence if failure else ""
        evidence = "\n".join(item.excerpt for item in failure.evidence) if failure else ""
        return StageOutput(
            command="install the declared dependencies",
            exit_code=None,
            ending=sentence,
            stdout=(),
            stderr=(evidence,),
        )
    return StageOutput(
        command=" ".join(step.command),
        exit_code=step.exit_code,
        ending=describe(step),
        stdout=(step.stdout.text,),
        stderr=(step.stderr.text,),
    )


def step_failed(step: StepRecord) -> bool:
    return step.ending is not Ending.EXITED or step.exit_code != 0


def describe(step: StepRecord) -> str:
    """How a step ended, in words that do not change between equal runs."""
    if step.ending is Ending.EXITED:
        return f"exit {step.exit_code}"
    return {
        Ending.TIMEOUT: "stopped at the time limit",
        Ending.OUT_OF_MEMORY: "killed at the memory limit",
        Ending.KILLED: "killed by a signal",
    }[step.ending]


def clip(text: str, limit: int) -> str:
    """Head and tail of an output stream, with a marker that says how much is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def without_label(excerpt: Path, label_column: str) -> bytes:
    """The excerpt as prediction input: every column but the label, as CSV bytes."""
    with excerpt.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
        columns = [name for name in rows[0] if name != label_column] if rows else []
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()
