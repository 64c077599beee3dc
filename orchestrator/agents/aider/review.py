"""What of its replies aider brought to the disk: pure functions over the gateway's record.

A reply is read twice: as people would read it (`parse_reply`), and by aider's own rule, by which
a line that begins with a fence opens a listing, and the next one ends it. What the two and the
disk don't agree on was lost, and is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.agents.base import Aftermath, AgentReport
from orchestrator.agents.builtin.continuing import CUT_REASONS
from orchestrator.agents.builtin.paths import UnsafePath, safe_path
from orchestrator.agents.builtin.replies import parse_reply
from orchestrator.agents.native import NOTHING
from orchestrator.records.calls import CallRecord
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Dropped, Evidence, Failure

FENCE = "```"
REASONING_TAG = "think"
LONGEST_NAME = 250
MOST_DROPPED = 300
_NOTHING = NOTHING | {"diff": "the reply held a patch where whole files were asked for"}


def listings(text: str) -> dict[str, str] | None:
    """The files that aider takes from a reply: name as it is spelt → text.

    None: nothing of it, since a block has no name. The model is told, and may answer again.
    """
    found: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    name = ""
    body: list[str] | None = None
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.startswith(FENCE):
            if body is not None:
                body.append(line)
            continue
        if body is not None:
            found.setdefault(name, "".join(body))
            name, body = "", None
            continue
        name = before.strip().strip("*").rstrip(":").strip("`").lstrip("#").strip()
        if not name or len(name) > LONGEST_NAME:
            return None
        body = []
    if body is not None:
        found.setdefault(name, "".join(body))
    return found


def without_reasoning(text: str) -> str:
    """The reply as aider looks at it, which was told the tag that reasoning stands in."""
    text = re.sub(f"<{REASONING_TAG}>.*?</{REASONING_TAG}>", "", text, flags=re.DOTALL).strip()
    return text.split(f"</{REASONING_TAG}>", 1)[-1].strip()


def review(report: AgentReport, after: Aftermath, stage: str) -> AgentReport:
    """The report with what landed, what did not, and the failure that this amounts to."""
    replies = [call for call in after.calls if call.request.get("stream") is not False]
    refused = frozenset(_path(one.path) for one in report.dropped)
    landed = _Landed(after.read, list(report.dropped), refused)
    for call in replies:
        if is_whole(call):
            landed.add(call.reply)
    written, stumps = landed.compare()
    cut = [call for call in replies if call.reply and not is_whole(call)]
    # What one reply lost another may have brought.
    lost = [*landed.dropped, *_cut_off(cut)]
    dropped = [one for one in lost if _path(one.path) not in written][:MOST_DROPPED]
    failure = report.failure or _of_calls(replies, report, stage)
    if failure is None or failure.failure_class is FailureClass.TRUNCATED_REPLY:
        failure = landed.stump(stumps, stage) or landed.half(stage) or failure
    if failure is None and not after.changes and not written:
        failure = _nothing(replies, dropped, stage)
    notes = landed.notes(change.path for change in after.changes)
    return replace(report, written=written, dropped=dropped, failure=failure, notes=notes)


def is_whole(call: CallRecord) -> bool:
    return call.error is None and call.done_reason != "length"


@dataclass
class _Landed:
    """Whole replies against the disk."""

    read: Callable[[str], bytes | None]
    dropped: list[Dropped]
    """What did not land for a reason that is known; at first, what was refused on the spot."""
    refused: frozenset[str | None] = frozenset()
    meant: dict[str, str] = field(default_factory=dict)
    """Files of the replies that must be on the disk, as the last one has them."""
    halves: list[str] = field(default_factory=list)
    """Files whose listing no fence ended: aider wrote what there was."""
    taken: set[str] = field(default_factory=set)
    """Files that aider took from them, by whatever names."""
    named: set[str] = field(default_factory=set)
    """Those that they name, by the reading of people."""

    def add(self, text: str) -> None:
        reply, taken = parse_reply(text), listings(without_reasoning(text))
        by_path = {_path(name) or name: body for name, body in (taken or {}).items()}
        self.taken |= by_path.keys()
        for one in reply.refused:
            path = _path(one.path) or one.path
            if path not in by_path:
                self._drop(one.path, f"{one.reason}: {one.detail}")
            elif one.reason in CUT_REASONS:
                self.halves.append(path)
        for name in reply.edits.keys() - reply.files.keys():
            as_text = ", which aider wrote as the file's text" if _path(name) in by_path else ""
            self._drop(name, f"diff: a patch where a whole file was asked for{as_text}")
        if taken is None:
            for name in reply.files:
                self._drop(name, "unnamed-block: aider takes none of a reply with a nameless block")
            return
        for name, body in reply.files.items():
            self._file(name, body, by_path)

    def _file(self, name: str, body: str, taken: dict[str, str]) -> None:
        try:
            path = safe_path(name)
        except UnsafePath as unsafe:
            self._drop(name, f"unsafe-path: the path {unsafe}")
            return
        self.named.add(path)
        if path not in taken:
            same = (other for other, text in taken.items() if text == body)
            other = next(same, None)
            told = f"wrong-fence: not between lines of {FENCE} below its name"
            self._drop(path, f"wrong-name: aider took it for {other!r}" if other else told)
            return
        if path not in self.refused:
            self.meant[path] = body

    def compare(self) -> tuple[list[str], list[str]]:
        """Files that must be there, and those of which the disk has the beginning only.

        One with another text altogether is dropped and told: of a file that comes twice in a reply
        aider writes the first.
        """
        written, stumps = [], []
        for path, body in self.meant.items():
            there = self.read(path)
            wanted, found = _lines(body.encode()), _lines(there or b"")
            if there is not None and found != wanted and wanted[: len(found)] != found:
                self._drop(path, "differs: the workspace has another text of it")
                continue
            written.append(path)
            if there is not None and found != wanted:
                stumps.append(path)
        return written, stumps

    def _drop(self, path: str, reason: str) -> None:
        if all(one.path != path for one in self.dropped):
            self.dropped.append(Dropped(path=path, reason=reason))

    def stump(self, stumps: Sequence[str], stage: str) -> Failure | None:
        if not stumps:
            return None
        junk = sorted(self.taken - self.named)
        return Failure(
            failure_class=FailureClass.EDIT_DROPPED,
            reason="nested-fence",
            sentence=f"of {', '.join(stumps)} the workspace has the beginning only",
            stage=stage,
            evidence=[
                *(Evidence(source="reply", excerpt=name) for name in stumps),
                *(Evidence(source="junk file", excerpt=name) for name in junk),
            ],
        )

    def half(self, stage: str) -> Failure | None:
        halves = [path for path in dict.fromkeys(self.halves) if path not in self.meant]
        if not halves:
            return None
        return Failure(
            failure_class=FailureClass.TRUNCATED_REPLY,
            reason="no-closing-fence",
            sentence=f"the reply ended inside {', '.join(halves)}, of which there is a part",
            stage=stage,
            evidence=[Evidence(source="reply", excerpt=path) for path in halves],
        )

    def notes(self, changed: Iterable[str]) -> list[str]:
        junk = (self.taken - self.named) & set(changed)
        return [f"{path}: not a file of the reply, but a line before a fence in it" for path in
                sorted(junk)]  # fmt: skip


def _cut_off(cut: Sequence[CallRecord]) -> list[Dropped]:
    """Files of replies that are not whole."""
    names = {
        _path(name) or name: None
        for call in cut
        for name in (*parse_reply(call.reply).files, *(listings(call.reply) or ()))
    }
    reason = "truncated: the reply was cut off, and aider applies none of such a one"
    return [Dropped(path=name, reason=reason) for name in names]


def _of_calls(replies: Sequence[CallRecord], report: AgentReport, stage: str) -> Failure | None:
    """What the last call that was to bring files came to; None: a whole reply."""
    if not replies:
        return _crashed("aider ended without asking the model", report, stage)
    last = replies[-1]
    if last.error is not None and last.error.failure_class is not None:
        return Failure(
            failure_class=last.error.failure_class,
            sentence=last.error.sentence,
            reason=last.error.cause,
            stage=stage,
        )
    if last.error is not None:
        return _crashed(f"aider's last call came to nothing: {last.error.sentence}", report, stage)
    if last.done_reason == "length":
        return Failure(
            failure_class=FailureClass.TRUNCATED_REPLY,
            sentence="the reply ended at its budget",
            reason="length",
            stage=stage,
        )
    return None


def _crashed(sentence: str, report: AgentReport, stage: str) -> Failure:
    last = report.output.text.strip().splitlines()[-3:]
    return Failure(
        failure_class=FailureClass.AGENT_ERROR,
        sentence=sentence,
        stage=stage,
        evidence=[Evidence(source="aider", excerpt=line) for line in last],
    )


def _nothing(replies: Sequence[CallRecord], dropped: Sequence[Dropped], stage: str) -> Failure:
    reasons = sorted({one.reason.partition(":")[0] for one in dropped})
    if reasons == ["unsafe-path"]:
        failure_class, reason = FailureClass.UNSAFE_PATH, "unsafe-path"
        sentence = "every file of the reply was refused for its path"
    else:
        failure_class = FailureClass.NO_EDITS
        reason = ", ".join(reasons) or parse_reply(replies[-1].reply).nothing
        sentence = _NOTHING.get(reason, f"no file of the reply could be written ({reason})")
    return Failure(
        failure_class=failure_class,
        sentence=sentence,
        reason=reason,
        stage=stage,
        evidence=[Evidence(source="reply", excerpt=f"{one.path}: {one.reason}") for one in dropped],
    )


def _path(name: str) -> str | None:
    try:
        return safe_path(name)
    except UnsafePath:
        return None


def _lines(content: bytes) -> list[str]:
    text = content.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n")
    return text.split("\n") if text else []
