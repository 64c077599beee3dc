"""What a reply holds: files, edits, and what of it can't be honoured."""

from __future__ import annotations

from dataclasses import dataclass, field

from .edits import Edit


@dataclass(frozen=True)
class Refusal:
    """A block that is not written. `reason` is a code, `detail` says it to people."""

    path: str
    reason: str
    detail: str


@dataclass
class Reply:
    files: dict[str, str] = field(default_factory=dict)
    """Path as the reply spells it → text, in order of appearance. Lines end with LF."""
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    """Path → its edits in order. They are of the text in `files`, where the path is there too,
    else of the file in the workspace."""
    listed: list[str] = field(default_factory=list)
    """Files that items of lists are about, given or not."""
    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    before_cut: str = ""
    """What it says before the first block whose end was not found, reasoning left out."""
    nothing: str = ""
    """Why there is no file block at all: `empty`, `only-thinking`, `tool-call`, `diff`,
    `no-file-name` or `prose-only`."""
