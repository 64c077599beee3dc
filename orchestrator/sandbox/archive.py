"""Files in and out of containers by the engine's archive calls: no bind mounts, no code run."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from orchestrator.errors import UnsafeOutput
from orchestrator.sandbox.engine import Engine, translated

STAMP = 946684800
"""Modification time of all we lay (2000-01-01): the same everywhere, and valid in a zip."""
PIECE = 1 << 20
"""Bytes read at a time."""
STAT_HEADER = "X-Docker-Container-Path-Stat"

# Bits of Go's FileMode, which is what the engine sends.
_KINDS: dict[int, Kind] = {1 << 31: "directory", 1 << 27: "symlink"}
_SPECIAL = 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19
# The engine resolves a link before it says that it is one; the way to it is known to be folders.
_LEADS_NOWHERE = re.compile("too many l(?:inks|evels)|not a directory|file name too long")

Kind = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True)
class Entry:
    """What lies at a path. `size` is logical bytes: a sparse file shows what it pretends."""

    kind: Kind
    size: int
    mode: int
    """Permission bits."""
    link_target: str = ""


def entry_of(header: str) -> Entry:
    """The engine's path-stat header (base64 JSON) as an entry."""
    stat = json.loads(base64.b64decode(header))
    mode = int(stat["mode"])
    kind: Kind = "other" if mode & _SPECIAL else "file"
    for bit, name in _KINDS.items():
        if mode & bit:
            kind = name
    return Entry(kind, int(stat["size"]), mode & 0o777, str(stat.get("linkTarget", "")))


def relative(path: str) -> PurePosixPath:
    """A path inside a folder. Raises ValueError for an absolute, empty or climbing one."""
    clean = PurePosixPath(path)
    if not clean.parts or clean.is_absolute() or ".." in clean.parts or "\0" in path:
        raise ValueError(f"not a path inside a folder: {path!r}")
    return clean


@contextmanager
def packed(
    files: Mapping[str, bytes | Path],
    *,
    uid: int,
    mode: int = 0o644,
    below: str = "",
) -> Iterator[IO[bytes]]:
    """A tar of `files` (relative path → content or a file on the host), positioned at its start.

    Every folder on the way is an entry of its own, so that all belongs to `uid`. With `below`
    all lies under that folder, which gets an entry too.
    """
    folders: set[PurePosixPath] = set()
    with tempfile.TemporaryFile() as spool:
        with tarfile.open(fileobj=spool, mode="w", format=tarfile.PAX_FORMAT) as tar:

            def add_folder(folder: PurePosixPath) -> None:
                if folder.name and folder not in folders:
                    add_folder(folder.parent)
                    folders.add(folder)
                    info = _info(str(folder), uid, 0o755)
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)

            if below:
                add_folder(relative(below))
            for name in sorted(files):
                path = PurePosixPath(below) / relative(name)
                add_folder(path.parent)
                _add_file(tar, _info(str(path), uid, mode), files[name])
        spool.seek(0)
        yield spool


def _info(name: str, uid: int, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.uid = info.gid = uid
    info.mode = mode
    info.mtime = STAMP
    return info


def _add_file(tar: tarfile.TarFile, info: tarfile.TarInfo, content: bytes | Path) -> None:
    if isinstance(content, Path):
        with content.open("rb") as source:
            info.size = content.stat().st_size
            tar.addfile(info, source)
    else:
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def send(engine: Engine, container: str, target: str, tar: IO[bytes]) -> None:
    """Unpack `tar` at `target`, a folder of a volume that is mounted read-write there."""
    with translated(f"put files into {target}"):
        engine.api.put_archive(container, target, tar)


def stat(engine: Engine, container: str, path: str) -> Entry | None:
    """Look at `path` (absolute) without reading it; None where nothing lies.

    Raises UnsafeOutput where a folder on the way is not a real folder: the engine itself would
    follow a link there.
    """
    parents = PurePosixPath(path).parents
    for parent in reversed([p for p in parents if p.name]):
        entry = _head(engine, container, str(parent))
        if entry is None:
            return None
        if entry.kind != "directory":
            raise UnsafeOutput(path, f"lies under {parent}, which is a {entry.kind}")
    return _head(engine, container, path)


def _head(engine: Engine, container: str, path: str) -> Entry | None:
    api: Any = engine.api
    with translated(f"look at {path}"):
        url = api._url("/containers/{0}/archive", container)
        response = api.head(url, params={"path": path}, timeout=api.timeout)
        if response.status_code == 404:
            # A HEAD has no body: the status does not tell a missing path from a missing container.
            api.inspect_container(container)
            return None
        if response.status_code >= 400:
            # Asked again in the way that comes with a reason.
            with closing(api._get(url, params={"path": path}, stream=True)) as response:
                if response.status_code >= 400 and _LEADS_NOWHERE.search(response.text):
                    raise UnsafeOutput(path, "is a symlink that leads nowhere")
                api._raise_for_status(response)
        api._raise_for_status(response)
    return entry_of(response.headers[STAT_HEADER])


def read(engine: Engine, container: str, path: str, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most `max_bytes`. Raises UnsafeOutput for all else."""
    out = io.BytesIO()
    read_into(engine, container, path, max_bytes, out)
    return out.getvalue()


def read_into(engine: Engine, container: str, path: str, max_bytes: int, out: IO[bytes]) -> None:
    """Write to `out`, piece by piece, what `read` would give. Raises UnsafeOutput as it does."""
    entry = stat(engine, container, path)
    if entry is None:
        raise UnsafeOutput(path, "is missing")
    _check(path, entry.kind, entry.size, max_bytes)
    api: Any = engine.api
    copied = 0
    with translated(f"read {path}"):
        url = api._url("/containers/{0}/archive", container)
        plain = {"Accept-Encoding": "identity"}
        response = api._get(url, params={"path": path}, headers=plain, stream=True)
        try:
            api._raise_for_status(response)
            # What lies there can have changed since the look: the header is judged again.
            with tarfile.open(fileobj=response.raw, mode="r|") as tar:
                member = tar.next()
                if member is None:
                    raise UnsafeOutput(path, "is missing")
                _check(path, "file" if member.isreg() else "other", member.size, max_bytes)
                content = tar.extractfile(member)
                while content and (piece := content.read(PIECE)):
                    copied += out.write(piece)
        except tarfile.TarError as error:
            raise UnsafeOutput(path, f"could not be read: {error}") from error
        finally:
            # An unread stream holds the container's lock: everything else would hang.
            response.close()
    if copied != member.size:
        raise UnsafeOutput(path, "changed while it was read")


def _check(path: str, kind: Kind, size: int, max_bytes: int) -> None:
    if kind != "file":
        what = "something else" if kind == "other" else f"a {kind}"
        raise UnsafeOutput(path, f"is not a regular file but {what}")
    if size > max_bytes:
        raise UnsafeOutput(path, f"has {size} bytes, more than the {max_bytes} allowed")
