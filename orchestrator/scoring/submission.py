"""Which files of a submission are scored, and reading them from a folder of the host."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.errors import SubmissionNotFound

BUILT_SUFFIXES = frozenset(
    {
        ".bin", ".bst", ".cbm", ".ckpt", ".dill", ".feather", ".gz", ".h5", ".hdf5", ".joblib",
        ".keras", ".model", ".npy", ".npz", ".onnx", ".parquet", ".pb", ".pickle", ".pkl", ".pt",
        ".pth", ".pyc", ".pyd", ".safetensors", ".so", ".tflite", ".ubj", ".xz", ".zip", ".zst",
    }
)  # fmt: skip
WRITTEN_SUFFIXES = frozenset(
    {".cfg", ".csv", ".ini", ".json", ".md", ".py", ".rst", ".toml", ".txt", ".yaml", ".yml"}
)
BUILT_FOLDERS = frozenset({"__pycache__", ".ipynb_checkpoints", ".pytest_cache"})
SKIPPED_FOLDERS = BUILT_FOLDERS | {".git", ".venv", "venv", "node_modules"}
SNIFFED = 8192
MAX_FILES = 5000
MAX_FILE_BYTES = 10 << 20
MAX_BYTES = 200 << 20
MAX_DEPTH = 64
MAX_PATH_BYTES = 2000
"""A path has to be laid again below another folder, and 4095 bytes is all that a system takes."""


def is_built(path: str, content: bytes) -> bool:
    """Whether a file is an artifact that a program built rather than something written.

    By folder, then by suffix; a file with neither kind of suffix counts as built when its first
    bytes are no text. A model saved as JSON or plain text can't be told and stays.
    """
    pure = PurePosixPath(path)
    if BUILT_FOLDERS.intersection(pure.parts[:-1]):
        return True
    suffix = pure.suffix.lower()
    if suffix in BUILT_SUFFIXES:
        return True
    if suffix in WRITTEN_SUFFIXES:
        return False
    head = content[:SNIFFED]
    if b"\0" in head:
        return True
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character that the cut split is no sign of anything.
        return error.start < len(head) - 4
    return False


def without_built(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What scoring starts from: a stale model file can't score."""
    return {path: content for path, content in files.items() if not is_built(path, content)}


@dataclass(frozen=True)
class Folder:
    """A submission read from the host. `skipped` maps paths to the reason they were left out."""

    files: dict[str, bytes]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> str:
        """Identity by content, as snapshots have theirs."""
        digest = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0")
            digest.update(hashlib.sha256(content).digest())
        return f"sha256:{digest.hexdigest()}"


def read_folder(folder: Path) -> Folder:
    """A submission's files, never through a link, never more than limits allow.

    Raises SubmissionNotFound when there is no such folder or nothing in it to score.
    """
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SubmissionNotFound(
            f"{folder}: {(error.strerror or str(error)).lower()}; give a folder that holds a "
            "submission"
        ) from None
    try:
        found = _collected(root, folder)
    finally:
        os.close(root)
    if not found.files:
        raise SubmissionNotFound(f"{folder}: holds no file to score")
    return found


def _collected(root: int, folder: Path) -> Folder:
    files: dict[str, bytes] = {}
    skipped: dict[str, str] = {}
    total = 0
    for path, content in _walk(root, ()):
        if isinstance(content, str):
            skipped[path] = content
            continue
        files[path] = content
        total += len(content)
        if len(files) > MAX_FILES or total > MAX_BYTES:
            # Without some of its files it would be another submission.
            raise SubmissionNotFound(
                f"{folder}: holds more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB; "
                "give one that holds a submission and nothing else"
            )
    return Folder(files, skipped)


def _walk(folder: int, parents: tuple[str, ...]) -> Iterator[tuple[str, bytes | str]]:
    """(path, content or why it is left out), in order of names; `folder` is an open descriptor."""
    for name in sorted(os.listdir(folder)):
        place = (*parents, name)
        path = "/".join(place)
        try:
            size = len(path.encode())
        except UnicodeEncodeError:
            yield ascii(path)[1:-1], "its name is not UTF-8"
            continue
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if size > MAX_PATH_BYTES:
                yield path, f"its path is longer than {MAX_PATH_BYTES} bytes"
            elif stat.S_ISDIR(kind):
                yield from _below(folder, place)
            elif stat.S_ISREG(kind):
                yield path, _content(folder, name)
            else:
                yield path, "a symbolic link" if stat.S_ISLNK(kind) else "no regular file"
        except OSError as error:
            yield path, (error.strerror or str(error)).lower()


def _below(folder: int, place: tuple[str, ...]) -> Iterator[tuple[str, bytes | str]]:
    if place[-1] in SKIPPED_FOLDERS:
        yield "/".join(place), "a folder that is not part of a submission"
        return
    if len(place) > MAX_DEPTH:
        yield "/".join(place), f"lies deeper than {MAX_DEPTH} folders"
        return
    inner = os.open(place[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        yield from _walk(inner, place)
    finally:
        os.close(inner)


def _content(folder: int, name: str) -> bytes | str:
    # Not following and not waiting: what was a file a moment ago may be a link or a pipe now.
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return "no regular file"
        content = opened.read(MAX_FILE_BYTES + 1)
    return f"larger than {MAX_FILE_BYTES >> 20} MiB" if len(content) > MAX_FILE_BYTES else content
