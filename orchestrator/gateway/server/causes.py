"""Why a call to a model failed: one table, and the reading of a server's words as pure functions.

The words are Ollama's, of versions before and since 0.30.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple


class Cause(NamedTuple):
    """`failure_class` as in the project's failure table, "" where the agent is to blame."""

    failure_class: str
    retry: bool
    """Worth another attempt, provided nothing of the reply was handed on."""
    status: int
    """What the agent gets."""


_UNAVAILABLE, _ERROR = "model-unavailable", "model-server-error"

CAUSES: dict[str, Cause] = {
    "unreachable": Cause(_UNAVAILABLE, True, 502),
    "not-found": Cause(_UNAVAILABLE, False, 404),
    "busy": Cause(_UNAVAILABLE, True, 503),
    "out-of-memory": Cause(_ERROR, True, 502),
    "server-error": Cause(_ERROR, True, 502),
    "bad-request": Cause(_ERROR, False, 400),
    "not-ollama": Cause(_ERROR, False, 502),
    "error-line": Cause(_ERROR, True, 502),
    "malformed": Cause(_ERROR, True, 502),
    "cut": Cause(_ERROR, True, 502),
    "no-done": Cause(_ERROR, True, 502),
    "only-loaded": Cause(_ERROR, True, 502),
    "no-first-token": Cause(_ERROR, False, 504),
    "stalled": Cause(_ERROR, False, 504),
    "too-long": Cause(_ERROR, False, 504),
    "context-overflow": Cause("context-overflow", False, 400),
    "gateway-error": Cause(_ERROR, False, 500),
    "repetition": Cause("runaway-generation", False, 200),
    "budget-exhausted": Cause("budget-exhausted", False, 402),
    "budget-time": Cause("budget-exhausted", False, 402),
    "client-gone": Cause("", False, 499),
    "refused": Cause("", False, 400),
}

_OUT_OF_MEMORY = re.compile(
    r"out[ -]of[ -]memory|cudaMalloc failed|unable to allocate|requires more system memory"
    r"|insufficient memory|\bOOM\b",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(
    r"exceed_context_size|exceeds the available context size|longer than the context length"
    r"|input length exceeds the context length",
    re.IGNORECASE,
)
_COUNTS = re.compile(r"\((\d+) tokens\).*?\((\d+) tokens\)", re.DOTALL)
_MAX_DETAIL = 2000


class Failed(Exception):
    """One attempt failed."""

    def __init__(
        self,
        cause: str,
        detail: str,
        *,
        status: int | None = None,
        prompt_tokens: int | None = None,
        context_tokens: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail[:_MAX_DETAIL]
        self.status = status
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens

    @property
    def sentence(self) -> str:
        """For the agent and the record; begins with the failure class."""
        failure_class = CAUSES[self.cause].failure_class or "refused"
        return f"{failure_class}: {self.detail}"


def of_answer(status: int, text: str) -> Failed:
    """An answer with another status than 200."""
    message, counts = _message(text)
    if status == 400 and _OVERFLOW.search(text):
        return _overflow(message, counts, status)
    if status == 404:
        cause = "not-found"
    elif status == 503:
        cause = "busy"
    elif _OUT_OF_MEMORY.search(message):
        cause = "out-of-memory"
    elif status < 500 and status not in (408, 429, 499):
        cause = "bad-request"
    else:
        cause = "server-error"
    return Failed(cause, f"the model server answered {status}: {message}", status=status)


def of_error_line(error: object) -> Failed:
    """A line `{"error": …}` in a stream whose status was 200."""
    message, counts = _message(json.dumps({"error": error}))
    if _OVERFLOW.search(message):
        return _overflow(message, counts, 200)
    cause = "out-of-memory" if _OUT_OF_MEMORY.search(message) else "error-line"
    return Failed(cause, f"the model server broke off: {message}", status=200)


def _overflow(message: str, counts: tuple[int | None, int | None], status: int) -> Failed:
    prompt, context = counts
    return Failed(
        "context-overflow",
        f"the prompt does not fit into the context: {message}",
        status=status,
        prompt_tokens=prompt,
        context_tokens=context,
    )


def _message(text: str) -> tuple[str, tuple[int | None, int | None]]:
    """The innermost message of an error body, and prompt and context size where it has them.

    A body may hold another one as a string inside its `error`.
    """
    value: Any = text
    counts: tuple[int | None, int | None] = (None, None)
    for _ in range(4):
        if isinstance(value, str):
            try:
                inner = json.loads(value)
            except (ValueError, RecursionError):
                break
            if not isinstance(inner, dict):
                break
            value = inner
        if isinstance(value, dict):
            counts = _numbers(value) or counts
            inner = value.get("error", value.get("message"))
            if inner is None:
                break
            value = inner
    message = value if isinstance(value, str) else json.dumps(value)
    found = _COUNTS.search(message)
    if found and counts == (None, None):
        counts = int(found.group(1)), int(found.group(2))
    return message.strip()[:_MAX_DETAIL] or "no text", counts


def _numbers(value: dict[str, Any]) -> tuple[int | None, int | None] | None:
    prompt, context = value.get("n_prompt_tokens"), value.get("n_ctx")
    if isinstance(prompt, int) or isinstance(context, int):
        return (
            prompt if isinstance(prompt, int) else None,
            context if isinstance(context, int) else None,
        )
    return None
