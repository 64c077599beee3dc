"""The failure table: class → attribution, may it be retried, does it leave a valid score.

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
    """The harness may do the step again by itself."""
    valid: bool
    """The run counts in the denominator; its score is 0 where none was reached."""
    mend: str
    """What would fix it, for people."""


_M, _T, _H = Attribution.MODEL, Attribution.TASK, Attribution.HARNESS
_C = FailureClass

TABLE: dict[FailureClass, Row] = {
    _C.NO_EDITS: Row(_M, False, True, "the reply must hold whole files, each with its name"),
    _C.TRUNCATED_REPLY: Row(_M, False, True, "a shorter reply, or a larger reply budget"),
    _C.UNSAFE_PATH: Row(_M, False, True, "file names must stay inside the workspace"),
    _C.EDIT_DID_NOT_APPLY: Row(_M, False, True, "the edit must match the file as it is"),
    _C.RUNAWAY_GENERATION: Row(_M, False, True, "the model repeats itself without end"),
    _C.REASONING_EXHAUSTED: Row(_M, False, True, "less reasoning, or a larger reply budget"),
    _C.ARTIFACT_MISSING: Row(_M, False, True, "the stage must leave the files it was asked for"),
    _C.NO_ENTRY_POINT: Row(_M, False, True, "the program that the spec names must exist"),
    _C.SYNTAX_ERROR: Row(_M, False, True, "the named line does not parse"),
    _C.UNDECLARED_DEPENDENCY: Row(_M, False, True, "declare the module in requirements.txt"),
    _C.DEPENDENCY_NOT_FOUND: Row(_M, False, True, "no package of that name exists"),
    _C.DEPENDENCY_CONFLICT: Row(_M, False, True, "the declared versions exclude one another"),
    _C.DEPENDENCY_REFUSED: Row(_M, False, True, "only plain requirements from the index"),
    _C.UNPICKLABLE_ARTIFACT: Row(
        _M, False, True, "classes of a saved object must live in a module that both import"
    ),
    _C.INPUT_SCHEMA: Row(_M, False, True, "the program expects a column that the input lacks"),
    _C.OUTPUT_SCHEMA: Row(_M, False, True, "the output must have the columns and rows asked for"),
    _C.RUNTIME_ERROR: Row(_M, False, True, "see the traceback"),
    _C.NEEDS_NETWORK: Row(_M, False, True, "nothing answers outside; bring what is needed"),
    _C.TIMEOUT: Row(_M, False, True, "must finish within the task's time"),
    _C.OUT_OF_MEMORY: Row(_M, False, True, "must fit into the task's memory"),
    _C.OUTPUT_TOO_LARGE: Row(_M, False, True, "must write less"),
    _C.DISK_FULL: Row(_M, False, True, "must fit into the task's disk"),
    _C.PIDS_LIMIT: Row(_M, False, True, "must start fewer processes"),
    _C.KILLED: Row(_M, False, True, "the program was ended by a signal of its own making"),
    _C.BUDGET_EXHAUSTED: Row(_M, False, True, "the run's budget was used up"),
    _C.DEPENDENCY_UNAVAILABLE: Row(
        _T, False, True, "no wheel for this platform; the task may allow source builds"
    ),
    _C.LIMITS_TOO_TIGHT: Row(_T, False, False, "a reference can't meet the task's limits either"),
    _C.EDIT_DROPPED: Row(_H, True, False, "the reply held the file and the disk does not"),
    _C.CONTEXT_OVERFLOW: Row(_H, False, False, "our prompt did not fit; raise --num-ctx"),
    _C.CONTEXT_TRUNCATED: Row(_H, False, False, "the server cut the prompt; raise its context"),
    _C.MODEL_UNAVAILABLE: Row(_H, True, False, "the model server does not answer"),
    _C.MODEL_SERVER_ERROR: Row(_H, True, False, "the model server failed; see its text"),
    _C.AGENT_ERROR: Row(_H, True, False, "the agent itself crashed"),
    _C.REPLAY_DIFFERS: Row(_H, False, False, "the run no longer asks what was recorded"),
    _C.ENGINE_UNAVAILABLE: Row(_H, True, False, "the container engine went away"),
    _C.IMAGE_MISSING: Row(_H, False, False, "an image was deleted; build it again"),
    _C.INDEX_UNAVAILABLE: Row(_H, True, False, "the package index does not answer"),
    _C.HOST_DISK_FULL: Row(_H, False, False, "free space on the engine's disk"),
    _C.SCORER_ERROR: Row(_H, True, False, "our grading failed; a defect to report"),
    _C.UNKNOWN: Row(Attribution.UNKNOWN, False, True, "see the evidence"),
}
