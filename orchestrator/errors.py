"""Every way to fail at our own hands: one class a cause, an exit code, a sentence for people.

What a *submission* does wrong is no exception; it is a `Failure` of the table in
`orchestrator.records.failures`.
"""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The mend of a misspelt name: the nearest that is known, `otherwise` where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


class OrchError(Exception):
    """Base of all. The message is one sentence: what is wrong, where, and what mends it."""

    exit_code = 2


class UsageError(OrchError):
    """An option or argument can't be used as given."""


class ConfigInvalid(OrchError):
    """orch.toml or an ORCH_* variable has a value that can't be used."""


class TaskNotFound(OrchError):
    """No task of that name."""


class TaskInvalid(OrchError):
    """A task folder breaks the task format."""


class DataInvalid(OrchError):
    """Generated data are missing, incomplete or differ from their recorded hashes."""


class ModelUnknown(OrchError):
    """A model reference can't be parsed or names no model that exists."""


class ModelServerUnreachable(OrchError):
    """The model server does not answer."""


class ContextTooSmall(OrchError):
    """The model or its server can't give the context that was asked for."""


class PreflightFailed(OrchError):
    """A check before the trial found something that can't work."""


class ImageMissing(OrchError):
    """An image is neither here nor can be had."""


class ImageBuildFailed(OrchError):
    """Building an image failed."""


class NotEnoughSpace(OrchError):
    """The engine's disk can't hold what is needed."""


class GpuUnavailable(OrchError):
    """A GPU was asked for and the engine can't give one."""


class RecordNotFound(OrchError):
    """No trial or run of that name."""


class RecordUnreadable(OrchError):
    """A record exists but can't be read."""


class RecordUnwritable(OrchError):
    """What happened can't be kept: disk full, read-only, no permission. Nothing can go on."""

    exit_code = 1


class ReplayRefused(OrchError):
    """A recorded run can't be replayed, or not under the conditions that it was recorded under."""


class SubmissionNotFound(OrchError):
    """The folder to score is missing or holds no submission."""


class CalibrationFailed(OrchError):
    """A reference left the bounds that its task states."""

    exit_code = 1


class Interrupted(OrchError):
    """The user stopped us; what was finished is kept."""

    exit_code = 130


class EngineError(OrchError):
    """Base of what the container engine can do to us. Always the harness's failure."""


class EngineUnavailable(EngineError):
    """The engine does not answer (any more)."""


class EngineRefused(EngineError):
    """The engine answered with an error we have no better word for."""


class ContainerLost(EngineError):
    """A container ended or vanished that we had not told to end."""


class UnsafeOutput(OrchError):
    """Something a submission left is not the regular file within limits it must be.

    Raised by the sandbox, caught by scoring, which turns it into a failure of the submission.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason
