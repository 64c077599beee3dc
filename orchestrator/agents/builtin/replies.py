"""A model's plain-text reply → the files and edits it holds, and what in it can't be honoured."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import bodies, edits, leaks, names
from .continuing import CUT_REASONS
from .edit_blocks import EditBlocks
from .fences import (
    ORDINARY,
    End,
    Fence,
    body,
    find_end,
    first_end,
    is_document,
    read_fence,
    same_family,
)
from .names import Name, Strength
from .reply import Refusal, Reply

TITLE_REACH = 8
"""Lines between a heading that names a file and the file's block."""

_THINK_OPEN = re.compile(r"^\s*<(think|thinking)>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)
_THINK_ENDS = re.compile(r"^\s*</(?:think|thinking)>|</(?:think|thinking)>\s*$", re.IGNORECASE)


def parse_reply(text: str, *, at_budget: bool = False) -> Reply:
    """Never raises: whatever a model may write has an answer. `at_budget`: its end is not of its
    own choosing."""
    answer = leaks.answer_of(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    reader = _Reader(answer.split("\n"), at_budget=at_budget)
    reader.read()
    reply = reader.reply
    reply.before_cut = reader.before_cut
    if not reply.files and not reply.edits and not reply.refused:
        reply.nothing = _why_nothing(text, reader)
    return reply


def _why_nothing(text: str, reader: _Reader) -> str:
    if not text.strip():
        return "empty"
    if reader.edits.nameless:
        return "diff"
    if not reader.said.strip() and not reader.nameless:
        return "only-thinking"
    if bodies.is_tool_call(text):
        return "tool-call"
    return "no-file-name" if reader.nameless else "prose-only"


class _Reader:
    """One pass over the lines; a block's end is decided when its start is met."""

    def __init__(self, lines: list[str], *, at_budget: bool) -> None:
        self.lines = lines
        self.at_budget = at_budget
        self.reply = Reply()
        self.strengths: dict[str, Strength] = {}
        self.said = ""
        """Text outside blocks and thinking."""
        self.nameless = 0
        self.edits = EditBlocks(lines, self.reply)
        self.answer_from = 0
        """The first line after reasoning."""
        self.cut_at: int | None = None
        """The first line that belongs to a block without an end."""
        self.only_strict = False
        """A document was cut off: what follows is its inside, until a `FILE:` line."""

    def read(self) -> None:
        at = 0
        previous: list[int] = []  # lines since the last block, where a name may stand
        while at < len(self.lines):
            line = self.lines[at]
            if _THINK_OPEN.match(line):
                at, previous = self._skip_thinking(at), []
                continue
            if leaks.next_turn(line):
                self.reply.notes.append("the reply went on with a turn of its own making; ignored")
                return
            if _THINK_ENDS.search(line) or leaks.final_mark(line):
                self._forget()
                self.answer_from = at
                line = _THINK_CLOSE.split(line)[-1][leaks.final_mark(line) or 0 :]
                previous = []
            self.lines[at] = line = leaks.without_tokens(line)
            fence = read_fence(self.lines, at)
            sections = edits.is_search(line)
            if not sections and (fence is None or not self._may_open(previous)):
                self.said += line + "\n"
                self._note_listed(line)
                self._note_fenceless(at)
                previous.append(at)
                at += 1
                continue
            refused, first = len(self.reply.refused), previous[-1] if previous else at
            if fence is None:
                after = self.edits.bare(at, self._above(previous))
            else:
                after = self._block(fence, previous)
            self._note_cut(first, refused)
            at, previous = after, []

    @property
    def before_cut(self) -> str:
        return "\n".join(self.lines[self.answer_from : self.cut_at])

    def _may_open(self, previous: Sequence[int]) -> bool:
        if not self.only_strict:
            return True
        above = self._above(previous)
        return above is not None and names.strict(above) is not None

    def _note_cut(self, first: int, refused: int) -> None:
        """Remember where the first block without an end begins: at its name, at the latest."""
        new = self.reply.refused[refused:]
        if self.cut_at is None and any(item.reason in CUT_REASONS for item in new):
            self.cut_at = first

    def _skip_thinking(self, at: int) -> int:
        for index in range(at, len(self.lines)):
            match = _THINK_CLOSE.search(self.lines[index])
            if match:
                self.lines[index] = self.lines[index][match.end() :]
                self.answer_from = index
                return index
        self.answer_from = len(self.lines)
        self.reply.notes.append("the thinking block was never closed; all after it was ignored")
        return len(self.lines)

    def _forget(self) -> None:
        """A closing tag without an opening one: all before it was thinking."""
        self.reply = Reply()
        self.strengths.clear()
        self.said = ""
        self.nameless = 0
        self.edits = EditBlocks(self.lines, self.reply)
        self.cut_at = None
        self.only_strict = False

    def _note_listed(self, line: str) -> None:
        path = names.listed(line)
        if path is not None and path not in self.reply.listed:
            self.reply.listed.append(path)

    def _note_fenceless(self, at: int) -> None:
        """A `FILE:` line that no fence follows: the file is named but not there."""
        path = names.strict(self.lines[at])
        if path is None:
            return
        following = next((i for i in range(at + 1, len(self.lines)) if self.lines[i].strip()), None)
        if following is None or read_fence(self.lines, following) is None:
            self._refuse(path, "no-fence", "no fenced block follows its name")

    def _block(self, fence: Fence, previous: Sequence[int]) -> int:
        """Take one block; returns the line after it."""
        language, name = names.from_info(fence.info)
        above = self._above(previous)
        name = (
            name
            or self._named_above(above, language)
            or self._named_inside(fence, language)
            or self._titled(previous, language)
        )
        edited = self.edits.block(fence, language, name)
        if edited is not None:
            return edited
        if name is None:
            return self._nameless_block(fence)
        if not names.fits(name.path, language):
            if name.strength > Strength.SENTENCE:
                detail = f"the block under its name is {language}"
                self._refuse(name.path, "language-mismatch", detail)
            closing = first_end(self.lines, fence)
            return fence.line + 1 if closing is None else closing + 1
        stop = self._stop(fence)
        end = find_end(self.lines, fence, name.path, stop)
        if isinstance(end, int) and self.at_budget and self._may_be_cut(fence, name.path, end):
            end = End.UNTERMINATED
        if isinstance(end, End):
            return self._without_end(fence, name.path, end, stop)
        self.only_strict = False
        self._keep(name, body(self.lines, fence, end))
        return end + 1

    def _above(self, previous: Sequence[int]) -> str | None:
        """The last line with text, at most one blank line above the fence."""
        for index in list(previous)[-2:][::-1]:
            if self.lines[index].strip():
                return self.lines[index]
        return None

    def _named_above(self, above: str | None, language: str) -> Name | None:
        if above is None:
            return None
        return names.from_header(above) or names.from_sentence(above, language)

    def _named_inside(self, fence: Fence, language: str) -> Name | None:
        inside = self.lines[fence.line + 1 : fence.line + 3]
        if inside and inside[0].startswith("#!"):
            inside = inside[1:]
        return names.from_comment(inside[0], language) if inside else None

    def _titled(self, previous: Sequence[int], language: str) -> Name | None:
        """A heading that names a file, then a few words on it, then its block."""
        for index in list(previous)[-TITLE_REACH:][::-1]:
            if not names.is_heading(self.lines[index]):
                continue
            title = names.from_header(self.lines[index])
            if title is not None and names.speaks(title.path, language):
                return Name(title.path, Strength.SENTENCE)
            return None
        return None

    def _stop(self, fence: Fence) -> int:
        """The next `FILE:` line that begins a block which could not lie inside this one."""
        for index in range(fence.line + 1, len(self.lines)):
            if names.strict(self.lines[index]) is None:
                continue
            inner = self._fence_below(index)
            if inner is not None and same_family(fence, inner) and self._opens(inner):
                return index
        return len(self.lines)

    def _fence_below(self, index: int) -> Fence | None:
        """The fence under a line, at most one blank line below it."""
        for below in range(index + 1, min(index + 3, len(self.lines))):
            if self.lines[below].strip():
                return read_fence(self.lines, below)
        return None

    def _opens(self, fence: Fence) -> bool:
        """Whether the fence under a `FILE:` line begins a block. A bare one that no other follows
        before the next block is the end of a file whose last line looks like that."""
        if fence.info:
            return True
        for later in range(fence.line + 1, len(self.lines)):
            if names.strict(self.lines[later]) is not None:
                below = self._fence_below(later)
                if below is not None and same_family(fence, below):
                    return False
            other = read_fence(self.lines, later)
            if other is not None and same_family(fence, other):
                return True
        return False

    def _may_be_cut(self, fence: Fence, path: str, end: int) -> bool:
        """A document's ordinary fence as the very last line: it may as well open a block."""
        if not is_document(path) or any(line.strip() for line in self.lines[end + 1 :]):
            return False
        closing = read_fence(self.lines, end)
        return closing is None or closing.length == ORDINARY or closing.length < fence.length

    def _without_end(self, fence: Fence, path: str, end: End, stop: int) -> int:
        if end is End.AMBIGUOUS:
            detail = "a fence in it could be its end or part of it; use a longer outer fence"
            self._refuse(path, "ambiguous-fences", detail)
        else:
            self._refuse(path, "truncated", "its block has no closing fence")
        if end is End.AMBIGUOUS or is_document(path):
            self.only_strict = True
            return stop
        return fence.line + 1

    def _nameless_block(self, fence: Fence) -> int:
        below = next(
            (i for i in range(fence.line + 1, len(self.lines)) if self.lines[i].strip()), None
        )
        if below is not None and names.strict(self.lines[below]) is not None:
            return fence.line + 1  # a fence around the whole reply
        end = first_end(self.lines, fence)
        self.nameless += 1
        return fence.line + 1 if end is None else end + 1

    def _keep(self, name: Name, text: str) -> None:
        path = name.path
        left_out = bodies.elision(text, document=is_document(path))
        earlier = self.strengths.get(path)
        if bodies.holds_sections(text) and not is_document(path):
            detail = "it holds SEARCH/REPLACE sections among other text"
            self._refuse(path, "did-not-apply", detail)
        elif left_out is not None:
            self._refuse(path, "elided", f"part of the file is left out: {left_out}")
        elif earlier is not None and name.strength is Strength.SENTENCE < earlier:
            self._refuse(path, "mentioned-only", "a whole version stands earlier in the reply")
        else:
            if earlier is not None:
                self.reply.notes.append(f"{path} came more than once; the last was kept")
                del self.reply.files[path]
            if self.reply.edits.pop(path, None):
                self.reply.notes.append(f"{path} came whole after edits of it, which were left")
            self.reply.files[path] = text
            self.strengths[path] = name.strength

    def _refuse(self, path: str, reason: str, detail: str) -> None:
        self.reply.refused.append(Refusal(path, reason, detail))
