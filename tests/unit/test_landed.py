"""What an agent says it wrote against the disk: lost files, junk, data that was touched."""

from __future__ import annotations

import pytest

from orchestrator.records.schema import FileChange
from orchestrator.sandbox.history import TreeEntry
from orchestrator.trial.landed import junk, lost, touched

PROMPT = (
    "Write `explore.py`. It prints what the file holds. Files to hand in: explore.py, README.md"
)


def added(*paths: str) -> list[FileChange]:
    return [FileChange(path=path, change="added", size=1) for path in paths]


def entry(blob: str) -> TreeEntry:
    return TreeEntry(kind="file", size=1, blob=blob)


@pytest.mark.parametrize(
    ("announced", "blobs", "expected"),
    [
        (["a.py"], {}, []),
        (["a.py"], {"a.py": "one"}, []),
        (["a.py"], {"a.py": "other"}, ["a.py"]),
        (["b.py", "a.py"], {"b.py": "one"}, ["b.py"]),
        ([], {}, []),
    ],
)
def test_what_the_reply_held_and_the_disk_does_not(
    announced: list[str], blobs: dict[str, str], expected: list[str]
) -> None:
    assert lost(announced, blobs, {"a.py": entry("one")}) == expected


@pytest.mark.parametrize(
    "path",
    [
        "python", "bash", "python train.py", "pip install -r requirements.txt", "npm install",
        "explore", "what the file holds", "Files to hand in", "###", "### explore.py",
        "1. explore.py", "**explore.py**", "File: explore.py:", "`explore.py`", "diff", "output",
        "Run:", "sub/bash", "- explore.py", "prints",
    ],
)  # fmt: skip
def test_names_that_nobody_meant(path: str) -> None:
    assert junk(added(path), ["explore.py"], PROMPT) == [path]


@pytest.mark.parametrize(
    "path",
    [
        "explore.py", "notes.md", "my notes.md", "Makefile", "LICENSE", "Dockerfile", "src/util.py",
        ".gitignore", ".env", "model", "vocabulary", "a/b/c.json", "README.md",
    ],
)  # fmt: skip
def test_names_that_are_no_junk(path: str) -> None:
    assert junk(added(path), ["explore.py"], PROMPT) == []


def test_what_was_expected_or_there_before_is_no_junk() -> None:
    assert junk(added("bash"), ["bash"], PROMPT) == []
    was_there = [FileChange(path="bash", change="modified", size=1)]
    assert junk(was_there, [], PROMPT) == []


@pytest.mark.parametrize("change", ["added", "modified", "deleted"])
def test_touched_data_is_told(change: str) -> None:
    changes = [FileChange(path="excerpt.csv", change=change, size=0)]  # type: ignore[arg-type]
    assert touched([*changes, *added("a.py")], ("excerpt.csv",)) == ["excerpt.csv"]
