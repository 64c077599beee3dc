"""One container: entering creates and starts it, leaving removes it, work comes by exec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from orchestrator.errors import ContainerLost, EngineRefused, EngineUnavailable, OrchError
from orchestrator.sandbox import archive
from orchestrator.sandbox import exec as execution
from orchestrator.sandbox.archive import Entry
from orchestrator.sandbox.engine import Engine, translated
from orchestrator.sandbox.exec import STDERR, STDOUT, Command, Counters, Ended, Sink, Streams
from orchestrator.sandbox.labels import Owner, new_name
from orchestrator.sandbox.limits import MIB, SANDBOX_UID, Limits

SANDBOX_USER = f"{SANDBOX_UID}:{SANDBOX_UID}"
KEEPER_USER = execution.READER_USER
"""Owns the idle process, so that a program that kills all it can does not end its container."""
IDLE = ("/bin/sleep", "infinity")
"""By its path, as all that is ours: what PATH names first may come from a submission's packages."""
KILL_WAIT_S = 30
ENDING_S = 5
"""For a container that is ending by itself to have ended."""
SPARE_BYTES = 32 * MIB
SPARE_PIDS = 16
"""What starting one more process in a container takes at most."""


@dataclass(frozen=True)
class Mount:
    volume: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Gpu:
    """GPUs to hand in: by `device_ids`, or `count` of them (-1: all).

    `legacy` asks the NVIDIA runtime hook, `cdi` names CDI devices (`nvidia.com/gpu=0`).
    """

    mode: Literal["legacy", "cdi"] = "legacy"
    count: int = -1
    device_ids: tuple[str, ...] = ()

    def requests(self) -> list[dict[str, object]]:
        """As the engine's API wants it."""
        if self.mode == "cdi":
            names = self.device_ids or ("nvidia.com/gpu=all",)
            return [{"Driver": "cdi", "DeviceIDs": list(names)}]
        request: dict[str, object] = {"Driver": "nvidia", "Capabilities": [["gpu"]]}
        if self.device_ids:
            return [request | {"DeviceIDs": list(self.device_ids)}]
        return [request | {"Count": self.count}]


@dataclass(frozen=True)
class Hardening:
    """What closes a container. Each can be lifted by itself, to show that it is what holds.

    `host_config` is laid over what the engine is told last of all.
    """

    drop_capabilities: bool = True
    no_new_privileges: bool = True
    read_only_root: bool = True
    memory: bool = True
    pids: bool = True
    ulimits: bool = True
    host_config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ContainerSpec:
    """A container to be. `network` None: none at all; `command` None: idle under an init."""

    image: str
    owner: Owner
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    user: str = SANDBOX_USER
    workdir: str = "/"
    command: tuple[str, ...] | None = None
    gpu: Gpu | None = None
    runtime: str | None = None
    """Name of a runtime of the engine; None: its default."""
    hardening: Hardening = Hardening()


def config(spec: ContainerSpec) -> dict[str, Any]:
    """`spec` as the body of the engine's create call."""
    limits, hard = spec.limits, spec.hardening
    host: dict[str, Any] = {
        "Init": True,
        # Output comes by the attached stream of each exec; a log would double it on the disk.
        "LogConfig": {"Type": "none"},
        "NetworkMode": spec.network or "none",
        "NanoCpus": int(limits.cpus * 1_000_000_000),
        "ShmSize": limits.shm_mb * MIB,
        "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_mb}m"},
        "Mounts": [
            {
                "Type": "volume",
                "Source": mount.volume,
                "Target": mount.target,
                "ReadOnly": mount.read_only,
                "VolumeOptions": {"NoCopy": True},
            }
            for mount in spec.mounts
        ],
    }
    if hard.drop_capabilities:
        host["CapDrop"] = ["ALL"]
    if hard.no_new_privileges:
        host["SecurityOpt"] = ["no-new-privileges"]
    if hard.read_only_root:
        host["ReadonlyRootfs"] = True
    if hard.memory:
        host["Memory"] = host["MemorySwap"] = limits.memory_mb * MIB
    if hard.pids:
        host["PidsLimit"] = limits.pids
    if hard.ulimits:
        caps = {"nofile": limits.nofile, "fsize": limits.fsize_mb * MIB, "core": 0}
        host["Ulimits"] = [{"Name": n, "Soft": cap, "Hard": cap} for n, cap in caps.items()]
    if spec.runtime is not None:
        host["Runtime"] = spec.runtime
    if spec.gpu is not None:
        host["DeviceRequests"] = spec.gpu.requests()
    return {
        "Image": spec.image,
        "User": KEEPER_USER if spec.command is None else spec.user,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        # The idle process stays at the root: a folder that is missing would have to be made.
        "WorkingDir": "/" if spec.command is None else spec.workdir,
        # Of the image only the files count, not what it would start, check or mount by itself.
        "Entrypoint": [],
        "Healthcheck": {"Test": ["NONE"]},
        "Cmd": list(spec.command or IDLE),
        "Labels": spec.owner.labels(),
        "HostConfig": host | dict(hard.host_config),
    }


