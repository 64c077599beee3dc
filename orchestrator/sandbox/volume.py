"""Volumes: always made explicitly and labelled, filled by archive, shared by content."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator.errors import EngineRefused, NotEnoughSpace, UnsafeOutput
from orchestrator.records.schema import Ending
from orchestrator.sandbox import archive
from orchestrator.sandbox.archive import Entry
from orchestrator.sandbox.container import Container, ContainerSpec, Mount, still
from orchestrator.sandbox.engine import Engine, translated
from orchestrator.sandbox.labels import COMPLETES, CONTENT, ROLE, SIZE, Owner, mark_of, new_name
from orchestrator.sandbox.limits import SANDBOX_UID, Limits

PLACE = "/volume"
HELPER_LIMITS = Limits(memory_mb=512, cpus=1, pids=32, wall_s=600, tmp_mb=16)
COPY_S = 60.0
"""For one volume of a holder: a gigabyte takes a second or two, but folders in one another take the
square of their depth, and a program nests them faster than that."""


@dataclass(frozen=True)
class Volume:
    """A named volume of the engine."""

    name: str

    def at(self, target: str, *, read_only: bool = True) -> Mount:
        """Mounted at `target`."""
        return Mount(self.name, target, read_only)


def create(engine: Engine, owner: Owner, *, size_mb: int | None = None) -> Volume:
    """A new volume. With `size_mb` it can't grow beyond that: a tmpfs of the sandbox's user,
    which keeps its content only while some running container mounts it (see `Scratch`)."""
    options: dict[str, str] = {}
    if size_mb is not None:
        place = f"size={size_mb}m,uid={SANDBOX_UID},gid={SANDBOX_UID},mode=0755"
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"{place},nosuid,nodev"}
    made = _create(engine, new_name(owner.role), owner.labels(), options)
    if options:
        engine.root_owner[made.name] = str(SANDBOX_UID)
    return made


def shared(engine: Engine, name: str, role: str) -> Volume:
    """The volume of that very name, made when it is not there; it outlives trials."""
    return _create(engine, name, Owner(trial="", role=role).labels(), {})


def host_folder(engine: Engine, path: Path, owner: Owner) -> Volume:
    """A volume that is a folder of the engine's own host. Removing it leaves the folder alone.

    A folder that does not exist shows when a container with it starts: EngineRefused.
    """
    options = {"type": "none", "o": "bind", "device": str(path)}
    made = _create(engine, new_name(owner.role), owner.labels(), options)
    if options:
        engine.root_owner[made.name] = str(SANDBOX_UID)
    return made


def _create(engine: Engine, name: str, labels: dict[str, str], options: dict[str, str]) -> Volume:
    api: Any = engine.api
    with translated("create a volume"):
        api.create_volume(name, driver="local", driver_opts=options, labels=labels)
    return Volume(name)


def remove(engine: Engine, volume: Volume) -> None:
    """Fine if it is gone already; raises EngineRefused while a container mounts it."""
    engine.remove_volume(volume.name)


def fill(
    engine: Engine,
    tools_image: str,
    volume: Volume,
    files: Mapping[str, bytes | Path],
    owner: Owner,
) -> None:
    """Lay `files` (relative path → content, or a file of the host) into `volume`.

    No code runs. All of it, the volume's root too, belongs to the sandbox's user.
    """
    with (
        archive.packed(files, uid=SANDBOX_UID, below=PLACE.strip("/")) as tar,
        still(
            engine, tools_image, owner.as_role("fill"), (volume.at(PLACE, read_only=False),)
        ) as c,
    ):
        archive.send(engine, c, "/", tar)
    engine.root_owner[volume.name] = str(SANDBOX_UID)


class Scratch:
    """Capped volumes, by name, and the one idle container that keeps them; a context manager.

    Files go in and out through that holder, also while other containers mount the volumes.
    `sizes_mb` says how much each may hold; `beside` are volumes that can be copied from.
    """

    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        tools_image: str,
        sizes_mb: Mapping[str, int],
        *,
        beside: Mapping[str, Volume] | None = None,
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._image = tools_image
        self._sizes_mb = sizes_mb
        self._beside = beside or {}
        self._volumes: dict[str, Volume] = {}
        self._holder: Container | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Scratch:
        with ExitStack() as stack:
            for name, size_mb in self._sizes_mb.items():
                made = create(self._engine, self._owner.as_role(name), size_mb=size_mb)
                stack.callback(remove, self._engine, made)
                self._volumes[name] = made
            mounts = [one.at(_place(name), read_only=False) for name, one in self._volumes.items()]
            mounts += [one.at(_place(name)) for name, one in self._beside.items()]
            # What the holder copies into a capped volume counts as its own memory.
            memory_mb = HELPER_LIMITS.memory_mb
            if self._beside:
                memory_mb += sum(self._sizes_mb.values())
            spec = ContainerSpec(
                self._image,
                self._owner.as_role(f"hold-{self._owner.role}"),
                HELPER_LIMITS.model_copy(update={"memory_mb": memory_mb}),
                mounts=tuple(mounts),
            )
            self._holder = stack.enter_context(Container(self._engine, spec))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _held(self) -> Container:
        if self._holder is None:
            raise EngineRefused("A scratch volume was used outside its `with` block.")
        return self._holder

    def volume(self, name: str) -> Volume:
        return self._volumes[name]

    def put(self, name: str, files: Mapping[str, bytes | Path], *, mode: int = 0o644) -> None:
        """Raises UnsafeOutput when they don't fit."""
        try:
            self._held().put(_place(name), files, mode=mode)
        except NotEnoughSpace as error:
            size_mb = self._sizes_mb[name]
            raise UnsafeOutput(
                self.volume(name).name,
                f"can't hold the files: they need more than {size_mb} MiB",
            ) from error

    def get(self, name: str, path: str, max_bytes: int) -> bytes:
        """The bytes of the regular file at relative `path`. Raises UnsafeOutput."""
        return self._held().get(f"{_place(name)}/{archive.relative(path)}", max_bytes)

    def stat(self, name: str, path: str) -> Entry | None:
        """What lies at relative `path`, unread. Raises UnsafeOutput below a link."""
        return self._held().stat(f"{_place(name)}/{archive.relative(path)}")

    def copy(self, origin: str, target: str) -> None:
        """All that the sandbox's user can read of one volume into another. Raises EngineRefused
        where that takes too long; the holder has ended then."""
        self._run("/bin/cp", "-a", f"{_place(origin)}/.", _place(target))

    def clear(self, name: str) -> None:
        """Free what it holds, as far as the sandbox's user can."""
        self._run("/usr/bin/find", _place(name), "-mindepth", "1", "-delete")

    def _run(self, *argv: str) -> None:
        ended = self._held().exec(argv, timeout_s=COPY_S, counted=False)
        if ended.ending is Ending.TIMEOUT:
            raise EngineRefused(f"The files of a workspace took longer than {COPY_S:g} s to copy.")


