"""Prompts: the task's templates, filled with what is on disk and what really came out."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2.meta import find_undeclared_variables

from orchestrator.errors import TaskInvalid
from orchestrator.records.schema import Captured, Ending, ExecuteStage, Failure, StepRecord
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
    """What an execute stage printed, as a prompt may show it: no durations, no memory."""

    command: str
    exit_code: int | None
    ending: str
    stdout: str
    stderr: str


def render(
    task: Task,
    template: str,
    *,
    excerpt: str,
    files: list[PromptFile],
    output: PromptOutput | None,
    expected: tuple[str, ...],
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


def own_files(tree: dict[str, bytes], baseline: set[str]) -> list[PromptFile]:
    """The workspace's own text files as a prompt shows them, within a total cap, sorted by path.

    A file that does not fit, or is no text, is named with its size only.
    """
    shown: list[PromptFile] = []
    room = MAX_FILES_CHARS
    for path in sorted(set(tree) - baseline):
        try:
            text = tree[path].decode("utf-8")
        except UnicodeDecodeError:
            shown.append(PromptFile(path, f"({len(tree[path])} bytes, not text)"))
            continue
        if len(text) > min(MAX_FILE_CHARS, room):
            shown.append(PromptFile(path, f"({len(text)} characters, not shown)"))
            continue
        room -= len(text)
        shown.append(PromptFile(path, text))
    return shown


def output_of(stage: ExecuteStage) -> PromptOutput | None:
    """The output to hand back: the failing step's, else all steps' in order."""
    failed = [step for step in stage.steps if step_failed(step)]
    if failed or (stage.failure and not stage.steps):
        return _failed_output(failed[-1] if failed else None, stage.failure)
    if not stage.steps:
        return None
    last = stage.steps[-1]
    failure = stage.failure
    return PromptOutput(
        command=" && ".join(" ".join(step.command) for step in stage.steps),
        exit_code=last.exit_code,
        ending=describe(last) if failure is None else failure.sentence,
        stdout="".join(clip(step.stdout) for step in stage.steps),
        stderr="".join(clip(step.stderr) for step in stage.steps),
    )


def _failed_output(step: StepRecord | None, failure: Failure | None) -> PromptOutput:
    if step is None:
        sentence = failure.sentence if failure else ""
        evidence = "\n".join(item.excerpt for item in failure.evidence) if failure else ""
        return PromptOutput(
            command="install the declared dependencies",
            exit_code=None,
            ending=sentence,
            stdout="",
            stderr=evidence,
        )
    return PromptOutput(
        command=" ".join(step.command),
        exit_code=step.exit_code,
        ending=describe(step),
        stdout=clip(step.stdout),
        stderr=clip(step.stderr),
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


def clip(stream: Captured) -> str:
    """Head and tail of an output stream, with a marker that says how much is left out."""
    text = stream.text
    if len(text) <= MAX_STREAM_CHARS:
        return text
    half = MAX_STREAM_CHARS // 2
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
