"""What the classifier of failures looks at, and failures made out of it, each with its evidence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure, StepRecord
from orchestrator.scoring import failure_rules as rules
from orchestrator.scoring.runtime import WORKSPACE
from orchestrator.scoring.tracebacks import Crash, Fatal, Frame, fatal_error, last_crash, plain

MAX_EXCERPT = 400


@dataclass(frozen=True)
class StepEvidence:
    """All that the classifier looks at."""

    step: StepRecord
    tree: Collection[str] = ()
    """Paths of the submission's files."""
    packages: frozenset[str] = frozenset()
    """Canonical names of what is installed in its environment."""
    columns: frozenset[str] | None = None
    """Columns of the file that the step reads; None where not known."""
    columns_elsewhere: frozenset[str] = frozenset()
    """Columns of the task's other files."""

    @cached_property
    def stderr(self) -> str:
        return plain(self.step.stderr.text)

    @cached_property
    def stdout(self) -> str:
        return plain(self.step.stdout.text)

    @cached_property
    def crash(self) -> Crash | None:
        return self._crash_on_stderr or last_crash(self.stdout)

    @cached_property
    def _crash_on_stderr(self) -> Crash | None:
        return last_crash(self.stderr)

    @cached_property
    def fatal(self) -> Fatal | None:
        return fatal_error(self.stderr)

    @cached_property
    def modules(self) -> frozenset[str]:
        """Names under which the submission's own files can be imported."""
        found: set[str] = set()
        for path in self.tree:
            parts = path.removesuffix(".py").split("/")
            if path.endswith(".py"):
                found.update((parts[0], parts[-1]))
                found.update(parts[:-1])
        return frozenset(found)

    @property
    def on_stderr(self) -> bool:
        """Whether the crash was printed there, as the interpreter does, or none was printed."""
        return self._crash_on_stderr is not None or self.crash is None

    def source(self) -> str:
        """The stream, by its name in the record, that holds the crash."""
        return f"{self.step.name}.{'stderr' if self.on_stderr else 'stdout'}.txt"


def crash_failure(
    evidence: StepEvidence,
    crash: Crash,
    failure_class: FailureClass,
    *,
    sentence: str = "",
    reason: str = "",
) -> Failure:
    sentence = sentence or f"{evidence.step.name}: {cut(crash.text)}{where(evidence, crash)}"
    found = places(evidence, crash)
    return Failure(failure_class=failure_class, sentence=sentence, reason=reason, evidence=found)


def places(evidence: StepEvidence, crash: Crash) -> list[Evidence]:
    """Where it was printed, and the line of the submission's own code that it came from."""
    printed = Evidence(source=evidence.source(), line=crash.line, excerpt=cut(crash.text))
    return [printed, *own_places(evidence, crash)]


def own_places(evidence: StepEvidence, crash: Crash) -> list[Evidence]:
    frame = own_frame(evidence, crash)
    if frame is None:
        return []
    return [Evidence(source=relative(frame), line=frame.line, excerpt=cut(frame.source))]


def failure(
    evidence: StepEvidence,
    failure_class: FailureClass,
    sentence: str,
    *,
    reason: str = "",
    line: str | None = None,
) -> Failure:
    """Evidence is the given line of the output, else the crash, else the last line."""
    found: list[Evidence] = []
    for stream, text in (("stderr", evidence.stderr), ("stdout", evidence.stdout)):
        shown = line if line is not None else rules.last_line(text)
        if shown and not found and shown in text:
            number = text[: text.rindex(shown)].count("\n") + 1
            source = f"{evidence.step.name}.{stream}.txt"
            found.append(Evidence(source=source, line=number, excerpt=cut(shown)))
    return Failure(failure_class=failure_class, sentence=sentence, reason=reason, evidence=found)


def is_own(evidence: StepEvidence, frame: Frame) -> bool:
    """Compiled code names its files as they were where it was built: in no folder of here."""
    return frame.file.startswith(f"{WORKSPACE}/") or frame.file in evidence.tree


def own_frame(evidence: StepEvidence, crash: Crash) -> Frame | None:
    """The innermost frame in the submission's own code, of where the exception was raised first."""
    frames = (*crash.frames, *crash.origin.frames)
    return next((frame for frame in reversed(frames) if is_own(evidence, frame)), None)


def relative(frame: Frame) -> str:
    return frame.file.removeprefix(f"{WORKSPACE}/")


def where(evidence: StepEvidence, crash: Crash) -> str:
    frame = own_frame(evidence, crash)
    return f" ({relative(frame)}, line {frame.line})" if frame else ""


def cut(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT else f"{text[: MAX_EXCERPT - 1]}…"
