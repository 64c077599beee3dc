"""What goes wrong on our side while a run is done, as a failure for its record."""

from __future__ import annotations

import traceback

from orchestrator.errors import EngineError, ImageMissing, NotEnoughSpace, OrchError
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure

HARNESS_CLASSES: dict[type[OrchError], FailureClass] = {
    EngineError: FailureClass.ENGINE_UNAVAILABLE,
    NotEnoughSpace: FailureClass.HOST_DISK_FULL,
    ImageMissing: FailureClass.IMAGE_MISSING,
    OrchError: FailureClass.SCORER_ERROR,
}
"""What ends a run, not the trial, and as which failure; the first that fits."""


def fault(exc: BaseException) -> Failure:
    """A known error by its class; anything else is a defect of ours, with its traceback."""
    if not isinstance(exc, OrchError):
        return Failure(
            failure_class=FailureClass.SCORER_ERROR,
            sentence=f"orch itself failed: {type(exc).__name__}: {exc}",
            reason=type(exc).__name__,
            evidence=[
                Evidence(source="traceback", excerpt="".join(traceback.format_exception(exc)))
            ],
        )
    return Failure(
        failure_class=next(of for kind, of in HARNESS_CLASSES.items() if isinstance(exc, kind)),
        sentence=str(exc),
        reason=type(exc).__name__,
        evidence=[Evidence(source="engine", excerpt=str(exc))],
    )


def follows_an_interrupt(exc: BaseException | None) -> bool:
    """Whether it was raised while an interrupt was cleaning up, which it must not hide."""
    while exc is not None:
        if isinstance(exc, KeyboardInterrupt):
            return True
        exc = exc.__context__
    return False