class Container:
    """A context manager; nothing of the container is left once it is left, however that is."""

    def __init__(self, engine: Engine, spec: ContainerSpec) -> None:
        self.engine = engine
        self.spec = spec
        self.name = new_name(spec.owner.role)
        self.id = self.name
        self._stopped = False
        self._oom_kills: int | None = 0
        self._oom_flag = False

    def __enter__(self) -> Container:
        """Raises ImageMissing, GpuUnavailable, NotEnoughSpace and the engine's errors."""
        try:
            _give_roots(self.engine, self.spec)
            self.id = _create(self.engine, self.spec, self.name)
            with translated("start a container"):
                self.engine.api.start(self.id)
        except BaseException:
            # By name: an interrupt can come between the engine's act and its answer.
            self.engine.remove_container(self.id)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.engine.remove_container(self.id)
        except OrchError:
            # What made us leave says more than what followed from it.
            if error is None:
                raise

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        workdir: str | None = None,
        log_kb: int | None = None,
        user: str | None = None,
        sink: Sink | None = None,
        counted: bool = True,
    ) -> Ended:
        """Run `argv` to its end, at most `timeout_s`; then the whole container is killed.

        `sink` gets each chunk of stdout, in a thread of its own, whatever `log_kb` keeps; it must
        not wait for long. What it raises is raised here once the command has ended.
        `counted` False, for helpers of ours: without the kernel's figures, which take a second
        command to read.
        Raises ContainerLost, EngineUnavailable, EngineRefused.
        """
        command = Command(
            argv=argv,
            timeout_s=timeout_s,
            log_kb=log_kb or self.spec.limits.log_kb,
            user=user or self.spec.user,
            env=env or {},
            stdin=stdin,
            workdir=workdir or self.spec.workdir,
            sink=sink,
        )
        exec_id = execution.create(self.engine, self.id, command)
        streams = Streams(self.engine, exec_id, command)
        try:
            outcome = execution.follow(self.engine, exec_id, streams, timeout_s)
            counters = self._counters() if counted else Counters()
            if not outcome.timed_out:
                streams.settle()
        finally:
            streams.close()
        if outcome.timed_out:
            self.stop()
        oom_kills = self._fresh_oom_kills(counters.oom_kills) if counted else None
        state = self._state()
        oom_flag = bool(state["OOMKilled"]) and not self._oom_flag
        self._oom_flag = bool(state["OOMKilled"])
        ending = execution.judge(
            outcome,
            oom_kills=oom_kills,
            oom_flag=oom_flag,
            running=bool(state["Running"]) or self._stopped,
        )
        if ending is None:
            raise ContainerLost(
                f"Container {self.name} ended that we had not stopped "
                f"(exit code {state['ExitCode']})."
            )
        if streams.broken:
            raise EngineUnavailable("The container engine broke off the output of a command.")
        if streams.sink_error is not None:
            raise streams.sink_error
        return Ended(
            ending=ending,
            exit_code=outcome.exit_code,
            duration_s=outcome.duration_s,
            peak_memory_bytes=counters.peak_bytes,
            oom_kills=oom_kills,
            stdout=streams.captures[STDOUT].captured(),
            stderr=streams.captures[STDERR].captured(),
            raw_stdout=streams.captures[STDOUT].raw(),
        )

    def _counters(self) -> Counters:
        """The kernel's figures, read so that the reading itself never meets a limit.

        Files on a tmpfs can fill a container's memory for good, and children that outlive their
        parent its processes: nothing more starts in it then.
        """
        engine, limits, hard = self.engine, self.spec.limits, self.spec.hardening
        memory = limits.memory_mb * MIB if hard.memory else None
        pids = limits.pids if hard.pids else None
        used = execution.usage(engine, self.id)
        roomy = (memory is None or used.memory_bytes <= memory - SPARE_BYTES) and (
            pids is None or used.pids <= pids - SPARE_PIDS
        )
        if roomy:
            return execution.read_counters(engine, self.id)
        try:
            execution.set_limits(
                engine,
                self.id,
                None if memory is None else memory + SPARE_BYTES,
                None if pids is None else pids + SPARE_PIDS,
            )
        except EngineRefused:
            # Its idle process, too, can be what the kernel ends for memory: its state will tell.
            with suppress(OrchError), translated("wait for a container"):
                engine.api.wait(self.id, timeout=ENDING_S)
            return Counters()
        counters = execution.read_counters(engine, self.id)
        # Refused where files hold more than that by now.
        with suppress(EngineRefused):
            execution.set_limits(engine, self.id, memory, pids)
        peak = counters.peak_bytes
        if peak is not None and memory is not None:
            peak = min(peak, memory)
        return Counters(counters.oom_kills, peak)

    def _fresh_oom_kills(self, total: int | None) -> int | None:
        """Kills since the last command, out of the counter's total."""
        before, self._oom_kills = self._oom_kills, total
        return None if total is None or before is None else total - before

    def _state(self) -> dict[str, Any]:
        with translated("look at a container"):
            state: dict[str, Any] = self.engine.api.inspect_container(self.id)["State"]
        return state

    @property
    def running(self) -> bool:
        """Raises ContainerLost when it is gone."""
        return bool(self._state()["Running"])

    def put(
        self,
        target: str,
        files: Mapping[str, bytes | Path],
        *,
        uid: int = SANDBOX_UID,
        mode: int = 0o644,
    ) -> None:
        """Lay `files` (path below `target` → content, or a file of the host) into a volume.

        `target` is a folder of a volume that is mounted read-write; nothing else can be written.
        """
        with archive.packed(files, uid=uid, mode=mode) as tar:
            archive.send(self.engine, self.id, target, tar)

    def get(self, path: str, max_bytes: int) -> bytes:
        """The bytes of a regular file in a volume. Raises UnsafeOutput for anything else."""
        return archive.read(self.engine, self.id, path, max_bytes)

    def get_into(self, path: str, max_bytes: int, out: IO[bytes]) -> None:
        """As `get`, written to `out` piece by piece."""
        archive.read_into(self.engine, self.id, path, max_bytes, out)

    def stat(self, path: str) -> Entry | None:
        """What lies at `path`, unread; None: nothing. Raises UnsafeOutput below a link."""
        return archive.stat(self.engine, self.id, path)

    def stop(self) -> None:
        """Kill, no grace; its volumes can still be read. Fine if it has ended already."""
        self._stopped = True
        try:
            with translated("kill a container"):
                self.engine.api.kill(self.id)
                self.engine.api.wait(self.id, timeout=KILL_WAIT_S)
        except ContainerLost:
            pass


