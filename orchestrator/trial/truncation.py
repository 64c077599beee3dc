"""Was the prompt cut in silence? The server's count of it against what was sent.

No field of a reply says that a server left part of a prompt away; only `prompt_eval_count` can
give it away. The rule, made so that it is near impossible to be wrong about a prompt that was
read whole:

1. `size` estimates the tokens of a text from below, whatever the language. The vocabularies it was
   fitted on (o200k, cl100k, Llama 3, Llama 2) gave from 0.66 of it (HTML; words of many syllables)
   over 0.8 to 1.2 (code, tables, prose, the prompts of our tasks) up to 12 (emoji). What a chat
   template may leave out (tools, pictures, earlier reasoning) is not in it.
2. Fingerprint: a server that cuts by tokens keeps n − max((n − keep)/2, 1) of its context n. The
   count is exactly that, for the context asked for or a usual smaller one, and the estimate is
   half as large again: `context-truncated`.
3. Shortfall: the count is below half of the estimate; once the first CALIBRATED calls of the model
   in this trial are known, below 0.7 of the median of their count / estimate (at most 0.9, so that
   a prompt of another kind than theirs is safe): `context-truncated`. That is all there is to see
   when whole messages were dropped. Later calls don't calibrate: in a conversation that outgrows
   its context each loses a little more than the one before.
4. Never judged: calls whose count is missing, zero or guessed; estimates below SMALLEST, which fit
   into any context; on servers that may count only what their cache did not hold, the part of a
   prompt that an earlier one began with.

What it can't see: the loss of less than about a third of a prompt at message level, and losses in
scripts of which a token is less than a character, until calls of the model have calibrated it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from orchestrator.records.calls import CallRecord
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure

SMALLEST = 1024
"""Estimated tokens. The smallest context that servers give by themselves is 2048."""
USUAL_CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
KEEP = 4
"""Ollama's `num_keep` where nothing sets it; one more where the model begins with a token."""
FINGERPRINT_EXCESS = 1.5
HIGHEST_EXPECTED = 1.5
LOWEST_RATIO = 0.5
CALIBRATED = 5
CALIBRATED_SHARE = 0.7
HIGHEST_RATIO = 0.9
COUNTS_CACHED = (0, 33)
"""Version of Ollama from which the count is known to hold what the cache held."""
_BLOCK = 256
_MAX_BLOCKS = 200_000

_PIECES = re.compile(
    r"(?P<letters>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<space>\s+)"
    r"|(?P<sign>([!-/:-@\[-`{-~])(?:\5)*)"
    # Scripts without spaces between words.
    r"|(?P<wide>[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7a3"
    r"\uf900-\ufaff\U00020000-\U0003ffff]+)"
    r"|(?P<other>[^\s\x00-\x7f]+)"
)
_PER_TOKEN = {"letters": 7, "digits": 3, "wide": 2, "other": 5}
"""Characters of a run that one token may hold at most, all but never more."""
_THOUGHT = re.compile(r"<(think|thinking)>.*?</\1>", re.DOTALL | re.IGNORECASE)


