"""Write the regular files and links below a folder as git fast-import commands, to stdout.

Runs in a helper container, as `python3 -I -S walker.py FOLDER`, over a tree that may have been
laid to do harm: nothing is followed, nothing is opened that is not a regular file, and there is
an end to everything. What can't be kept is told as JSON on stderr:
`{"files": N, "bytes": N, "skipped": [[path, reason], ...]}`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import BinaryIO

MAX_FILE = 10 << 20
MAX_TOTAL = 200 << 20
MAX_ENTRIES = 20_000
MAX_DEPTH = 64
MAX_PATH = 2000
"""Bytes. What is kept is laid again below other folders; 4095 is all that a system takes."""
MAX_TOLD = 500
"""Of skipped entries; the rest is counted."""
MAX_TOLD_PATH = 200
"""Characters; all that is told has to fit into what is kept of stderr."""


class Walk:
    """The state of one walk."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.entries = 0
        self.files = 0
        self.bytes = 0
        self.skipped: list[list[str]] = []
        self.untold = 0

    def skip(self, path: bytes, reason: str) -> None:
        if len(self.skipped) < MAX_TOLD:
            name = path.decode("utf-8", "backslashreplace")
            self.skipped.append([name[:MAX_TOLD_PATH], reason])
        else:
            self.untold += 1

    def folder(self, fd: int, path: bytes, depth: int) -> None:
        names, more = self.names(fd)
        for name in names:
            self.entry(fd, name, path + b"/" + name if path else name, depth)
        if more:
            self.skip(path or b".", f"has more entries than the {MAX_ENTRIES} that are kept")

    def names(self, fd: int) -> tuple[list[bytes], bool]:
        """Names in a folder, in order, and whether there are more than may still be kept."""
        names: list[bytes] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if self.entries == MAX_ENTRIES:
                    return sorted(names), True
                self.entries += 1
                names.append(os.fsencode(entry.name))
        return sorted(names), False

    def entry(self, parent: int, name: bytes, path: bytes, depth: int) -> None:
        if name.lower() == b".git":
            self.skip(path, "is git's own")
            return
        try:
            path.decode("utf-8")
        except UnicodeDecodeError:
            self.skip(path, "has a name that is not UTF-8")
            return
        if len(path) > MAX_PATH:
            self.skip(path, f"has a path of more than {MAX_PATH} bytes")
            return
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                self.below(parent, name, path, depth)
            elif stat.S_ISLNK(found.st_mode):
                if name.lower() == b".gitmodules":
                    self.skip(path, "is a link that git refuses")
                    return
                self.keep(path, b"120000", os.readlink(name, dir_fd=parent))
            elif stat.S_ISREG(found.st_mode):
                self.regular(parent, name, path, found)
            else:
                self.skip(path, "is neither file, folder nor link")
        except OSError as error:
            self.skip(path, f"can't be read: {error.strerror}")

    def below(self, parent: int, name: bytes, path: bytes, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self.skip(path, f"lies deeper than {MAX_DEPTH} folders")
            return
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            self.folder(fd, path, depth + 1)
        finally:
            os.close(fd)

    def regular(self, parent: int, name: bytes, path: bytes, found: os.stat_result) -> None:
        if found.st_size > MAX_FILE:
            self.skip(path, f"has {found.st_size} bytes, more than the {MAX_FILE} that are kept")
            return
        if self.bytes + found.st_size > MAX_TOTAL:
            self.skip(path, f"comes after the {MAX_TOTAL} bytes that are kept in all")
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(name, flags, dir_fd=parent), "rb") as file:
            content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            self.skip(path, "grew while it was read")
            return
        mode = b"100755" if found.st_mode & stat.S_IXUSR else b"100644"
        self.keep(path, mode, content)

    def keep(self, path: bytes, mode: bytes, content: bytes) -> None:
        self.files += 1
        self.bytes += len(content)
        self.out.write(b"M %s inline %s\ndata %d\n" % (mode, quoted(path), len(content)))
        self.out.write(content)
        self.out.write(b"\n")


def quoted(path: bytes) -> bytes:
    """As fast-import reads a path: in quotes, C escapes for what would end it."""
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def main() -> None:
    walk = Walk(sys.stdout.buffer)
    root = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
    walk.folder(root, b"", 0)
    sys.stdout.buffer.flush()
    if walk.untold:
        walk.skipped.append(["...", f"and {walk.untold} more"])
    told = {"files": walk.files, "bytes": walk.bytes, "skipped": walk.skipped}
    # Not in ASCII, where a character takes up to twelve bytes.
    sys.stderr.buffer.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
