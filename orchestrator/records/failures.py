"""The failure table: class → attribution, may retry, is the score valid, exit code, sentences.

The only place where these are decided; retries, grading, statistics and reports read it.
"""

from enum import StrEnum
from typing import NamedTuple


class Attribution(StrEnum):
    MODEL = "model"
    TASK = "task"
    HARNESS = "harness"
    UNKNOWN = "unknown"


class FailureClass(StrEnum):
    NO_EDITS = "no-edits"
    TRUNCATED_REPLY = "truncated-reply"
    UNSAFE_PATH = "unsafe-path"
    EDIT_DID_NOT_APPLY = "edit-did-not-apply"
    RUNAWAY_GENERATION = "runaway-generation"
    REASONING_EXHAUSTED = "reasoning-exhausted"
    ARTIFACT_MISSING = "artifact-missing"
    NO_ENTRY_POINT = "no-entry-point"
    SYNTAX_ERROR = "syntax-error"
    UNDECLARED_DEPENDENCY = "undeclared-dependency"
    DEPENDENCY_NOT_FOUND = "dependency-not-found"
    DEPENDENCY_CONFLICT = "dependency-conflict"
    DEPENDENCY_REFUSED = "dependency-refused"
    UNPICKLABLE_ARTIFACT = "unpicklable-artifact"
    INPUT_SCHEMA = "input-schema"
    OUTPUT_SCHEMA = "output-schema"
    RUNTIME_ERROR = "runtime-error"
    NEEDS_NETWORK = "needs-network"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    OUTPUT_TOO_LARGE = "output-too-large"
    DISK_FULL = "disk-full"
    PIDS_LIMIT = "pids-limit"
    KILLED = "killed"
    BUDGET_EXHAUSTED = "budget-exhausted"
    DEPENDENCY_UNAVAILABLE = "dependency-unavailable"
    LIMITS_TOO_TIGHT = "limits-too-tight"
    EDIT_DROPPED = "edit-dropped"
    CONTEXT_OVERFLOW = "context-overflow"
    CONTEXT_TRUNCATED = "context-truncated"
    MODEL_UNAVAILABLE = "model-unavailable"
    MODEL_SERVER_ERROR = "model-server-error"
    AGENT_ERROR = "agent-error"
    REPLAY_DIFFERS = "replay-differs"
    ENGINE_UNAVAILABLE = "engine-unavailable"
    IMAGE_MISSING = "image-missing"
    INDEX_UNAVAILABLE = "index-unavailable"
    HOST_DISK_FULL = "host-disk-full"
    SCORER_ERROR = "scorer-error"
    UNKNOWN = "unknown"


class Row(NamedTuple):
    attribution: Attribution
    may_retry: bool
    """Doing the same again can come out otherwise: what failed was not the submission."""
    valid: bool
    """The run counts in the denominator; its score is 0 where none was reached."""
    exit_code: int
    """What `orch trial` ends with where a run ended so; the highest of all runs."""
    meaning: str
    """What happened, for people."""
    mend: str
    """What would fix it, for people; `reasons` knows better for some reasons."""


def _model(meaning: str, mend: str) -> Row:
    """A result like any other: the trial did its work."""
    return Row(Attribution.MODEL, False, True, 0, meaning, mend)


def _harness(meaning: str, mend: str, *, may_retry: bool) -> Row:
    """No result: in no denominator, and the trial says so."""
    return Row(Attribution.HARNESS, may_retry, False, 1, meaning, mend)


_C = FailureClass

