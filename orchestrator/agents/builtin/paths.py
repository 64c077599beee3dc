"""Which file names a reply may write: inside the workspace, and harmless to those who read it."""

from __future__ import annotations

import re
import unicodedata

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 1024

# An agent that starts in the workspace would obey these.
_AGENT_CONFIG = re.compile(
    r"\.aider.*|\.claude.*|\.cursor.*|\.codex.*|\.continue.*|\.gemini.*|\.windsurf.*|\.clinerules.*"
    r"|\.roo.*|\.mcp\.json|claude\.md|agents\.md|gemini\.md",
    re.IGNORECASE,
)
# Names that some file systems take for .git.
_GIT = re.compile(r"\.git[ .]*|git~\d+", re.IGNORECASE)


class UnsafePath(ValueError):
    """The message is the reason, to follow the path in a sentence."""


def safe_path(path: str) -> str:
    """The path in normal form (`./a//b` → `a/b`). Raises UnsafePath with the reason."""
    if not path:
        raise UnsafePath("is empty")
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in path):
        raise UnsafePath("holds an invisible or control character")
    path = path.replace("\\", "/")  # as Windows writes it
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        raise UnsafePath("is absolute")
    if path.startswith("~"):
        raise UnsafePath("points to a home folder")
    if path.endswith("/"):
        raise UnsafePath("names a folder")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafePath("leaves the workspace")
    if not parts:
        raise UnsafePath("names a folder")
    for part in parts:
        _check_part(part)
    joined = "/".join(parts)
    if len(joined.encode()) > MAX_PATH_BYTES:
        raise UnsafePath(f"is longer than {MAX_PATH_BYTES} bytes")
    return joined


def _check_part(part: str) -> None:
    if len(part.encode()) > MAX_PART_BYTES:
        raise UnsafePath(f"has a name longer than {MAX_PART_BYTES} bytes")
    if _GIT.fullmatch(part):
        raise UnsafePath("is inside .git")
    if _AGENT_CONFIG.fullmatch(part):
        raise UnsafePath("is an agent's own configuration")
    if part != part.strip():
        raise UnsafePath("has a name that begins or ends with a space")
    if part.startswith("-"):
        raise UnsafePath("looks like a command-line option")
