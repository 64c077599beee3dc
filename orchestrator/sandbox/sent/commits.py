"""The commits of a repository that may have been laid to do harm, as JSON on stdout.

Runs as `python3 -I -S -c TEXT FOLDER`, FOLDER being a work tree. Prints `[[id, subject], ...]`,
newest first. git never sees that repository's settings, which can run commands: it reads the
objects from a bare repository made here. HEAD is read without it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 200
LONGEST = 200
"""Characters of a subject."""
TIMEOUT_S = 30
_ID = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"refs/heads/[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")


def small_file(path: Path) -> str:
    """Text of a regular file, without following a link; "" for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return file.read(1 << 20).decode("utf-8", "replace").strip()


def head(folder: Path) -> str:
    """Id of the commit that HEAD is at; "" where there is none."""
    said = small_file(folder / "HEAD")
    if _ID.fullmatch(said):
        return said
    ref = said.removeprefix("ref: ")
    if not _REF.fullmatch(ref) or ".." in ref:
        return ""
    loose = small_file(folder / ref)
    if _ID.fullmatch(loose):
        return loose
    packed = small_file(folder / "packed-refs").splitlines()
    return next((line[:40] for line in packed if line[40:] == f" {ref}"), "")


def commits(folder: Path) -> list[list[str]]:
    start = head(folder)
    if not _ID.fullmatch(start):
        return []
    with tempfile.TemporaryDirectory() as own:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": own,
            "GIT_DIR": own,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(folder / "objects"),
        }

        def git(*arguments: str) -> bytes:
            return subprocess.run(
                ["git", *arguments],
                env=environment,
                capture_output=True,
                check=True,
                timeout=TIMEOUT_S,
            ).stdout

        git("init", "--bare", "--quiet", "--template=")
        try:
            log = git("log", "-z", f"--max-count={MOST}", "--format=%H %s", start)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return []
    lines = log.decode("utf-8", "replace").split("\0")
    return [[line[:40], line[41:][:LONGEST]] for line in lines if line]


if __name__ == "__main__":
    json.dump(commits(Path(sys.argv[1], ".git")), sys.stdout)