def _give_roots(engine: Engine, spec: ContainerSpec) -> None:
    """Make the user of `spec` own the root of each volume it may write to.

    The engine creates volumes as root's. A container that never starts (its root is writable,
    which an archive into `/` needs) passes them on, once for each volume.
    """
    uid, _, _ = spec.user.partition(":")
    fresh = [
        mount.volume
        for mount in spec.mounts
        if not mount.read_only and engine.root_owner.get(mount.volume) != uid
    ]
    if not fresh or not uid.isdigit():
        return
    places = {volume: f"volume{number}" for number, volume in enumerate(fresh)}
    mounts = tuple(Mount(volume, f"/{place}", False) for volume, place in places.items())
    with still(engine, spec.image, spec.owner, mounts) as container:
        for volume, place in places.items():
            with archive.packed({}, uid=int(uid), below=place) as tar:
                archive.send(engine, container, "/", tar)
            engine.root_owner[volume] = uid


@contextmanager
def still(engine: Engine, image: str, owner: Owner, mounts: tuple[Mount, ...]) -> Iterator[str]:
    """The name of a container that never starts: a way into volumes that runs no code."""
    spec = ContainerSpec(image, owner, mounts=mounts, hardening=Hardening(read_only_root=False))
    name = new_name(owner.role)
    try:
        _create(engine, spec, name)
        yield name
    finally:
        engine.remove_container(name)


def _create(engine: Engine, spec: ContainerSpec, name: str) -> str:
    api: Any = engine.api
    for mount in spec.mounts:
        # The engine would make a missing one anew, empty, and its content would seem never written.
        with translated(f"mount the volume {mount.volume}, which somebody removed"):
            api.inspect_volume(mount.volume)
    with translated("create a container"):
        return str(api.create_container_from_config(config(spec), name)["Id"])


def run_step(
    engine: Engine,
    spec: ContainerSpec,
    argv: Sequence[str],
    *,
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    counted: bool = True,
) -> Ended:
    """One fresh container, one command, removed. `timeout_s` None: the limits' wall time."""
    wall_s = timeout_s or spec.limits.wall_s
    with Container(engine, spec) as container:
        return container.exec(argv, timeout_s=wall_s, env=env, stdin=stdin, counted=counted)