def _place(name: str) -> str:
    """Where the holder has a volume."""
    return f"{PLACE}/{name}"


_building: dict[str, threading.Lock] = {}


def cached(
    engine: Engine,
    tools_image: str,
    key: str,
    role: str,
    build: Callable[[Volume], int | None],
) -> Volume:
    """The volume of `role` with the content that `key` stands for, built when there is none.

    `build` gets an empty volume that belongs to the sandbox's user, and fills it; it may give the
    bytes that it filled in.
    A volume counts only once its mark, a second and empty volume, is there; so what a killed
    process left half done is never used. Two processes that build at once each build their own,
    and the one whose mark comes later removes its own. To be mounted read-only.
    """
    content = hashlib.sha256(f"{role}\0{key}".encode()).hexdigest()
    owner = Owner(trial="", role=role)
    labels = owner.labels() | {CONTENT: content}
    with _building.setdefault(content, threading.Lock()):
        found = _complete(engine, content)
        if found is not None:
            return found
        volume = _create(engine, new_name(role), labels, {})
        try:
            fill(engine, tools_image, volume, {}, owner)
            size = build(volume)
        except BaseException:
            remove(engine, volume)
            raise
        _create(
            engine,
            mark_of(volume.name),
            labels | {COMPLETES: volume.name, SIZE: str(size or 0)},
            {},
        )
        first = _complete(engine, content) or volume
        if first != volume:
            remove(engine, volume)
        return first


def exists(engine: Engine, volume: Volume) -> bool:
    with translated("list volumes"):
        listed = engine.api.volumes(filters={"name": volume.name})["Volumes"] or []
    return any(item["Name"] == volume.name for item in listed)


def complete_ones(engine: Engine, role: str) -> dict[Volume, int]:
    """Complete cache volumes of a role → bytes, 0 where they were not measured."""
    with translated("list volumes"):
        listed = engine.api.volumes(filters={"label": f"{ROLE}={role}"})["Volumes"] or []
    names = {item["Name"] for item in listed}
    return {
        Volume(item["Labels"][COMPLETES]): int(item["Labels"].get(SIZE, 0))
        for item in listed
        if item["Labels"].get(COMPLETES) in names
    }


def _complete(engine: Engine, content: str) -> Volume | None:
    """The complete volume whose mark is oldest."""
    with translated("list volumes"):
        listed = engine.api.volumes(filters={"label": f"{CONTENT}={content}"})["Volumes"] or []
    names = {item["Name"] for item in listed}
    marks = sorted(
        (item["CreatedAt"], item["Labels"][COMPLETES])
        for item in listed
        if item["Labels"].get(COMPLETES) in names
    )
    return Volume(marks[0][1]) if marks else None
