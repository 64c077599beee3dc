"""Files into the workspace without ever following a link: each folder is opened from its parent.

The workspace holds what a model wrote in earlier stages, so any part of a path may be a link.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Collection

from .paths import UnsafePath, safe_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

MAX_READ = 4 << 20
"""Bytes of a file that edits are made of; nobody writes a longer one by hand."""


class Refused(Exception):
    """The file was not written. `reason` is a code, the message says it to people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Workspace:
    """A context manager over the open root folder. What is in `read_only` (normal paths) is read
    only."""

    def __init__(self, root: str, read_only: Collection[str] = ()) -> None:
        self._root_path = root
        self._root = -1
        self._read_only = frozenset(read_only)

    def __enter__(self) -> Workspace:
        self._root = os.open(self._root_path, _FOLDER)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def write(self, path: str, text: str) -> str:
        """Write the whole file, replacing a regular one; returns its normal path.

        Raises Refused: the path is unsafe, something else stands there, it is read-only, or the
        disk is full.
        """
        normal = _normal(path)
        if normal in self._read_only:
            raise Refused("read-only-data", "is data that is only to be read")
        *folders, name = normal.split("/")
        folder = os.dup(self._root)
        try:
            for part in folders:
                folder = _enter(folder, part)
            _place(folder, name, encoded(text))
        except OSError as exc:
            raise _refusal(exc) from exc
        finally:
            os.close(folder)
        return normal

    def read(self, path: str) -> str | None:
        """The text of a file as it stands, None where there is none. Raises Refused."""
        *folders, name = _normal(path).split("/")
        folder = os.dup(self._root)
        try:
            for part in folders:
                inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            return _text(folder, name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise _refusal(exc) from exc
        finally:
            os.close(folder)


def encoded(text: str) -> bytes:
    """As it is written; half a surrogate pair, which UTF-8 can't hold, becomes `?`."""
    return text.encode("utf-8", "replace")


def _normal(path: str) -> str:
    try:
        return safe_path(path)
    except UnsafePath as exc:
        raise Refused("unsafe-path", str(exc)) from None


def _text(folder: int, name: str) -> str:
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused("unsafe-path", "is no regular file")
        data = file.read(MAX_READ + 1)
    if len(data) > MAX_READ:
        raise Refused("did-not-apply", f"is larger than {MAX_READ} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("did-not-apply", "is no text in UTF-8") from None


def _enter(folder: int, part: str) -> int:
    """Open (making it where needed) the folder `part` and close the one it lies in."""
    try:
        inner = os.open(part, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        os.mkdir(part, 0o755, dir_fd=folder)
        inner = os.open(part, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        # Linux says so of a link too when a folder is asked for.
        kind = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
        what = "a symbolic link" if stat.S_ISLNK(kind) else "a file"
        raise Refused("unsafe-path", f"has {what} ({part}) where a folder must be") from None
    os.close(folder)
    return inner


def _place(folder: int, name: str, data: bytes) -> None:
    try:
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISREG(kind):
            what = "a folder" if stat.S_ISDIR(kind) else "no regular file"
            raise Refused("unsafe-path", f"would replace what is {what}")
    temporary = f".{secrets.token_hex(8)}.part"
    descriptor = os.open(temporary, _NEW_FILE, 0o644, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _refusal(exc: OSError) -> Refused:
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refused("disk-full", "the workspace is full")
    if exc.errno == errno.ELOOP:
        return Refused("unsafe-path", "goes through a symbolic link")
    return Refused("not-written", f"could not be written: {exc.strerror}")
