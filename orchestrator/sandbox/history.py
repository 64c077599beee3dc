"""Snapshots of a workspace, in a bare git repository that lies outside of it.

Git never looks at a workspace: its content could run commands, alter bytes or hide files. A
walker in a helper container writes what is there as a stream, and git only ever reads that.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

from orchestrator.errors import (
    EngineRefused,
    NotEnoughSpace,
    PreflightFailed,
    RecordUnreadable,
    UnsafeOutput,
)
from orchestrator.records.schema import Dropped, FileChange
from orchestrator.sandbox.archive import STAMP
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import MIB
from orchestrator.sandbox.volume import HELPER_LIMITS, Volume

Pour = Callable[[IO[bytes]], list[Dropped]]
"""Writes what a volume holds as fast-import commands; returns what it skipped."""

WALKER = ("python3", "-I", "-S", "/opt/orch/inside/walker.py", "/workspace")
WALK_TIMEOUT_S = 300
WALK_LOG_KB = 1024
"""The list of what was skipped comes on stderr and has to come whole."""
BRANCH = "refs/heads/main"
COMMITTER = "orch <orch@localhost>"
MAX_READ = 10 * MIB

_OBJECT = re.compile(r"[0-9a-f]{40,64}")
_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_SETTINGS = (
    f"core.hooksPath={os.devnull}",
    "core.fsync=committed,loose-object",
    "core.fsyncMethod=batch",
    "gc.auto=0",
    # Names that other systems would take for `.git`; nothing is ever checked out.
    "core.protectNTFS=false",
    "core.protectHFS=false",
)


@dataclass(frozen=True)
class Tree:
    """A snapshot: equal workspaces give equal `id`s. `skipped` is what could not be kept."""

    id: str
    commit: str
    skipped: list[Dropped]


@dataclass(frozen=True)
class TreeEntry:
    """A file of a snapshot, or a link, whose content is where it leads. `size` in bytes."""

    kind: Literal["file", "link"]
    size: int
    blob: str
    executable: bool = False


class History:
    """A bare repository at `path`, made when it is first written. One writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def snapshot(
        self, engine: Engine, tools_image: str, volume: Volume, message: str, owner: Owner
    ) -> Tree:
        """Keep what `volume` holds. Raises EngineError, NotEnoughSpace, RecordUnreadable."""
        with viewing(engine, tools_image, volume, owner) as pour:
            return self.keep(message, pour)

    def keep(self, message: str, pour: Pour) -> Tree:
        """A snapshot out of what `pour` writes."""
        self._init()
        # A file between the two: a slow disk must not hold up the stream, and what the walker
        # did not finish must not be imported.
        with tempfile.TemporaryFile(dir=self.path) as stream:
            self._begin(stream, message)
            skipped = pour(stream)
            stream.write(b"done\n")
            stream.seek(0)
            self._git("fast-import", "--quiet", "--done", stdin=stream)
        ids = self._git("rev-parse", f"{BRANCH}^{{tree}}", f"{BRANCH}^{{commit}}").decode().split()
        return Tree(ids[0], ids[1], skipped)

    def _init(self) -> None:
        if not (self.path / "HEAD").exists():
            self.path.mkdir(parents=True, exist_ok=True)
            self._git("init", "--bare", "--quiet", "--template=", "--initial-branch=main")

    def _begin(self, stream: IO[bytes], message: str) -> None:
        # Always the same committer and date: a commit is known by its content alone.
        text = message.encode()
        stream.write(f"commit {BRANCH}\ncommitter {COMMITTER} {STAMP} +0000\n".encode())
        stream.write(b"data %d\n%s\n" % (len(text), text))
        if self._git("for-each-ref", BRANCH):
            stream.write(f"from {BRANCH}^0\n".encode())
        stream.write(b"deleteall\n")

    def changes(self, old: str | None, new: str) -> list[FileChange]:
        """What differs from tree `old` (None: from nothing) to tree `new`, by path."""
        entries = self.files(new)
        before = self.files(old) if old is not None else {}
        found: list[FileChange] = []
        for path in sorted(before.keys() | entries.keys()):
            if path not in entries:
                found.append(FileChange(path=path, change="deleted", size=0))
            elif before.get(path) != entries[path]:
                change: Literal["modified", "added"] = "modified" if path in before else "added"
                found.append(FileChange(path=path, change=change, size=entries[path].size))
        return found

    def files(self, tree: str) -> dict[str, TreeEntry]:
        """All entries of `tree`, by path. Raises RecordUnreadable."""
        listing = self._git("ls-tree", "-r", "-z", "-l", "--full-tree", _object(tree))
        found: dict[str, TreeEntry] = {}
        for line in listing.decode("utf-8").split("\0")[:-1]:
            about, _, path = line.partition("\t")
            mode, _, blob, size = about.split()
            kind: Literal["file", "link"] = "link" if mode == "120000" else "file"
            found[path] = TreeEntry(kind, int(size), blob, mode == "100755")
        return found

    def read(self, tree: str, path: str, max_bytes: int = MAX_READ) -> bytes:
        """A file of `tree`. Raises UnsafeOutput where there is none, or a larger one, or a link."""
        entry = self.files(tree).get(path)
        if entry is None:
            raise UnsafeOutput(path, "is missing")
        if entry.kind != "file":
            raise UnsafeOutput(path, "is not a regular file but a link")
        if entry.size > max_bytes:
            raise UnsafeOutput(path, f"has {entry.size} bytes, more than the {max_bytes} allowed")
        return next(self._blobs([entry.blob]))

    def extract(self, tree: str) -> dict[str, bytes]:
        """Content of all regular files, by path, to be laid elsewhere.

        Links are left out, as they could lead anywhere there; `files` tells them.
        """
        regular = {path: e.blob for path, e in self.files(tree).items() if e.kind == "file"}
        return dict(zip(regular, self._blobs(regular.values()), strict=True))

    def _blobs(self, blobs: Iterable[str]) -> Iterator[bytes]:
        wanted = list(blobs)
        with tempfile.TemporaryFile() as names:
            names.write("".join(f"{blob}\n" for blob in wanted).encode())
            names.seek(0)
            data = self._git("cat-file", "--batch", stdin=names)
        at = 0
        for blob in wanted:
            # Header: id, kind, size; then the content and a line feed.
            end = data.index(b"\n", at)
            header = data[at:end].split()
            if header[:2] != [blob.encode(), b"blob"]:
                raise RecordUnreadable(f"{self.path} lacks the object {blob}.")
            at = end + 1 + int(header[2]) + 1
            yield data[end + 1 : at - 1]

    def _git(self, *arguments: str, stdin: IO[bytes] | None = None) -> bytes:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", f"--git-dir={self.path}", *settings, *arguments],
                stdin=stdin or subprocess.DEVNULL,
                capture_output=True,
                env=_ENVIRONMENT | {"PATH": os.environ.get("PATH", os.defpath)},
            )
        except FileNotFoundError as error:
            raise PreflightFailed("git is not installed: install it, e.g. by apt.") from error
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()
            if "No space left on device" in words:
                raise NotEnoughSpace(f"The disk of {self.path} is full; free some space.")
            raise RecordUnreadable(f"The history {self.path} can't be used: {words}.")
        return done.stdout


