"""A root image made from Debian packages, for machines where no image registry answers."""

import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.errors import ImageBuildFailed, ImageMissing

# Left out of the image: what differs between two builds, and what nothing inside reads.
LEFT_OUT = re.compile(
    r"^(dev|proc|sys|run|tmp)/."
    r"|^debootstrap(/|$)"
    r"|^var/(cache/apt/.|cache/debconf/.*-old$|cache/ldconfig/aux-cache|lib/apt/lists/.|log/.)"
    r"|^usr/share/(man|info|locale|lintian)/."
    r"|^usr/share/doc/[^/]+/(?!copyright$)"
    r"|^etc/(hostname|machine-id|resolv\.conf)$"
    r"|/__pycache__(/|$)"
)
HOST_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")


def available() -> str | None:
    """Why no root can be made here, as the end of a sentence; None when it can."""
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if os.geteuid() != 0:
        return "debootstrap needs root"
    return None


def mirror(os_release: str, sources: str) -> str | None:
    """The mirror this machine's own packages come from, where it is a Debian."""
    if not re.search(r'^ID="?debian"?$', os_release, re.MULTILINE):
        return None
    found = re.search(
        r"^(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s*(https?://[^\s@]+/debian)/?(?=\s|$)",
        sources,
        re.MULTILINE,
    )
    return found.group(1) if found else None


def _host_mirror() -> str | None:
    def text(path: str) -> str:
        return Path(path).read_text() if Path(path).is_file() else ""

    return mirror(text("/etc/os-release"), "\n".join(map(text, HOST_SOURCES)))


def make(suite: str, packages: Sequence[str], epoch: int, say: Callable[[str], None]) -> Path:
    """A tar of a minimal Debian with these packages; the caller removes the file.

    Order, owners and times in it depend on the packages only; no time is later than `epoch`.
    Raises ImageMissing when it can't be made here, ImageBuildFailed when making it failed.
    """
    reason = available()
    if reason:
        raise ImageMissing(f"no image registry answers, and {reason}; mend either of the two")
    with tempfile.TemporaryDirectory(prefix="orch-rootfs-") as folder:
        root = Path(folder) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
        command += [suite, str(root), *filter(None, [_host_mirror()])]
        _run(command, say)
        handle, name = tempfile.mkstemp(prefix="orch-rootfs-", suffix=".tar")
        with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w") as archive:
            for member, source in _members(root):
                info = archive.gettarinfo(source, member)
                info.mtime = min(int(info.mtime), epoch)
                info.uname = info.gname = ""
                if info.isreg():
                    with source.open("rb") as data:
                        archive.addfile(info, data)
                else:
                    archive.addfile(info)
    return Path(name)


def _run(command: Sequence[str], say: Callable[[str], None]) -> None:
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1])
    if process.returncode:
        tail = "\n".join(lines[-12:])
        raise ImageBuildFailed(f"debootstrap ended with {process.returncode}:\n{tail}")


def _members(root: Path) -> Iterator[tuple[str, Path]]:
    """What goes into the image, in an order of its own: folders, files and links, no devices."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(folder) / name
            member = path.relative_to(root).as_posix()
            wanted = path.is_symlink() or path.is_dir() or path.is_file()
            if wanted and not LEFT_OUT.search(member):
                yield member, path


def architecture() -> str:
    """The machine's architecture, part of what identifies a root made here."""
    return platform.machine()
