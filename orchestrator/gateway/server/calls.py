"""One call of an agent: sent on pinned, tried again while nothing was handed on, recorded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .access import Access
from .body import too_deep
from .causes import CAUSES, Failed
from .pinning import pin
from .recorder import Recorder
from .repetition import Repetition, Watch
from .upstreams import Line, Upstream, estimate

MAX_ATTEMPTS = 3
LONGEST_PAUSE_S = 120.0
"""A server that asks for more patience than that is not asked again."""
NANO = 1e-9
MAX_REFUSALS = 200

HandOn = Callable[[Line], Awaitable[None]]


class Reply:
    """A reply as far as it has come."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.tool_calls: list[Any] = []
        self.last: dict[str, Any] = {}
        self.first_token_s: float | None = None
        self.pieces = 0
        """Lines that said something; of a server that streams, each is a token."""
        self.latest: Line | None = None
        self._watches = Watch(), Watch()

    def add(self, line: Line, elapsed_s: float) -> Repetition | None:
        """Take in a line; what the reply goes on repeating, as soon as that is certain."""
        if line.says_something and self.first_token_s is None:
            self.first_token_s = elapsed_s
        self.pieces += line.says_something
        self.latest = line
        self.text.append(line.text)
        self.thinking.append(line.thinking)
        if too_deep(line.tool_calls):
            raise Failed("malformed", "the model server sent a tool call that is nested too deep")
        self.tool_calls += line.tool_calls
        if line.done:
            self.last = line.data
        of_text, of_thinking = self._watches
        return of_text.add(line.text) or of_thinking.add(line.thinking)

    @property
    def same(self) -> Repetition | None:
        of_text, of_thinking = self._watches
        return of_text.same or of_thinking.same

    def counts(self, sent: dict[str, Any]) -> tuple[int, int, bool]:
        """Tokens of prompt and reply, and whether they are guessed: the server tells them in its
        last line only, where it leaves out what is zero."""
        if self.last or not self.pieces:
            last = self.last
            return last.get("prompt_eval_count", 0), last.get("eval_count", 0), False
        prompt = json.dumps(sent.get("messages") or sent.get("prompt"), ensure_ascii=False)
        return estimate(prompt), self.pieces, True

    def reasoning_tokens(self, reply_tokens: int) -> int:
        """The reply's tokens are counted together: split here as the characters are."""
        thought = sum(map(len, self.thinking))
        said = sum(map(len, self.text)) + len(json.dumps(self.tool_calls)) * bool(self.tool_calls)
        return round(reply_tokens * thought / (thought + said)) if thought else 0

    def whole(self) -> dict[str, Any]:
        """As Ollama answers a request that asked for no stream."""
        text, thinking = "".join(self.text), "".join(self.thinking)
        whole = dict(self.last)
        extra: dict[str, Any] = {"thinking": thinking} if thinking else {}
        if "message" in whole:
            if self.tool_calls:
                extra["tool_calls"] = self.tool_calls
            whole["message"] = {"role": "assistant", "content": text, **extra}
        else:
            whole |= {"response": text, **extra}
        return whole


@dataclass(frozen=True)
class Asked:
    """A call as it came: endpoint by its name in the record, by Ollama's, and both bodies."""

    name: str
    endpoint: str
    body: dict[str, Any]
    native: dict[str, Any]