def size(text: str) -> int:
    """Tokens of a text, estimated from below. Linear in its length."""
    total = 0
    for match in _PIECES.finditer(text):
        kind = match.lastgroup
        if kind in _PER_TOKEN:
            total += -(-(match.end() - match.start()) // _PER_TOKEN[kind])
        elif kind != "space" or "\n" in match[0]:
            total += 1
    return total


def prompt_of(request: dict[str, Any]) -> str:
    """The text of a request that any chat template must render."""
    parts = [request.get("system"), request.get("prompt")]
    for message in request.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = "".join(str(one.get("text") or "") for one in content if "text" in one)
        if isinstance(content, str) and message.get("role") == "assistant":
            content = _THOUGHT.sub("", content)
        parts.append(content)
    return "\n".join(part for part in parts if isinstance(part, str))


def fingerprints(num_ctx: int, num_keep: int | None = None) -> dict[int, int]:
    """Count that token-level truncation leaves → the context that does it."""
    found: dict[int, int] = {}
    for context in (*(one for one in USUAL_CONTEXTS if one < num_ctx), num_ctx):
        for keep in {KEEP, KEEP + 1} | ({num_keep, num_keep + 1} if num_keep else set()):
            if 0 < keep < context:
                found[context - max((context - keep) // 2, 1)] = context
    return found


@dataclass(frozen=True)
class Prompt:
    """A prompt as it was sent, and as the server counted it; all but characters in tokens."""

    asked: int
    """The context."""
    counted: int
    estimate: int
    num_keep: int | None = None


@dataclass(frozen=True)
class Calibration:
    """What the model's first calls in this trial showed: count / estimate of each."""

    ratios: tuple[float, ...] = ()

    def with_call(self, prompt: Prompt) -> Calibration:
        if len(self.ratios) == CALIBRATED:
            return self
        return Calibration((*self.ratios, prompt.counted / prompt.estimate))

    @property
    def ratio(self) -> float | None:
        """The usual one; None before enough calls are known."""
        return median(self.ratios) if len(self.ratios) == CALIBRATED else None

    @property
    def bound(self) -> float:
        """Share of its estimate below which a count can't be of the whole prompt."""
        if self.ratio is None:
            return LOWEST_RATIO
        return CALIBRATED_SHARE * min(self.ratio, HIGHEST_RATIO)


def truncated(prompt: Prompt, known: Calibration) -> str | None:
    """How a prompt was cut, in words; None where nothing shows that it was. Pure."""
    if prompt.counted <= 0 or prompt.estimate < SMALLEST:
        return None
    expected = prompt.estimate * min(known.ratio or 1.0, HIGHEST_EXPECTED)
    context = fingerprints(prompt.asked, prompt.num_keep).get(prompt.counted)
    if context is not None and expected >= FINGERPRINT_EXCESS * prompt.counted:
        return f"what a context of {context} leaves when a prompt is cut by tokens"
    if prompt.counted < known.bound * prompt.estimate:
        return f"below {known.bound:.2f} of the estimate: whole messages were dropped"
    return None


@dataclass
class Gauge:
    """One model in one trial: judges its calls one after the other, and learns from them."""

    counts_cached: bool = True
    """The server counts also what its cache held of a prompt."""
    known: Calibration = Calibration()
    _seen: set[int] = field(default_factory=set)

    def examine(self, calls: Iterable[CallRecord], stage: str) -> Failure | None:
        """The first call whose prompt was cut."""
        found = None
        for call in calls:
            prompt = self._prompt(call)
            if prompt is None:
                continue
            how = truncated(prompt, self.known)
            if how is None:
                if prompt.estimate >= SMALLEST:
                    self.known = self.known.with_call(prompt)
            elif found is None:
                found = _failure(call, prompt, how, stage)
        return found

    def _prompt(self, call: CallRecord) -> Prompt | None:
        if call.tokens_estimated or call.prompt_tokens <= 0:
            return None
        text = prompt_of(call.request)
        if not self.counts_cached:
            text = self._not_seen(text)
        return Prompt(
            asked=_sent_option(call, "num_ctx") or max(USUAL_CONTEXTS),
            counted=call.prompt_tokens,
            estimate=size(text),
            num_keep=_sent_option(call, "num_keep"),
        )

    def _not_seen(self, text: str) -> str:
        """The text after what it shares with the beginning of an earlier one."""
        blocks = list(_chained(text))
        shared = 0
        while shared < len(blocks) and blocks[shared] in self._seen:
            shared += 1
        if len(self._seen) > _MAX_BLOCKS:
            return ""
        self._seen.update(blocks)
        # The first block that differs may still begin alike.
        return text[(shared + 1) * _BLOCK :] if shared else text


def _chained(text: str) -> Iterator[int]:
    """A hash of every beginning of the text, a block apart."""
    before = 0
    for start in range(0, len(text), _BLOCK):
        before = hash((before, text[start : start + _BLOCK]))
        yield before


def _sent_option(call: CallRecord, name: str) -> int | None:
    """As it was sent: what the pinning changed is in the record, else as it was asked."""
    pinned = call.pinned.get(f"options.{name}")
    options = call.request.get("options")
    value = pinned.sent if pinned else options.get(name) if isinstance(options, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _failure(call: CallRecord, prompt: Prompt, how: str, stage: str) -> Failure:
    numbers = {
        "context asked": prompt.asked,
        "tokens counted": prompt.counted,
        "tokens estimated from what was sent": prompt.estimate,
    }
    return Failure(
        failure_class=FailureClass.CONTEXT_TRUNCATED,
        sentence=(
            f"the model server read {prompt.counted} tokens of a prompt of about "
            f"{prompt.estimate}, with a context of {prompt.asked} asked for"
        ),
        stage=stage,
        evidence=[
            *(
                Evidence(source="calls.jsonl", excerpt=f"call {call.seq}: {what}: {number}")
                for what, number in numbers.items()
            ),
            Evidence(source="calls.jsonl", excerpt=f"call {call.seq}: fingerprint: {how}"),
        ],
    )


def counts_cached(server: str | None) -> bool:
    """Whether a server such as `Ollama 0.33.1` counts what its cache held. Unknown: no."""
    match = re.fullmatch(r"Ollama (\d+)\.(\d+)\b.*", server or "")
    return match is not None and (int(match[1]), int(match[2])) >= COUNTS_CACHED