TABLE: dict[FailureClass, Row] = {
    _C.NO_EDITS: _model(
        "the reply changed no file",
        "the reply must hold whole files, each with its name",
    ),
    _C.TRUNCATED_REPLY: _model(
        "the reply ended before it was whole",
        "a shorter reply, or a larger reply budget",
    ),
    _C.UNSAFE_PATH: _model(
        "the reply names a file outside the workspace",
        "file names must stay inside the workspace",
    ),
    _C.EDIT_DID_NOT_APPLY: _model(
        "the reply changes text that the file does not hold",
        "the edit must match the file as it is",
    ),
    _C.RUNAWAY_GENERATION: _model(
        "the model repeated itself without end and was cut",
        "the reply must come to an end; another temperature may help",
    ),
    _C.REASONING_EXHAUSTED: _model(
        "the whole reply budget went into reasoning",
        "less reasoning (--think), or a larger reply budget",
    ),
    _C.ARTIFACT_MISSING: _model(
        "the stage left files out",
        "the stage must leave the files it was asked for",
    ),
    _C.NO_ENTRY_POINT: _model(
        "the program to run is not there",
        "the program that the spec names must exist",
    ),
    _C.SYNTAX_ERROR: _model(
        "the code does not parse",
        "the named line must parse in the interpreter that runs it",
    ),
    _C.UNDECLARED_DEPENDENCY: _model(
        "the code imports a module that nothing declared provides",
        "declare the module in requirements.txt",
    ),
    _C.DEPENDENCY_NOT_FOUND: _model(
        "the index has no such package or version",
        "declare a package by the name and a version that the index has",
    ),
    _C.DEPENDENCY_CONFLICT: _model(
        "the declared versions exclude one another",
        "declare versions that go together, or none",
    ),
    _C.DEPENDENCY_REFUSED: _model(
        "a declared dependency is of a kind that is not allowed",
        "only plain requirements from the index",
    ),
    _C.UNPICKLABLE_ARTIFACT: _model(
        "an object can't be saved, or not be loaded where it is needed",
        "classes of a saved object must live in a module that both import",
    ),
    _C.INPUT_SCHEMA: _model(
        "the program expects a column that its input lacks",
        "read no column but those that the spec names for the input",
    ),
    _C.OUTPUT_SCHEMA: _model(
        "the output is not what the spec asks for",
        "the output must have the columns and rows asked for",
    ),
    _C.RUNTIME_ERROR: _model("the program crashed", "see the traceback"),
    _C.NEEDS_NETWORK: _model(
        "the program wants something from the network, and has none",
        "nothing answers outside; bring what is needed",
    ),
    _C.TIMEOUT: _model("the time was up", "must finish within the task's time"),
    _C.OUT_OF_MEMORY: _model("the memory was used up", "must fit into the task's memory"),
    _C.OUTPUT_TOO_LARGE: _model("it wrote more than is allowed", "must write less"),
    _C.DISK_FULL: _model("its disk was full", "must fit into the task's disk"),
    _C.PIDS_LIMIT: _model(
        "it started more processes or threads than are allowed",
        "must start fewer processes and threads",
    ),
    _C.KILLED: _model(
        "it was ended by a signal that was not the harness's",
        "the program must come to its own end",
    ),
    _C.BUDGET_EXHAUSTED: _model(
        "the run's budget was used up",
        "fewer or shorter calls, or a larger budget (--max-…)",
    ),
    _C.DEPENDENCY_UNAVAILABLE: Row(
        Attribution.TASK,
        False,
        True,
        0,
        "a declared package has no wheel for this platform",
        "the task may allow source builds; another package may have wheels",
    ),
    _C.LIMITS_TOO_TIGHT: Row(
        Attribution.TASK,
        False,
        False,
        1,
        "a reference can't meet the task's limits either",
        "raise the limits in the task's task.toml",
    ),
    _C.EDIT_DROPPED: _harness(
        "the reply held a file and the disk does not",
        "a defect to report",
        may_retry=True,
    ),
    _C.CONTEXT_OVERFLOW: _harness(
        "our prompt did not fit into the model's context",
        "raise --num-ctx",
        may_retry=False,
    ),
    _C.CONTEXT_TRUNCATED: _harness(
        "the model server cut our prompt in silence",
        "raise the server's context, or --num-ctx",
        may_retry=False,
    ),
    _C.MODEL_UNAVAILABLE: _harness(
        "the model server does not answer, or lacks the model",
        "start the server, pull the model; `orch doctor` looks",
        may_retry=True,
    ),
    _C.MODEL_SERVER_ERROR: _harness(
        "the model server failed",
        "see its words; often its memory",
        may_retry=True,
    ),
    _C.AGENT_ERROR: _harness(
        "the agent's own program crashed",
        "a defect to report",
        may_retry=True,
    ),
    _C.REPLAY_DIFFERS: _harness(
        "the run no longer asks what was recorded",
        "replay with the versions of task and orch that it was recorded with",
        may_retry=False,
    ),
    _C.ENGINE_UNAVAILABLE: _harness(
        "the container engine went away or refused",
        "see its words; `orch doctor` looks",
        may_retry=True,
    ),
    _C.IMAGE_MISSING: _harness(
        "an image was deleted",
        "build it again: `orch images build`",
        may_retry=False,
    ),
    _C.INDEX_UNAVAILABLE: _harness(
        "the package index does not answer as it should",
        "see its words; network, proxy or certificates of this machine",
        may_retry=True,
    ),
    _C.HOST_DISK_FULL: _harness(
        "the engine's disk is full",
        "free space on it; `orch clean` removes what is not in use",
        may_retry=False,
    ),
    _C.SCORER_ERROR: _harness(
        "our own code failed",
        "a defect to report",
        may_retry=True,
    ),
    _C.UNKNOWN: Row(
        Attribution.UNKNOWN,
        False,
        True,
        0,
        "no rule fits",
        "see the evidence",
    ),
}
