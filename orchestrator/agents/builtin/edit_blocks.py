"""Blocks of a reply that edit files: taken into the reply by file, or refused."""

from __future__ import annotations

from collections.abc import Sequence

from . import edits, names
from .edits import FileEdits
from .fences import Fence, body, edit_end
from .names import Name
from .reply import Refusal, Reply

UNNAMED = "?"
"""Stands for the path of an edit that names no file."""


class EditBlocks:
    """Takes them one after the other, as the reply's reader comes upon them."""

    def __init__(self, lines: Sequence[str], reply: Reply) -> None:
        self._lines = lines
        self._reply = reply
        self._latest: str | None = None
        """The file of the last edit, which those that follow may leave out."""
        self.nameless = 0
        """Diffs that name no file at all."""

    def bare(self, at: int, above: str | None) -> int:
        """SEARCH/REPLACE without a fence around it; `above`: the line with text before it.
        Returns the line after it."""
        end = edits.sections_end(self._lines, at)
        name = names.from_header(above) if above is not None else None
        path = name.path if name else self._latest
        self._take(edits.read_sections(self._lines[at:end], path))
        return len(self._lines) if end is None else end

    def block(self, fence: Fence, language: str, name: Name | None) -> int | None:
        """Take the block of this fence; returns the line after it, None where it holds no edits."""
        start = fence.line + 1
        sections = edits.begins_sections(self._lines, start)
        diff = edits.begins_diff(self._lines, start) or language in edits.DIFF_LANGUAGES
        if not sections and not diff:
            return None
        end = edit_end(self._lines, fence, sections=sections)
        stop = len(self._lines) if end is None else end
        text = body(self._lines, fence, stop).split("\n")[:-1]
        path = name.path if name else None
        if sections:
            found = edits.read_sections(text, path or self._latest)
        else:
            found = edits.read_diff(text, path)
        if end is None:
            for one in found or [FileEdits(path or "")]:
                self._refuse(one.path, "truncated", "its block has no closing fence")
        elif diff and not any(one.path for one in found):
            self.nameless += 1
        else:
            self._take(found)
        return stop if end is None else end + 1

    def _take(self, found: Sequence[FileEdits]) -> None:
        for one in found:
            self._latest = one.path or self._latest
            if one.cut:
                self._refuse(one.path, "truncated", "a SEARCH section of it has no end")
            elif one.problem or not one.path:
                detail = one.problem or "no file is named that it would be an edit of"
                self._refuse(one.path, "did-not-apply", detail)
            else:
                self._reply.edits.setdefault(one.path, []).extend(one.edits)

    def _refuse(self, path: str, reason: str, detail: str) -> None:
        self._reply.refused.append(Refusal(path or UNNAMED, reason, detail))
