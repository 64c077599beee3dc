"""Why a call to a model failed: one table, and the reading of a server's words as pure functions.

The words are those of Ollama before and since 0.30, of llama.cpp's server, vLLM, OpenAI,
OpenRouter and Anthropic.
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
    "bad-key": Cause(_UNAVAILABLE, False, 502),
    "no-credit": Cause(_UNAVAILABLE, False, 502),
    "rate-limited": Cause(_UNAVAILABLE, True, 503),
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
    "replay-differs": Cause("replay-differs", False, 409),
    "unrecorded": Cause("host-disk-full", False, 507),
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
    r"|input length exceeds the context length|context_length_exceeded|maximum context length"
    r"|exceeds? (?:the|your|this model's) context window|exceeds? context limit"
    r"|prompt is too long|too long to fit into the model|longer than the maximum model length"
    r"|maximum number of (?:input )?tokens allowed",
    re.IGNORECASE,
)
# Tokens of the prompt and of the context, as the servers' sentences have them.
_COUNTS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\((?P<prompt>\d+) tokens\).*?\((?P<context>\d+) tokens\)",
        r"maximum context length is (?P<context>\d+) tokens.*?\((?P<prompt>\d+) in the messages",
        r"maximum context length is (?P<context>\d+) tokens.*?"
        r"(?:in|about|requested|has) (?P<prompt>\d+) (?:input )?tokens",
        r"\(total length (?P<prompt>\d+)\).*?\(context length (?P<context>\d+)\)",
        r"\(length (?P<prompt>\d+)\).*?model length of (?P<context>\d+)",
        r"too long: (?P<prompt>\d+) tokens > (?P<context>\d+) maximum",
        r"context limit: (?P<prompt>\d+) \+ \d+ > (?P<context>\d+)",
    )
)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low", re.IGNORECASE)
# Providers name a refused key with its middle masked.
_MASKED_KEY = re.compile(r"\bsk-[\w*-]{6,}")
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
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail[:_MAX_DETAIL]
        self.status = status
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens
        self.retry_after_s = retry_after_s

    def without(self, key: str) -> Failed:
        """Itself, its text cleared of a key that the server may have given back."""
        if key:
            self.detail = self.detail.replace(key, "[key]")
        self.detail = _MASKED_KEY.sub("[key]", self.detail)
        return self

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


def of_api_answer(status: int, text: str, retry_after: str | None = None) -> Failed:
    """The same of an API with keys and limits; `retry_after` is the header of that name."""
    message, counts = _message(text)
    if status < 500 and _OVERFLOW.search(text):
        return _overflow(message, counts, status)
    said = f"the model server answered {status}: {message}"
    if status == 402 or (status in (400, 429) and _NO_CREDIT.search(text)):
        return Failed("no-credit", said, status=status)
    if status in (401, 403):
        return Failed("bad-key", said, status=status)
    if status == 429:
        waits = _seconds(retry_after)
        return Failed("rate-limited", said, status=status, retry_after_s=waits)
    if status == 529:
        return Failed("busy", said, status=status, retry_after_s=_seconds(retry_after))
    failed = of_answer(status, text)
    failed.retry_after_s = _seconds(retry_after)
    return failed


_STATUS_OF_TYPE = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def of_api_event(error: object) -> Failed:
    """An error in a stream whose status was 200, of an API with keys and limits."""
    fields = error if isinstance(error, dict) else {}
    status = _STATUS_OF_TYPE.get(str(fields.get("type")), fields.get("code"))
    if status in (401, 402, 403, 404, 429, 503, 529):
        return of_api_answer(status, json.dumps({"error": error}))
    return of_error_line(error)


def _seconds(retry_after: str | None) -> float | None:
    """Of a Retry-After header; None for a date or nothing."""
    text = (retry_after or "").strip()
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d+)?", text, re.ASCII) else None


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
            inner = next((value[k] for k in ("error", "message", "detail") if k in value), None)
            if inner is None:
                break
            value = inner
    message = value if isinstance(value, str) else json.dumps(value)
    found = next((match for one in _COUNTS if (match := one.search(message))), None)
    if found and counts == (None, None):
        counts = int(found["prompt"]), int(found["context"])
    return message.strip()[:_MAX_DETAIL] or "no text", counts


def _numbers(value: dict[str, Any]) -> tuple[int | None, int | None] | None:
    prompt, context = value.get("n_prompt_tokens"), value.get("n_ctx")
    if isinstance(prompt, int) or isinstance(context, int):
        return (
            prompt if isinstance(prompt, int) else None,
            context if isinstance(context, int) else None,
        )
    return None