def _object(name: str) -> str:
    if not _OBJECT.fullmatch(name):
        raise RecordUnreadable(f"{name!r} is no id of a tree.")
    return name


@contextmanager
def viewing(engine: Engine, tools_image: str, volume: Volume, owner: Owner) -> Iterator[Pour]:
    """A volume for any number of snapshots of it, by one idle container that has it read-only."""
    mounts = (volume.at(WALKER[-1]),)
    spec = ContainerSpec(tools_image, owner.as_role("snapshot"), HELPER_LIMITS, mounts)
    with Container(engine, spec) as container:
        yield partial(_pour, container)


def _pour(container: Container, stream: IO[bytes]) -> list[Dropped]:
    try:
        ended = container.exec(
            WALKER,
            timeout_s=WALK_TIMEOUT_S,
            log_kb=WALK_LOG_KB,
            sink=stream.write,
            counted=False,
        )
    except OSError as error:
        raise NotEnoughSpace(f"The snapshot could not be written: {error}.") from error
    if not ended.succeeded:
        raise EngineRefused(
            f"The snapshot of a workspace failed ({ended.ending}): "
            f"{ended.stderr.text.strip()[-500:]}."
        )
    try:
        told = json.loads(ended.stderr.text)
    except ValueError as error:
        raise EngineRefused(f"The snapshot of a workspace tells nothing: {error}.") from error
    return [Dropped(path=path, reason=reason) for path, reason in told["skipped"]]
