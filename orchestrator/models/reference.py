"""Model references as users write them: `gpt-oss:20b`, `scripted/careful`, `replay/TRIAL/RUN` …"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import ModelUnknown


class ModelKind(StrEnum):
    OLLAMA = "ollama"
    SCRIPTED = "scripted"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    REPLAY = "replay"


REMOTE = frozenset({ModelKind.OPENAI, ModelKind.ANTHROPIC})
"""Kinds that are behind an API of their own, which is asked for the very name."""

# [host[:port]/][namespace/]model[:tag], as Ollama names models.
_OLLAMA = re.compile(
    r"[A-Z0-9][\w.-]*(:\d+(?=/))?(/[A-Z0-9][\w.-]*)*(:\w[\w.-]*)?", re.ASCII | re.IGNORECASE
)
_PLAIN = re.compile(r"[A-Z0-9][\w.:/-]*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class ModelReference:
    kind: ModelKind
    name: str
    """The name without the prefix that says where it is served."""
    text: str
    """The reference as the user wrote it."""

    @property
    def needs_upstream(self) -> bool:
        """Whether a model server must be reached for it."""
        return self.kind not in (ModelKind.SCRIPTED, ModelKind.REPLAY)

    @property
    def needs_ollama(self) -> bool:
        return self.kind is ModelKind.OLLAMA


def parse_reference(text: str) -> ModelReference:
    """Raises ModelUnknown with a sentence: nothing a model could be called, or of no use yet."""
    text = text.strip()
    prefix, slash, rest = text.partition("/")
    kind = ModelKind.OLLAMA
    if slash and prefix in set(ModelKind) - {ModelKind.OLLAMA}:
        kind = ModelKind(prefix)
    name = text if kind is ModelKind.OLLAMA else rest
    pattern = _OLLAMA if kind is ModelKind.OLLAMA else _PLAIN
    if not pattern.fullmatch(name):
        raise ModelUnknown(
            f"{text!r} is no model reference; write e.g. gpt-oss:20b (Ollama), openai/NAME, "
            "anthropic/NAME or scripted/careful"
        )
    if kind is ModelKind.REPLAY and "/" not in name:
        raise ModelUnknown(f"{text}: a replay is written replay/TRIAL/RUN")
    return ModelReference(kind=kind, name=name, text=text)
