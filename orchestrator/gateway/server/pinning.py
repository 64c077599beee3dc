"""What of an agent's request goes on to the model, as a pure function."""

from __future__ import annotations

from typing import Any, NamedTuple

from .access import Pins

# Everything else an agent may send is left out: it would load the model anew, or hide from us
# what the model is told.
_FIELDS = {
    "chat": {"messages", "tools", "format"},
    "generate": {"prompt", "suffix", "system", "template", "raw", "images", "format"},
}
_OPTIONS = frozenset(
    {
        "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "repeat_penalty",
        "presence_penalty", "frequency_penalty", "stop", "num_keep", "num_predict",
    }
)  # fmt: skip

Changes = dict[str, dict[str, Any]]


class Carries(NamedTuple):
    """What an upstream's API has room for, in Ollama's names."""

    fields: frozenset[str]
    """Of a call, beside model, options and stream, for both endpoints."""
    options: frozenset[str]


OLLAMA = Carries(
    fields=frozenset({"truncate", "shift", "keep_alive", "think"}).union(*_FIELDS.values()),
    options=_OPTIONS | {"num_ctx", "seed", "temperature"},
)


def pin(
    endpoint: str, body: dict[str, Any], model: str, pins: Pins, carries: Carries = OLLAMA
) -> tuple[dict[str, Any], Changes]:
    """The request as it is sent, and per changed field what was asked and what is sent.

    Always streamed, never truncated: a prompt that does not fit comes back as an error. What the
    upstream has no room for is sent by no means, and so it is recorded.
    """
    asked_options = body.get("options")
    asked_options = asked_options if isinstance(asked_options, dict) else {}
    options = {name: value for name, value in asked_options.items() if name in _OPTIONS}
    options |= {
        "num_ctx": pins.num_ctx,
        "seed": pins.seed,
        "num_predict": _reply_cap(options.get("num_predict"), pins.max_reply_tokens),
    }
    if pins.temperature is not None:
        options["temperature"] = pins.temperature
    options = {name: value for name, value in options.items() if name in carries.options}
    sent = {name: value for name, value in body.items() if name in _FIELDS[endpoint]}
    sent |= {"truncate": False, "shift": False, "keep_alive": pins.keep_alive}
    if pins.think is not None:
        sent["think"] = pins.think
    sent = {name: value for name, value in sent.items() if name in carries.fields}
    sent |= {"model": model, "options": options, "stream": True}
    changes = _changes(body, sent, prefix="", skip={"options"})
    changes |= _changes(asked_options, options, prefix="options.", skip=set())
    return sent, changes


def _reply_cap(asked: object, cap: int) -> int:
    """An agent may ask for less than the cap, never for more or for no end."""
    if isinstance(asked, int) and not isinstance(asked, bool) and 0 < asked < cap:
        return asked
    return cap


def _changes(
    asked: dict[str, Any], sent: dict[str, Any], *, prefix: str, skip: set[str]
) -> Changes:
    names = (asked.keys() | sent.keys()) - skip
    return {
        prefix + name: {"asked": asked.get(name), "sent": sent.get(name)}
        for name in sorted(names)
        if asked.get(name) != sent.get(name)
    }
