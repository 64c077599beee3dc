"""What a stage's agent says it wrote, set against what is on disk: pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from orchestrator.records.schema import FileChange
from orchestrator.sandbox.history import TreeEntry

COMMANDS = frozenset(
    {
        "python", "python3", "pip", "pip3", "uv", "pytest", "bash", "sh", "zsh", "sudo",
        "cd", "ls", "cat", "echo", "mkdir", "touch", "cp", "mv", "rm", "npm", "npx", "node",
        "git", "make", "docker", "curl", "wget", "export", "source", "run", "install",
    }
)  # fmt: skip
LANGUAGES = frozenset(
    {
        "text", "txt", "plaintext", "diff", "patch", "json", "yaml", "toml", "markdown",
        "md", "csv", "console", "shell", "terminal", "output", "code", "py", "javascript",
        "js", "html", "css", "sql",
    }
)  # fmt: skip
"""Words that stand after a fence; as a whole file's name they are a misread fence."""
_BARE_NAMES = frozenset(
    {
        "dockerfile", "makefile", "procfile", "pipfile", "gemfile", "license", "licence",
        "notice", "authors", "changelog", "readme", "contributing",
    }
)  # fmt: skip
_MARKUP = re.compile(r"^(?:[#>*`-]|\d+[.)]\s)|[*`:]$|[\n\r]")
_WORD = re.compile(r"[a-z0-9]+")


def lost(
    announced: Iterable[str], blobs: Mapping[str, str], present: Mapping[str, TreeEntry]
) -> list[str]:
    """Files that the reply held and the disk does not: not there, or there with other content."""
    return sorted(
        path
        for path in announced
        if path not in present or (path in blobs and present[path].blob != blobs[path])
    )


def junk(changes: Sequence[FileChange], expects: Collection[str], prompt: str) -> list[str]:
    """New files that nobody meant: named like a command, a fence's language, a line of markup or
    words of the prompt."""
    known = frozenset(_WORD.findall(prompt.lower()))
    return [
        change.path
        for change in changes
        if change.change == "added" and change.path not in expects and _is_junk(change.path, known)
    ]


def _is_junk(path: str, prompt_words: Collection[str]) -> bool:
    name = PurePosixPath(path).name
    words = name.lower().split()
    if not words or _MARKUP.search(name):
        return True
    if name.startswith(".") or name.lower() in _BARE_NAMES:
        return False
    if len(words) == 1 and PurePosixPath(name).suffix:
        return False
    if words[0] in COMMANDS or (len(words) == 1 and words[0] in LANGUAGES):
        return True
    return all(word in prompt_words for word in _WORD.findall(name.lower()))


def touched(changes: Sequence[FileChange], data: Collection[str]) -> list[str]:
    """Files of the data that the stage altered."""
    return [change.path for change in changes if change.path in data]
