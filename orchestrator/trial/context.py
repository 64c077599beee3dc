"""What of a stage's material goes into its prompt, so that prompt and reply fit the context.

The prompt's fixed part (the task's words) is never cut. What is cut, in this order, until all
fits: output, by its middle; own files, the largest first, which stay named with their size;
output once more; the excerpt, by its middle. Whatever room is left then goes back to the output.
Sizes are estimated, since a trial has no tokenizer of its models: by `truncation.size`, times what
the model's server was seen to count for it, or a careful assumption before that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Failure, PromptCut, PromptPlan
from orchestrator.trial.prompts import (
    MAX_FILE_CHARS,
    MAX_FILES_CHARS,
    MAX_STREAM_CHARS,
    PromptFile,
    PromptOutput,
    StageOutput,
    clip,
)
from orchestrator.trial.truncation import Gauge, size

OVERHEAD_TOKENS = 512
"""For the agent's own words and the model's chat template."""
ASSUMED_RATIO = 1.25
"""Tokens to one of `size`; the vocabularies it was fitted on gave from 0.66 to 1.2 for prompts."""
MARGIN = 1.1
"""On top of what a server was seen to count: the next prompt may be of another kind."""
SMALL_STREAM_CHARS = 1500
SMALLEST_STREAM_CHARS = 300
SMALLEST_EXCERPT_LINES = 4


@dataclass(frozen=True)
class Room:
    """Tokens that a prompt may have; `ratio`: of them to one of `size`."""

    num_ctx: int
    reserve: int
    ratio: float

    @property
    def tokens(self) -> int:
        return max(self.num_ctx - self.reserve - OVERHEAD_TOKENS, 0)

    def estimate(self, text: str) -> int:
        return round(size(text) * self.ratio)

    def chars(self, like: str) -> int:
        """Characters that context and reserve leave, of a text such as `like`."""
        per_token = len(like) / max(self.estimate(like), 1)
        return int(per_token * (self.num_ctx - self.reserve))


def room_of(
    num_ctx: int, max_reply_tokens: int, gauge: Gauge | None, recorded: PromptPlan | None
) -> Room:
    """A context that can't hold twice the reply budget keeps a quarter for the reply. A replay
    counts as its recording did."""
    reserve = max_reply_tokens if 2 * max_reply_tokens <= num_ctx else num_ctx // 4
    if recorded is not None:
        return Room(num_ctx, reserve, recorded.ratio)
    known = gauge.known.ratio if gauge is not None else None
    return Room(num_ctx, reserve, ASSUMED_RATIO if known is None else round(known * MARGIN, 4))


@dataclass(frozen=True)
class Material:
    """All that a prompt could show. `files`: path → text, or how many bytes it has where it is no
    text."""

    excerpt: str
    files: Mapping[str, str | int]
    output: StageOutput | None = None


Fill = Callable[[str, list[PromptFile], PromptOutput | None], str]
"""Renders the template with excerpt, files and output."""


@dataclass(frozen=True)
class _Limits:
    """How much of the material is shown."""

    stream_chars: int = MAX_STREAM_CHARS
    hidden: frozenset[str] = frozenset()
    excerpt_lines: int | None = None
    excerpt_chars: int | None = None


def planned(fill: Fill, material: Material, room: Room) -> tuple[str, PromptPlan]:
    """The prompt and what was cut of its material. Raises Overflow where nothing helps."""
    tried = _tighter(material, _Limits(hidden=_over_caps(material.files)))
    fits = (one for one in tried if room.estimate(_shown(fill, material, one)) <= room.tokens)
    limits = next(fits, None)
    if limits is None:
        raise Overflow(room, room.estimate(_shown(fill, material, tried[-1])))
    prompt = _shown(fill, material, limits)
    stream = min(limits.stream_chars * 2, MAX_STREAM_CHARS)
    while limits.stream_chars < stream:
        wider = replace(limits, stream_chars=stream)
        more = _shown(fill, material, wider)
        if room.estimate(more) > room.tokens:
            break
        prompt, limits = more, wider
        stream = min(stream * 2, MAX_STREAM_CHARS)
    return prompt, PromptPlan(
        tokens=room.estimate(prompt),
        room=room.tokens,
        ratio=room.ratio,
        cuts=_cuts(material, limits),
    )


class Overflow(Exception):
    """The prompt does not fit with everything cut that may be."""

    def __init__(self, room: Room, tokens: int) -> None:
        super().__init__(
            f"the prompt has about {tokens} tokens with all cut from it that may be; of the "
            f"context of {room.num_ctx}, {room.reserve} are kept for the reply and "
            f"{OVERHEAD_TOKENS} for the agent's own words"
        )

    def failure(self, stage: str) -> Failure:
        return Failure(
            failure_class=FailureClass.CONTEXT_OVERFLOW,
            sentence=str(self),
            reason="planned",
            stage=stage,
        )


def _over_caps(files: Mapping[str, str | int]) -> frozenset[str]:
    """Files that no prompt shows whole: too long, or too long for what the ones before left."""
    hidden, left = set(), MAX_FILES_CHARS
    for path in sorted(files):
        text = files[path]
        if isinstance(text, int):
            continue
        if len(text) > min(MAX_FILE_CHARS, left):
            hidden.add(path)
        else:
            left -= len(text)
    return frozenset(hidden)


def _tighter(material: Material, limits: _Limits) -> list[_Limits]:
    """Limits in the order in which they are tried."""
    tried = [limits]

    def stream(smallest: int) -> None:
        while tried[-1].stream_chars > smallest:
            chars = max(tried[-1].stream_chars // 2, smallest)
            tried.append(replace(tried[-1], stream_chars=chars))

    if material.output is not None:
        stream(SMALL_STREAM_CHARS)
    texts = {path: text for path, text in material.files.items() if isinstance(text, str)}
    for path in sorted(texts.keys() - limits.hidden, key=lambda one: (-len(texts[one]), one)):
        tried.append(replace(tried[-1], hidden=tried[-1].hidden | {path}))
    if material.output is not None:
        stream(SMALLEST_STREAM_CHARS)
    lines = len(material.excerpt.splitlines())
    while lines > SMALLEST_EXCERPT_LINES:
        lines = max(lines // 2, SMALLEST_EXCERPT_LINES)
        tried.append(replace(tried[-1], excerpt_lines=lines))
    tried.append(replace(tried[-1], excerpt_chars=SMALLEST_STREAM_CHARS))
    return tried


def _shown(fill: Fill, material: Material, limits: _Limits) -> str:
    output = material.output.shown(limits.stream_chars) if material.output else None
    files = [_file(path, material.files[path], limits.hidden) for path in sorted(material.files)]
    return fill(_excerpt(material.excerpt, limits), files, output)


def _file(path: str, text: str | int, hidden: Collection[str]) -> PromptFile:
    if isinstance(text, int):
        return PromptFile(path, f"({text} bytes, not text)")
    return PromptFile(path, f"({len(text)} characters, not shown)" if path in hidden else text)


def _excerpt(excerpt: str, limits: _Limits) -> str:
    """The excerpt's first and last lines, its header with them; of endless lines less."""
    if limits.excerpt_chars is not None:
        return clip(excerpt, limits.excerpt_chars)
    keep = limits.excerpt_lines
    lines = excerpt.splitlines(keepends=True)
    if keep is None or len(lines) <= keep:
        return excerpt
    tail = keep // 2
    head = keep - tail
    marker = f"[... {len(lines) - keep} lines left out ...]\n"
    return "".join([*lines[:head], marker, *lines[len(lines) - tail :]])


def _cuts(material: Material, limits: _Limits) -> list[PromptCut]:
    cuts = []
    for path in sorted(material.files):
        text = material.files[path]
        if isinstance(text, int):
            cuts.append(PromptCut(what="file", name=path, size=text, kept=0))
        elif path in limits.hidden:
            cuts.append(PromptCut(what="file", name=path, size=len(text), kept=0))
    if material.output is not None:
        for what, parts in (
            ("stdout", material.output.stdout),
            ("stderr", material.output.stderr),
        ):
            whole = sum(map(len, parts))
            kept = sum(min(len(part), limits.stream_chars) for part in parts)
            if kept < whole:
                cuts.append(PromptCut(what=what, size=whole, kept=kept))
    shown = _excerpt(material.excerpt, limits)
    if shown != material.excerpt:
        cuts.append(PromptCut(what="excerpt", size=len(material.excerpt), kept=len(shown)))
    return cuts
