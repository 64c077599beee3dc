"""A question to the model, streamed; asked again only when the answer broke off."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import ollama

MAX_TRIES = 3
WALLET_S = 10.0

SYSTEM_PROMPT = """\
You are a software engineer at work in a repository. You can't run commands; you answer with \
files. Write every file that you create or change as a whole, like this:

### FILE: path/to/file.py
````python
the complete text of the file
````

Rules:
- The line before each block is `### FILE:` and the path, relative to the root of the repository.
- Open and close each block with four backticks. If the file itself holds four backticks in a \
row, use more than it holds.
- Give the complete file each time, never a part, a patch or "rest unchanged".
- Files that you don't give stay as they are. Text outside the blocks is not kept.
"""

# The gateway begins its errors with the class of failure, e.g. "context-overflow: …".
_CLASS = re.compile(r"\A([a-z]+(?:-[a-z]+)+): ")


@dataclass
class Answer:
    """What came back. `error` is the gateway's sentence, `error_class` its class of failure."""

    text: str = ""
    thinking_chars: int = 0
    done_reason: str | None = None
    error: str = ""
    error_class: str = ""
    tries: int = 0
    broken: list[str] = field(default_factory=list)
    """Errors of the tries that broke off and were made again."""


Messages = Sequence[Mapping[str, str]]


def ask(url: str, token: str, model: str, prompt: str, after: Messages = ()) -> Answer:
    """Ask until an answer is whole, at most MAX_TRIES times. `after`: what followed the prompt.

    Only a stream that broke off after it had begun is asked for again: all before that the
    gateway has tried again itself.
    """
    broken: list[str] = []
    # A proxy of the environment leads nowhere from here.
    client = ollama.Client(host=url, headers=_bearer(token), trust_env=False)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": prompt},
        *(dict(message) for message in after),
    ]
    while True:
        answer = _ask_once(client, model, messages)
        answer.tries, answer.broken = len(broken) + 1, broken
        begun = answer.error and answer.error_class == "model-server-error" and answer.text
        if not begun or answer.tries == MAX_TRIES:
            return answer
        broken.append(answer.error)


def wallet_left(url: str, token: str) -> object:
    """What the run may still use up; None where the gateway does not say."""
    try:
        answer = httpx.get(
            f"{url}/wallet", headers=_bearer(token), trust_env=False, timeout=WALLET_S
        )
        return answer.json()["left"] if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _ask_once(client: ollama.Client, model: str, messages: list[dict[str, Any]]) -> Answer:
    answer = Answer()
    parts: list[str] = []
    try:
        for chunk in client.chat(model=model, messages=messages, stream=True):
            parts.append(chunk.message.content or "")
            answer.thinking_chars += len(chunk.message.thinking or "")
            if chunk.done:
                answer.done_reason = chunk.done_reason or "stop"
        if answer.done_reason is None:
            _fail(answer, "model-server-error: the stream ended without its last line")
    except ollama.ResponseError as exc:
        _fail(answer, exc.error)
    except (ConnectionError, httpx.HTTPError) as exc:
        _fail(answer, f"model-unavailable: the gateway does not answer: {exc}")
    answer.text = "".join(parts)
    return answer


def _fail(answer: Answer, error: str) -> None:
    match = _CLASS.match(error)
    answer.error = error
    # Without a class the gateway refused what this agent asked.
    answer.error_class = match.group(1) if match else "agent-error"
    answer.done_reason = None
