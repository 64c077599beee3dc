"""A stage's work: ask, land what came, ask once more where it was cut; then a report of it all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .chat import Answer, Messages
from .continuing import CUT_REASONS, Cut, goes_round, messages
from .landing import Landed, land
from .replies import parse_reply
from .reply import Refusal, Reply
from .writer import Workspace

MAX_ENTRIES = 300
HARMLESS = frozenset({"context-overflow", "budget-exhausted", "agent-error"})
"""Errors of a second question that say nothing against the first one's answer."""

Ask = Callable[[Messages], Answer]
"""Asks with these messages after the prompt."""


@dataclass
class Work:
    """What came of the stage so far."""

    answer: Answer
    reply: Reply = field(default_factory=Reply)
    landed: Landed = field(default_factory=Landed)
    continued: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Files that were begun and of which the end was not found."""
        cut = (item.path for item in self.landed.refused if item.reason in CUT_REASONS)
        return tuple(dict.fromkeys(path for path in cut if path not in self.landed.written))


def first(answer: Answer, workspace: Workspace) -> Work:
    """Land an answer. One that is not whole by its stream is never applied, not in part."""
    if answer.error:
        return Work(answer)
    reply = parse_reply(answer.text, at_budget=answer.done_reason == "length")
    return Work(answer, reply, land(reply, workspace))


def cut_of(work: Work) -> Cut | None:
    """How the reply was cut, None where it is whole or asking for the rest is no use."""
    answer = work.answer
    thought_only = work.reply.nothing in ("empty", "only-thinking")
    if answer.error or thought_only or not (answer.done_reason == "length" or work.missing):
        return None
    if answer.done_reason == "content_filter" or goes_round(answer.text):
        return None
    return Cut(work.missing, work.reply.before_cut)


def finish(
    work: Work,
    cut: Cut,
    ask: Ask,
    workspace: Workspace,
    *,
    prompt_chars: int,
    room_chars: int | None,
) -> None:
    """Ask for the rest of a reply, once, and land it beside what is there."""
    after = messages(cut, work.landed.written, prompt_chars, room_chars)
    if after is None:
        work.landed.notes.append("the reply was cut off; there was no room to ask for its rest")
        return
    work.continued = True
    rest = ask(after)
    work.answer.tries += rest.tries
    work.answer.broken += rest.broken
    work.answer.thinking_chars += rest.thinking_chars
    if rest.error:
        work.landed.notes.append(f"the reply was cut off; its rest did not come: {rest.error}")
        if rest.error_class not in HARMLESS:
            work.answer.error, work.answer.error_class = rest.error, rest.error_class
        return
    _join(work, cut, rest, workspace)


def _join(work: Work, cut: Cut, rest: Answer, workspace: Workspace) -> None:
    reply = parse_reply(rest.text, at_budget=rest.done_reason == "length")
    new = land(reply, workspace)
    landed = work.landed
    came = [path for path in cut.missing if path in new.written]
    landed.refused = [
        item
        for item in landed.refused
        if not (item.reason in CUT_REASONS and item.path in new.written)
    ]
    landed.written |= new.written
    landed.refused += [item for item in new.refused if item not in landed.refused]
    where = f" in {', '.join(cut.missing)}" if cut.missing else ""
    what = ", ".join(new.written) or "nothing"
    landed.notes += [f"the reply was cut off{where}; asked once more, {what} came", *new.notes]
    work.answer.text += rest.text
    if not cut.missing or came:
        # What matters is how the last reply ended: the first one's cut has been made good.
        work.answer.done_reason = rest.done_reason


def report(work: Work) -> dict[str, Any]:
    """All of it as JSON can hold it, bounded in length."""
    answer, landed = work.answer, work.landed
    only_thought = work.reply.nothing == "empty" and answer.thinking_chars > 0
    return {
        "reply_chars": len(answer.text),
        "thinking_chars": answer.thinking_chars,
        "done_reason": answer.done_reason,
        "tries": answer.tries,
        "broken": answer.broken,
        "error": answer.error,
        "error_class": answer.error_class,
        "written": dict(list(landed.written.items())[:MAX_ENTRIES]),
        "refused": [_told(item) for item in landed.refused[:MAX_ENTRIES]],
        "notes": [note[:300] for note in landed.notes[:MAX_ENTRIES]],
        "nothing": "only-thinking" if only_thought else work.reply.nothing,
        "continued": work.continued,
    }


def _told(item: Refusal) -> dict[str, str]:
    return {"path": item.path[:300], "reason": item.reason, "detail": item.detail[:300]}