class Call:
    """`perform` may be awaited once; the call is recorded whatever becomes of it."""

    def __init__(
        self,
        access: Access,
        upstream: Upstream,
        recorder: Recorder,
        asked: Asked,
        *,
        retry_wait_s: float = 1.0,
    ) -> None:
        self.access = access
        self.asked = asked
        self.reply = Reply()
        self._upstream = upstream
        self._recorder = recorder
        self._retry_wait_s = retry_wait_s
        self._sent, self._pinned = pin(
            asked.endpoint, asked.native, access.model, access.pins, upstream.carries
        )
        self._seq = access.calls
        access.calls += 1
        access.wallet.spend(calls=1)
        self._at = datetime.now(UTC)
        self._began = time.monotonic()
        self._attempts: list[dict[str, Any]] = []
        self._handed_on = False
        self._recorded = False

    async def perform(self, hand_on: HandOn | None) -> None:
        """Give each line to `hand_on` as it comes; None: only keep the reply.

        Raises Failed when there is no whole reply; what was handed on by then is not one. A reply
        that repeats itself without end is ended as if its budget were used up.
        """
        total_s, left_s = self.access.pins.total_s, self.access.wallet.left()["agent_s"]
        try:
            async with asyncio.timeout(total_s if left_s is None else min(total_s, left_s)):
                await self._until_whole(hand_on)
        except TimeoutError:
            failure = Failed("too-long", f"the call was not done within {total_s:g} s")
            if reached := self.access.wallet.exhausted():
                failure = Failed("budget-time", f"{reached}; the call was ended")
            self._record(failure)
            raise failure from None
        except Failed as failure:
            self._record(failure)
            raise
        except asyncio.CancelledError:
            self._record(Failed("client-gone", "the agent left before the reply was whole"))
            raise
        finally:
            # Only an error of our own comes here unrecorded.
            self._record(Failed("gateway-error", "the gateway itself failed"))

    async def _until_whole(self, hand_on: HandOn | None) -> None:
        for number in range(1, MAX_ATTEMPTS + 1):
            began = time.monotonic()
            try:
                await self._attempt(hand_on)
            except Failed as failure:
                self._note(failure.cause, began, failure.status, failure.detail)
                again = CAUSES[failure.cause].retry and not self._handed_on
                pause_s = max(self._retry_wait_s * number, failure.retry_after_s or 0.0)
                if not again or number == MAX_ATTEMPTS or pause_s > LONGEST_PAUSE_S:
                    raise
            else:
                return
            await asyncio.sleep(pause_s)

    async def _attempt(self, hand_on: HandOn | None) -> None:
        began = time.monotonic()
        self.reply = Reply()
        held: list[Line] = []  # until the model has said something, all can be tried again
        try:
            await self._read(hand_on, began, held)
        except Failed as failed:
            # Ollama ends some repetitions by itself, and a recording those that were ended here.
            repeated, latest = self.reply.same, self.reply.latest
            if failed.cause == "no-done" and repeated is not None:
                failed = Failed("repetition", repeated.sentence)
            if failed.cause != "repetition" or latest is None:
                raise failed from None
            await self._hand([*held, self._cut_off(_blank(latest), failed, began)], hand_on)

    async def _read(self, hand_on: HandOn | None, began: float, held: list[Line]) -> None:
        lines = self._upstream.lines(self.access, self.asked.endpoint, self._sent)
        async with aclosing(lines):
            async for line in lines:
                repeated = self.reply.add(line, time.monotonic() - self._began)
                if line.done:
                    self._finish(line, began)
                elif repeated is not None:
                    why = Failed("repetition", repeated.sentence)
                    held.append(self._cut_off(line, why, began))
                    await self._hand(held, hand_on)
                    return
                held.append(line)
                if self.reply.first_token_s is not None or line.done:
                    await self._hand(held, hand_on)
                    held.clear()

    async def _hand(self, lines: list[Line], hand_on: HandOn | None) -> None:
        if hand_on is not None:
            self._handed_on = True
            for line in lines:
                await hand_on(line)

    def _finish(self, line: Line, began: float) -> None:
        """The last line has come. Recorded before it is handed on: once the agent has it, its
        stage may be over."""
        only_loaded = line.data.get("done_reason") in ("load", "unload")
        if only_loaded and self.reply.first_token_s is None:
            raise Failed("only-loaded", "the model server only loaded the model", status=200)
        self._note("ok", began, 200)
        self._record(None)

    def _cut_off(self, line: Line, why: Failed, began: float) -> Line:
        """A last line in the place of `line`; the agent may keep what was said."""
        data = line.data | {"done": True, "done_reason": "length"}
        self._note(why.cause, began, 200, why.detail)
        self._record(why)
        self.reply.last = data
        return Line(json.dumps(data).encode() + b"\n", data)

    def _note(self, cause: str, began: float, status: int | None, detail: str = "") -> None:
        self._attempts.append(
            {
                "cause": cause,
                "status": status,
                "detail": detail,
                "duration_s": round(time.monotonic() - began, 6),
                "handed_on": self._handed_on,
            }
        )

    def _record(self, failure: Failed | None) -> None:
        if self._recorded:
            return
        self._recorded = True
        last = self.reply.last
        prompt_tokens, reply_tokens, guessed = self.reply.counts(self._sent)
        cached_tokens = last.get("prompt_cached_count", 0)
        self.access.wallet.pay(prompt_tokens, reply_tokens, cached_tokens)
        line = heading(self.access, self._seq, self._at, self.asked.name, self.asked.body) | {
            "pinned": self._pinned,
            "reply": "".join(self.reply.text),
            "thinking": "".join(self.reply.thinking),
            "tool_calls": self.reply.tool_calls,
            "done_reason": last.get("done_reason"),
            "prompt_tokens": prompt_tokens,
            "reply_tokens": reply_tokens,
            "reasoning_tokens": self.reply.reasoning_tokens(reply_tokens),
            "cached_tokens": cached_tokens,
            "tokens_estimated": guessed or self._upstream.estimates_tokens,
            "timings": {
                "total_s": last.get("total_duration", 0) * NANO,
                "load_s": last.get("load_duration", 0) * NANO,
                "prompt_s": last.get("prompt_eval_duration", 0) * NANO,
                "reply_s": last.get("eval_duration", 0) * NANO,
            },
            "first_token_s": self.reply.first_token_s,
            "duration_s": time.monotonic() - self._began,
            "attempts": self._attempts,
            "error": error_of(failure),
        }
        self._recorder.write(self.access, line)


def _blank(line: Line) -> Line:
    """The line without what it said."""
    data = {name: value for name, value in line.data.items() if name != "thinking"}
    if "message" in data:
        data["message"] = {"role": "assistant", "content": ""}
    else:
        data["response"] = ""
    return Line(line.raw, data)


def record_refusal(
    access: Access, recorder: Recorder, endpoint: str, body: dict[str, Any], why: Failed
) -> None:
    """A request with a good token that was not let through; no model was asked.

    So many of an access are recorded, as nothing else bounds their number.
    """
    access.refusals += 1
    if access.refusals > MAX_REFUSALS:
        return
    if access.refusals == MAX_REFUSALS:
        why.detail += "; no further refusal of this stage is recorded"
    line = heading(access, access.calls, datetime.now(UTC), endpoint, body) | {
        "pinned": {},
        "reply": "",
        "duration_s": 0.0,
        "error": error_of(why),
    }
    access.calls += 1
    recorder.write(access, line)


def heading(
    access: Access, seq: int, at: datetime, endpoint: str, body: dict[str, Any]
) -> dict[str, Any]:
    return {
        "v": 1,
        "run": access.run,
        "stage": access.stage,
        "turn": access.turn,
        "seq": seq,
        "at": at.isoformat(),
        "endpoint": endpoint,
        "model": access.model,
        "upstream": access.upstream,
        "request": body,
    }


def error_of(failure: Failed | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "failure_class": CAUSES[failure.cause].failure_class or None,
        "cause": failure.cause,
        "sentence": failure.detail,
        "prompt_tokens": failure.prompt_tokens,
        "context_tokens": failure.context_tokens,
    }
