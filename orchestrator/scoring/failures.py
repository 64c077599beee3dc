"""Why a step of a submission failed: a pure function over the engine's evidence and its output.

What the engine knows (time, memory) comes first; then the exception that ended the program; then
texts of tools that end without one; then the signal that its status stands for. Nothing is guessed:
what fits no rule is a `runtime-error` with its last line, and an ending that the engine does not
tell is `unknown`. All it reads was written by the submission, so that none of it can make the
failure anybody else's: the classes given here are the model's, or `unknown`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Ending, Failure
from orchestrator.scoring import failure_rules as rules
from orchestrator.scoring.evidence import (
    StepEvidence,
    crash_failure,
    cut,
    failure,
    is_own,
    own_places,
    places,
    where,
)
from orchestrator.scoring.failure_reasons import reason_of
from orchestrator.scoring.tracebacks import Crash

_C = FailureClass
_Judge = Callable[[StepEvidence], Failure | None]
_FAULTS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP")
_INTERRUPT = "SIGINT"
"""By which Python itself ends a program that a KeyboardInterrupt ended."""


def classify(evidence: StepEvidence) -> Failure:
    """The failure of a step that did not end with exit status 0 in time and memory."""
    return _first(_JUDGES, evidence) or _plain_exit(evidence)


def without_output(evidence: StepEvidence, output: str) -> Failure:
    """The failure of a step that ended with status 0 and left no `output`.

    Programs catch what goes wrong, tell of it and end as if all were well: that is the cause then.
    """
    found = _first((_by_crash, _by_limit, _by_last_words), evidence)
    if found is not None:
        sentence = f"{found.sentence}; it ended with status 0 and without {output}"
        return found.model_copy(update={"sentence": sentence})
    return failure(evidence, _C.OUTPUT_SCHEMA, f"{output} was not written")


def _first(judges: Iterable[_Judge], evidence: StepEvidence) -> Failure | None:
    return next((found for judge in judges if (found := judge(evidence)) is not None), None)


def _by_engine(evidence: StepEvidence) -> Failure | None:
    step = evidence.step
    if step.ending is Ending.TIMEOUT:
        sentence = f"{step.name} was stopped after {step.duration_s:.0f} s"
        return _with_crash(evidence, failure(evidence, _C.TIMEOUT, sentence))
    if step.ending is Ending.OUT_OF_MEMORY:
        sentence = f"{step.name} needed more memory than the task allows"
        return _with_crash(evidence, failure(evidence, _C.OUT_OF_MEMORY, sentence))
    if step.exit_code is None:
        return failure(evidence, _C.UNKNOWN, f"{step.name} ended and the engine knows no status")
    return None


def _with_crash(evidence: StepEvidence, found: Failure) -> Failure:
    """With what the program printed an exception of, beside what else tells of the failure."""
    crash = evidence.crash
    if crash is None:
        return found
    return found.model_copy(update={"evidence": [*found.evidence, *places(evidence, crash)]})


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
    return failure(evidence, _C.NO_ENTRY_POINT, sentence, line=line)


def _outlived(evidence: StepEvidence, crash: Crash) -> bool:
    """Whether the program went on after the exception was printed, and ended by a signal later.

    A fault can come on the way out; `faulthandler` tells of it, which puts the two in order.
    """
    name, fatal = rules.signal_name(evidence.step.exit_code), evidence.fatal
    if name is None or name == _INTERRUPT:
        return False
    if name not in _FAULTS:
        return True
    return fatal is not None and (not evidence.on_stderr or fatal.line > crash.line)


def _by_fatal(evidence: StepEvidence) -> Failure | None:
    """A crash below Python. Where compiled code tells of a limit that it met, that is the cause."""
    fatal, name = evidence.fatal, rules.signal_name(evidence.step.exit_code)
    if fatal is None or name is None or _text_class(evidence) is not None:
        return None
    if evidence.crash is not None and not _outlived(evidence, evidence.crash):
        return None
    crash = Crash("Fatal Python error", fatal.what, fatal.line, fatal.frames)
    died = f"{evidence.step.name} crashed below Python, by {name}"
    sentence = f"{died}: {cut(fatal.what)}{where(evidence, crash)}"
    found = failure(evidence, _C.RUNTIME_ERROR, sentence, reason=name, line=crash.text)
    return found.model_copy(update={"evidence": [*found.evidence, *own_places(evidence, crash)]})


def _by_crash(evidence: StepEvidence) -> Failure | None:
    crash = evidence.crash
    if crash is None or _outlived(evidence, crash):
        return None
    # Of a group the member of a known kind, else the first, says more than the group.
    for part in crash.members or (crash,):
        for rule in _CRASH_RULES:
            found = rule(evidence, part)
            if found is not None:
                return found
    return _other_crash(evidence, (crash.members or (crash,))[0])


def _syntax(evidence: StepEvidence, crash: Crash) -> Failure | None:
    if crash.name not in ("SyntaxError", "IndentationError", "TabError"):
        return None
    place = crash.frames[-1] if crash.frames else None
    named = rules.file_in_message(crash.message)
    if place is None and named is None:
        return crash_failure(evidence, crash, _C.SYNTAX_ERROR)
    if named is not None or (place and is_own(evidence, place) and place.function is None):
        return crash_failure(evidence, crash, _C.SYNTAX_ERROR)
    return crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="syntax of other code")


def _import(evidence: StepEvidence, crash: Crash) -> Failure | None:
    module = rules.missing_module(crash)
    if module is None:
        return None
    top, dotted = module.partition(".")[0], "." in module
    if top in evidence.modules or top == "__main__":
        if rules.while_unpickling(crash):
            return _unpicklable(evidence, crash, f"the saved object needs module {module}")
        return crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="own module not found")
    if top in sys.stdlib_module_names:
        return crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="standard library")
    if dotted and rules.provides(evidence.packages, top):
        return crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason="version skew")
    if (line := rules.network_line(evidence.stderr, evidence.stdout)) is not None:
        return _needs_network(evidence, line)
    return crash_failure(
        evidence,
        crash,
        _C.UNDECLARED_DEPENDENCY,
        sentence=f"{_undeclared(evidence, module)}{where(evidence, crash)}",
        reason=module,
    )


def _undeclared(evidence: StepEvidence, module: str) -> str:
    top = module.partition(".")[0]
    package = rules.package_of(top)
    known_as = f" (package {package})" if package != top else ""
    return f"{evidence.step.name} needs {module}{known_as}, which is not declared"


def _pickle(evidence: StepEvidence, crash: Crash) -> Failure | None:
    what = rules.unpicklable(crash)
    return None if what is None else _unpicklable(evidence, crash, what)


def _unpicklable(evidence: StepEvidence, crash: Crash, what: str) -> Failure:
    return crash_failure(
        evidence,
        crash,
        _C.UNPICKLABLE_ARTIFACT,
        sentence=f"{evidence.step.name}: {what}{where(evidence, crash)}",
    )


def _columns(evidence: StepEvidence, crash: Crash) -> Failure | None:
    missing = rules.missing_columns(crash, evidence.columns, evidence.columns_elsewhere)
    if missing is None:
        return None
    names = ", ".join(repr(name) for name in missing)
    return crash_failure(
        evidence,
        crash,
        _C.INPUT_SCHEMA,
        sentence=f"{evidence.step.name} expects a column that its input lacks: {names}"
        f"{where(evidence, crash)}",
        reason=", ".join(missing),
    )


def _resources(evidence: StepEvidence, crash: Crash) -> Failure | None:
    found = rules.exhausted(crash)
    if found is None:
        return None
    return crash_failure(evidence, crash, found)


def _network(evidence: StepEvidence, crash: Crash) -> Failure | None:
    if not rules.is_network(crash):
        return None
    return crash_failure(
        evidence,
        crash,
        _C.NEEDS_NETWORK,
        sentence=f"{_without_network(evidence)}: {cut(crash.text)}{where(evidence, crash)}",
    )


def _other_crash(evidence: StepEvidence, crash: Crash) -> Failure | None:
    """What is left, unless it was raised from, or follows a swallowed, failure of a known kind."""
    if crash.cause is not None:
        # Where a library's code raised it, the way there leads through the submission's.
        cause = replace(crash.cause, frames=(*crash.frames, *crash.cause.frames))
        for rule in (_import, _pickle, _network):
            found = rule(evidence, cause)
            if found is not None:
                return found
    line = rules.network_line(evidence.stderr, evidence.stdout)
    if line is not None:
        return _needs_network(evidence, line)
    if _text_class(evidence) is not None:
        return None
    reason = reason_of(crash, evidence.modules)
    return crash_failure(evidence, crash, _C.RUNTIME_ERROR, reason=reason)


_CRASH_RULES: tuple[Callable[[StepEvidence, Crash], Failure | None], ...] = (
    _syntax,
    _import,
    _pickle,
    _columns,
    _resources,
    _network,
)


def _without_network(evidence: StepEvidence) -> str:
    return f"{evidence.step.name} needs the network, which it does not have"


def _needs_network(evidence: StepEvidence, line: str) -> Failure:
    """A line tells of it; what the program died of, if of anything, came of that."""
    sentence = f"{_without_network(evidence)}: {cut(line)}"
    return _with_crash(evidence, failure(evidence, _C.NEEDS_NETWORK, sentence, line=line))


def _text_class(evidence: StepEvidence) -> tuple[FailureClass, str] | None:
    return rules.by_text(evidence.stderr) or rules.by_text(evidence.stdout)


def _by_limit(evidence: StepEvidence) -> Failure | None:
    found = _text_class(evidence)
    if found is None:
        return None
    failure_class, line = found
    return failure(evidence, failure_class, f"{evidence.step.name}: {cut(line)}", line=line)


def _by_last_words(evidence: StepEvidence) -> Failure | None:
    network = rules.network_line(evidence.stderr, evidence.stdout)
    if network is not None:
        return _needs_network(evidence, network)
    return _told_import(evidence)


def _told_import(evidence: StepEvidence) -> Failure | None:
    """A module that the program missed, caught the exception, and told of in a line."""
    found = rules.said_missing_module(evidence.stderr, evidence.stdout)
    if found is None:
        return None
    module, line = found
    top = module.partition(".")[0]
    known = top in evidence.modules or top in sys.stdlib_module_names
    if known or rules.provides(evidence.packages, top):
        return None
    return failure(
        evidence,
        _C.UNDECLARED_DEPENDENCY,
        _undeclared(evidence, module),
        reason=module,
        line=line,
    )


def _by_signal(evidence: StepEvidence) -> Failure | None:
    """A status over 128 stands for a signal; that a program chose it itself can't be excluded."""
    step, name = evidence.step, rules.signal_name(evidence.step.exit_code)
    if step.ending is Ending.KILLED or name == "SIGKILL":
        sentence = (
            f"{step.name} was killed or ended itself so (status {step.exit_code}); "
            "no limit of the task was reached"
        )
        return failure(evidence, _C.KILLED, sentence, reason=f"exit status {step.exit_code}")
    if name is None:
        return None
    sentence = f"{step.name} ended with status {step.exit_code}, which stands for {name}"
    if name in _FAULTS:
        return failure(evidence, _C.RUNTIME_ERROR, sentence, reason=name)
    if name == "SIGXFSZ":
        return failure(evidence, _C.OUTPUT_TOO_LARGE, sentence, reason=name)
    return failure(evidence, _C.KILLED, sentence, reason=name)


_JUDGES: tuple[_Judge, ...] = (
    _by_engine,
    _no_entry_point,
    _by_fatal,
    _by_crash,
    _by_limit,
    _by_signal,
    _by_last_words,
)


def _plain_exit(evidence: StepEvidence) -> Failure:
    step = evidence.step
    last = rules.last_line(evidence.stderr) or rules.last_line(evidence.stdout)
    said = f": {cut(last)}" if last else " and said nothing"
    usage = step.exit_code == 2 and rules.is_usage(evidence.stderr)
    return failure(
        evidence,
        _C.RUNTIME_ERROR,
        f"{step.name} exited with status {step.exit_code}{said}",
        reason="arguments" if usage else f"exit status {step.exit_code}",
        line=last,
    )
