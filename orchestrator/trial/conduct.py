"""What the gateway's record of a stage's calls says about the model: pure functions.

It outranks what the agent made of it: an agent sees an end of the reply, the gateway its cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.records.calls import CallRecord
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure

CLASSES = frozenset(
    {
        FailureClass.BUDGET_EXHAUSTED,
        FailureClass.RUNAWAY_GENERATION,
        FailureClass.REASONING_EXHAUSTED,
    }
)
_THOUGHT = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)\s*", re.DOTALL | re.IGNORECASE)
_EXCERPT = 300


def conduct(calls: Sequence[CallRecord], stage: str) -> Failure | None:
    """The verdict on the last call: its budget, endless repetition, nothing but reasoning."""
    if not calls:
        return None
    last = calls[-1]
    if last.error is not None:
        if last.error.failure_class not in CLASSES:
            return None
        shown = (last.reply or last.thinking)[-_EXCERPT:]
        return Failure(
            failure_class=last.error.failure_class,
            sentence=last.error.sentence,
            reason=last.error.cause,
            stage=stage,
            evidence=[Evidence(source="calls.jsonl", excerpt=f"call {last.seq}: …{shown}")]
            if shown
            else [],
        )
    if last.done_reason == "length" and _only_reasoning(last):
        return Failure(
            failure_class=FailureClass.REASONING_EXHAUSTED,
            sentence=f"the whole reply budget of {last.reply_tokens} tokens went into reasoning",
            reason="only-thinking",
            stage=stage,
            evidence=[
                Evidence(
                    source="calls.jsonl",
                    excerpt=f"call {last.seq}: …{(last.thinking or last.reply)[-_EXCERPT:]}",
                )
            ],
        )
    return None


def _only_reasoning(call: CallRecord) -> bool:
    """Reasoning and nothing to see; some servers leave it in the text, between tags."""
    if call.tool_calls:
        return False
    visible = _THOUGHT.sub("", call.reply, count=1)
    return not visible.strip() and bool(call.thinking.strip() or call.reply.strip())
