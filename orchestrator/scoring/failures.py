"""Why a step of a submission failed: a pure function over the engine's evidence and its output.

What the engine knows (time, memory, a signal) comes first; then the exception that ended the
program; then texts of tools that end without one. Nothing is guessed: what fits no rule is a
`runtime-error` with its last line.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Ending, Evidence, Failure, StepRecord
from orchestrator.scoring import failure_rules as rules
from orchestrator.scoring.runtime import WORKSPACE
from orchestrator.scoring.tracebacks import Crash, Frame, last_crash, plain

MAX_EXCERPT = 400
_C = FailureClass


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
        return last_crash(self.stderr) or last_crash(self.stdout)

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

    def source(self) -> str:
        """The stream, by its name in the record, that holds the crash."""
        stream = "stderr" if last_crash(self.stderr) or not self.crash else "stdout"
        return f"{self.step.name}.{stream}.txt"


def classify(evidence: StepEvidence) -> Failure:
    """The failure of a step that did not end with exit status 0 in time and memory."""
    for judge in (_by_engine, _no_entry_point, _by_crash, _by_text, _by_signal):
        found = judge(evidence)
        if found is not None:
            return found
    return _plain_exit(evidence)


def _by_engine(evidence: StepEvidence) -> Failure | None:
    step = evidence.step
    if step.ending is Ending.TIMEOUT:
        return _failure(
            evidence, _C.TIMEOUT, f"{step.name} was stopped after {step.duration_s:.0f} s"
        )
    if step.ending is Ending.OUT_OF_MEMORY:
        return _failure(
            evidence, _C.OUT_OF_MEMORY, f"{step.name} needed more memory than the task allows"
        )
    return None


def _no_entry_point(evidence: StepEvidence) -> Failure | None:
    line = rules.missing_script(evidence.stderr)
    if line is None and evidence.step.exit_code not in (126, 127):
        return None
    command = " ".join(evidence.step.command)
    missing = rules.script_of(evidence.step.command)
    # A program that is there may itself have missed another, unless it was removed meanwhile.
    if missing in evidence.tree and (line is None or missing.removesuffix(".py") not in line):
        return None
    sentence = f"{evidence.step.name} could not start `{command}`: {missing} is not there"
    return _failure(evidence, _C.NO_ENTRY_POINT, sentence, line=line)


def _by_crash(evidence: StepEvidence) -> Failure | None:
    crash = evidence.crash
    if crash is None:
        return None
    for rule in _CRASH_RULES:
        found = rule(evidence, crash)
        if found is not None:
            return found
    return None


def _syntax(evidence: StepEvidence, crash: Crash) -> Failure | None:
    if crash.name not in ("SyntaxError", "IndentationError", "TabError"):
        return None
    place = crash.frames[-1] if crash.frames else None
    named = rules.file_in_message(crash.message)
    if place is None and named is None:
        return _crash_failure(evidence, crash, _C.SYNTAX_ERROR)
    if named is not None or (place and _own(place) and place.function is None):
        return _crash_failure(evidence, crash, _C.SYNTAX_ERROR)
    return _crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="syntax of other code")


def _import(evidence: StepEvidence, crash: Crash) -> Failure | None:
    module = rules.missing_module(crash)
    if module is None:
        return None
    top, dotted = module.partition(".")[0], "." in module
    if top in evidence.modules or top == "__main__":
        if rules.while_unpickling(crash):
            return _unpicklable(evidence, crash, f"the saved object needs module {module}")
        return _crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="own module not found")
    if top in sys.stdlib_module_names:
        return _crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="standard library")
    if dotted and rules.provides(evidence.packages, top):
        return _crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="version skew")
    if (line := rules.network_line(evidence.stderr, evidence.stdout)) is not None:
        return _needs_network(evidence, line)
    package = rules.package_of(top)
    known_as = f" (package {package})" if package != top else ""
    where = _where(crash)
    return _crash_failure(
        evidence,
        crash,
        _C.UNDECLARED_DEPENDENCY,
        sentence=f"{evidence.step.name} needs {module}{known_as}, which is not declared{where}",
        reason=module,
    )


def _pickle(evidence: StepEvidence, crash: Crash) -> Failure | None:
    what = rules.unpicklable(crash)
    return None if what is None else _unpicklable(evidence, crash, what)


def _unpicklable(evidence: StepEvidence, crash: Crash, what: str) -> Failure:
    return _crash_failure(
        evidence,
        crash,
        _C.UNPICKLABLE_ARTIFACT,
        sentence=f"{evidence.step.name}: {what}{_where(crash)}",
    )


def _columns(evidence: StepEvidence, crash: Crash) -> Failure | None:
    missing = rules.missing_columns(crash, evidence.columns, evidence.columns_elsewhere)
    if missing is None:
        return None
    names = ", ".join(repr(name) for name in missing)
    return _crash_failure(
        evidence,
        crash,
        _C.INPUT_SCHEMA,
        sentence=f"{evidence.step.name} expects a column that its input lacks: {names}"
        f"{_where(crash)}",
        reason=", ".join(missing),
    )


def _resources(evidence: StepEvidence, crash: Crash) -> Failure | None:
    found = rules.exhausted(crash)
    if found is None:
        return None
    return _crash_failure(evidence, crash, found)


def _network(evidence: StepEvidence, crash: Crash) -> Failure | None:
    if rules.is_network(crash):
        return _needs_network(evidence, None)
    return None


def _other_crash(evidence: StepEvidence, crash: Crash) -> Failure | None:
    """What is left, unless it was raised from, or follows a swallowed, failure of a known kind."""
    if crash.cause is not None:
        for rule in (_import, _network):
            found = rule(evidence, crash.cause)
            if found is not None:
                return found
    line = rules.network_line(evidence.stderr, evidence.stdout)
    if line is not None:
        return _needs_network(evidence, line)
    if _text_class(evidence) is not None:
        return None
    return _crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason=rules.reason_of(crash))


_CRASH_RULES: tuple[Callable[[StepEvidence, Crash], Failure | None], ...] = (
    _syntax,
    _import,
    _pickle,
    _columns,
    _resources,
    _network,
    _other_crash,
)


def _needs_network(evidence: StepEvidence, line: str | None) -> Failure:
    crash = evidence.crash
    cause = line or (crash.text if crash else "")
    sentence = f"{evidence.step.name} needs the network, which it does not have: {_cut(cause)}"
    return _failure(evidence, _C.NEEDS_NETWORK, sentence, line=line)


def _text_class(evidence: StepEvidence) -> tuple[FailureClass, str] | None:
    return rules.by_text(evidence.stderr) or rules.by_text(evidence.stdout)


def _by_text(evidence: StepEvidence) -> Failure | None:
    found = _text_class(evidence)
    if found is None:
        line = rules.network_line(evidence.stderr, evidence.stdout)
        return None if line is None else _needs_network(evidence, line)
    failure_class, line = found
    return _failure(evidence, failure_class, f"{evidence.step.name}: {_cut(line)}", line=line)


_FAULTS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP")


def _by_signal(evidence: StepEvidence) -> Failure | None:
    step = evidence.step
    name = _signal_name(step.exit_code)
    if name is None:
        if step.ending is not Ending.KILLED:
            return None
        name = "a signal"
    sentence = f"{step.name} was ended by {name}"
    if name in _FAULTS:
        return _failure(evidence, _C.RUNTIME_ERROR, sentence, reason=name)
    if name == "SIGXFSZ":
        return _failure(evidence, _C.OUTPUT_TOO_LARGE, sentence, reason=name)
    return _failure(evidence, _C.KILLED, sentence, reason=name)


def _signal_name(exit_code: int | None) -> str | None:
    """The signal behind an exit status over 128, as a shell and the engine report it."""
    if exit_code is None or not 128 < exit_code < 128 + 65:
        return None
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return None


def _plain_exit(evidence: StepEvidence) -> Failure:
    step = evidence.step
    last = rules.last_line(evidence.stderr) or rules.last_line(evidence.stdout)
    said = f": {_cut(last)}" if last else " and said nothing"
    return _failure(
        evidence,
        _C.RUNTIME_ERROR,
        f"{step.name} exited with status {step.exit_code}{said}",
        reason=f"exit status {step.exit_code}",
        line=last,
    )


def _crash_failure(
    evidence: StepEvidence,
    crash: Crash,
    failure_class: FailureClass,
    *,
    sentence: str = "",
    reason: str = "",
) -> Failure:
    sentence = sentence or f"{evidence.step.name}: {_cut(crash.text)}{_where(crash)}"
    found = [Evidence(source=evidence.source(), line=crash.line, excerpt=_cut(crash.text))]
    frame = _own_frame(crash)
    if frame is not None:
        found.append(Evidence(source=_relative(frame), line=frame.line, excerpt=frame.source))
    return Failure(failure_class=failure_class, sentence=sentence, reason=reason, evidence=found)


def _failure(
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
            found.append(Evidence(source=source, line=number, excerpt=_cut(shown)))
    return Failure(failure_class=failure_class, sentence=sentence, reason=reason, evidence=found)


def _own(frame: Frame) -> bool:
    return frame.file.startswith(f"{WORKSPACE}/") or not frame.file.startswith(("/", "<"))


def _own_frame(crash: Crash) -> Frame | None:
    """The innermost frame in the submission's own code."""
    return next((frame for frame in reversed(crash.frames) if _own(frame)), None)


def _relative(frame: Frame) -> str:
    return frame.file.removeprefix(f"{WORKSPACE}/")


def _where(crash: Crash) -> str:
    frame = _own_frame(crash)
    return f" ({_relative(frame)}, line {frame.line})" if frame else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT else f"{text[: MAX_EXCERPT - 1]}…"
