"""A reply's files and edits onto the disk, each file whole or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from .fences import is_document
from .fitting import Unfit, fitted, made_already
from .reply import Refusal, Reply
from .writer import Refused, Workspace, encoded


@dataclass
class Landed:
    written: dict[str, str] = field(default_factory=dict)
    """Normal path → git's name for the content, by which a snapshot can be held against it."""
    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def land(reply: Reply, workspace: Workspace) -> Landed:
    """Write all that can be written; what can't is refused with its reason and stops no other."""
    landed = Landed(refused=list(reply.refused), notes=list(reply.notes))
    for path, text in reply.files.items():
        _write(landed, workspace, path, text)
    for path, changes in reply.edits.items():
        try:
            document = is_document(path)
            text = fitted(workspace.read(path), changes, document=document)
        except Refused as exc:
            landed.refused.append(Refusal(path, exc.reason, str(exc)))
        except Unfit as exc:
            if made_already(reply.files.get(path, ""), changes):
                landed.notes.append(f"an edit of {path} tells what the whole file has already")
            else:
                landed.refused.append(Refusal(path, exc.reason, str(exc)))
        else:
            _write(landed, workspace, path, text)
    for path in reply.listed:
        if _is_missing(workspace, path):
            landed.notes.append(f"{path} was listed and not given")
    return landed


def _is_missing(workspace: Workspace, path: str) -> bool:
    try:
        return workspace.read(path) is None
    except Refused:
        return False


def _write(landed: Landed, workspace: Workspace, path: str, text: str) -> None:
    try:
        normal = workspace.write(path, text)
    except Refused as exc:
        landed.refused.append(Refusal(path, exc.reason, str(exc)))
    else:
        landed.written[normal] = blob_id(encoded(text))


def blob_id(data: bytes) -> str:
    """The name under which git keeps this content."""
    kind = b"blob %d\0" % len(data)
    return hashlib.sha1(kind + data, usedforsecurity=False).hexdigest()
