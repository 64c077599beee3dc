"""Checks of the machine and its engine: judgements over facts, without effects."""

from __future__ import annotations

from datetime import UTC, timedelta
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel

from orchestrator.models.ollama import GIB
from orchestrator.models.relay import is_loopback
from orchestrator.sandbox.engine import EngineInfo
from orchestrator.trial.facts import EngineFacts, Facts, HostFacts, Needs, size

PYTHONS = ((3, 11), (3, 13))
"""Oldest and newest minor version that the tests run on."""
WORKING_BYTES = 3 * GIB
"""Disk a trial takes besides images: data volume, environments, workspaces of one run."""
SKEW = timedelta(seconds=30)
GOOD_DRIVERS = ("overlay2", "overlayfs", "btrfs", "zfs", "fuse-overlayfs")


GVISOR = "runsc"


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(BaseModel):
    """One finding. `mend` is empty where there is nothing to do."""

    name: str
    status: Status
    found: str
    mend: str = ""

    @classmethod
    def ok(cls, name: str, found: str) -> Check:
        return cls(name=name, status=Status.OK, found=found)

    @classmethod
    def warn(cls, name: str, found: str, mend: str) -> Check:
        return cls(name=name, status=Status.WARN, found=found, mend=mend)

    @classmethod
    def fail(cls, name: str, found: str, mend: str = "") -> Check:
        return cls(name=name, status=Status.FAIL, found=found, mend=mend)


def python(host: HostFacts) -> Check:
    found = ".".join(map(str, host.python))
    oldest, newest = PYTHONS
    if host.python[:2] < oldest:
        mend = f"use Python {oldest[0]}.{oldest[1]} or newer"
        return Check.fail("python", found, mend)
    if host.python[:2] > newest:
        mend = f"if anything is odd, use Python {newest[0]}.{newest[1]}"
        found += f", newer than what is tested ({newest[0]}.{newest[1]})"
        return Check.warn("python", found, mend)
    return Check.ok("python", found)


def clock(facts: Facts) -> Check:
    now = facts.host.now.astimezone(UTC)
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    mend = "set the clock (an NTP service does it); a wrong one makes TLS fail"
    if now < facts.host.own_files - timedelta(days=1):
        found = f"{shown}, which is before orch's own files were written"
        return Check.fail("clock", found, mend)
    there = facts.engine.info.system_time if facts.engine else None
    ahead = there - facts.engine.asked_at if there and facts.engine else timedelta()
    if abs(ahead) > SKEW:
        found = f"{shown}, the engine's is {ahead.total_seconds():+.0f} s off"
        mend = "set both clocks; a virtual machine's often stops while the host sleeps: restart it"
        return Check.warn("clock", found, mend)
    return Check.ok("clock", shown)


def records(host: HostFacts) -> Check:
    if host.runs_problem:
        found = f"{host.runs_dir}: {host.runs_problem}"
        mend = "make it writable, or set home in orch.toml or ORCH_HOME"
        return Check.fail("records", found, mend)
    found = f"{host.runs_dir}, {size(host.runs_free_bytes)} free"
    if host.runs_free_bytes < GIB // 2:
        mend = "free some; a run keeps a few MiB, the data of a task about 100"
        return Check.warn("records", found, mend)
    return Check.ok("records", found)


def tasks(facts: Facts) -> Check:
    if facts.tasks_problem:
        mend = "correct that file, or take its folder out of the tasks"
        return Check.fail("tasks", facts.tasks_problem, mend)
    return Check.ok("tasks", ", ".join(facts.tasks) or "none")


def network(host: HostFacts) -> Check:
    """CA bundle and proxies, as builds and dependency installs in containers will use them."""
    shown = {name: _without_password(value) for name, value in host.proxies.items()}
    via = ", ".join(f"{name}={value}" for name, value in shown.items()) or "no proxy"
    found = f"CA bundle {host.ca_bundle}; {via}"
    if host.ca_missing:
        name, path = next(iter(host.ca_missing.items()))
        found = f"{name} names {path}, which is no file; using {host.ca_bundle}; {via}"
        mend = f"correct or unset {name}"
        return Check.warn("network", found, mend)
    local = [name for name, value in host.proxies.items() if _is_local_proxy(name, value)]
    if local:
        mend = (
            f"a container can't reach a proxy on this machine's loopback: let {local[0]} name "
            "an address that containers reach"
        )
        return Check.warn("network", found, mend)
    return Check.ok("network", found)


def engine(info: EngineInfo) -> Check:
    found = f"Docker {info.version}, API {info.api}, {info.operating_system}"
    return Check.ok("engine", found)


def storage(info: EngineInfo) -> Check:
    found = f"{info.storage_driver} under {info.root_dir}"
    if info.storage_driver in GOOD_DRIVERS:
        return Check.ok("storage", found)
    mend = "overlay2 is faster and smaller: set storage-driver in the engine's daemon.json"
    return Check.warn("storage", found, mend)


def space(engine: EngineFacts) -> Check:
    missing = sum(image.needs_mb for image in engine.images if not image.built) << 20
    wanted = missing + WORKING_BYTES
    free = engine.info.free_bytes
    what = f"a trial takes about {size(wanted)} here"
    if missing:
        what += f", {size(missing)} of it for images not built yet"
    if free is None:
        found = f"the engine's disk can't be seen from here; {what}"
        mend = "`docker system df` tells what is used; the engine may be on another machine"
        return Check.warn("space", found, mend)
    found = f"{size(free)} free; {what}"
    mend = "free some: `orch clean` removes what trials left, `docker system df` shows the rest"
    if free < wanted:
        return Check.fail("space", found, mend)
    if free < 2 * wanted:
        return Check.warn("space", found, mend)
    return Check.ok("space", found)


def cgroup(info: EngineInfo) -> Check:
    found = f"version {info.cgroup_version}"
    if info.cgroup_version in (1, 2):
        return Check.ok("cgroup", found)
    mend = "limits and the cause of a kill are read from cgroup v1 or v2"
    return Check.fail("cgroup", found, mend)


def runtime(info: EngineInfo, wanted: str | None) -> Check:
    """The runtime that submissions run under; and whether gVisor could be."""
    there = ", ".join(info.runtimes) or "none that it names"
    if wanted is not None and wanted not in info.runtimes:
        found = f"the engine has no runtime {wanted!r}; it has: {there}"
        mend = "add it to the engine's daemon.json and restart the engine, or ask for another"
        return Check.fail("runtime", found, mend)
    default = info.default_runtime or "the engine's default"
    found = f"submissions run under {wanted or default}"
    if wanted is None:
        gvisor = "is here: --runtime runsc" if GVISOR in info.runtimes else "is not installed"
        found += f"; gVisor ({GVISOR}) {gvisor}"
    return Check.ok("runtime", found)


def cpus(info: EngineInfo, needs: Needs) -> Check:
    found = f"{info.ncpu}; a submission gets {needs.cpus:g}"
    if info.ncpu < needs.cpus:
        mend = "the engine refuses more than it has: give it more, or lower cpus in task.toml"
        return Check.fail("cpus", found, mend)
    return Check.ok("cpus", found)


def images(engine: EngineFacts, host: HostFacts) -> Check:
    missing = [image.name for image in engine.images if not image.built]
    if not missing:
        names = ", ".join(image.name for image in engine.images)
        return Check.ok("images", f"built: {names}")
    for problem in (image.problem for image in engine.images if image.problem):
        return Check.fail("images", problem, "install orch again")
    found = f"not built: {', '.join(missing)}"
    if "docker buildx" not in host.commands:
        found += "; and there is no docker command with buildx here to build them"
        mend = "install Docker's client with its buildx plugin (docker-ce-cli, docker-buildx)"
        return Check.fail("images", found, mend)
    mend = "a trial builds them first, which takes minutes; `orch images build` does it now"
    return Check.warn("images", found, mend)


def left_overs(engine: EngineFacts) -> Check:
    if not engine.left_overs:
        return Check.ok("left-overs", "none")
    kinds = [item.kind for item in engine.left_overs]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    found = ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in counts.items())
    trials = sorted({item.owner.trial for item in engine.left_overs})
    found += f" of {trials[0] if len(trials) == 1 else f'{len(trials)} trials'}"
    return Check.warn("left-overs", found, "`orch clean` removes them")


def _is_local_proxy(name: str, value: str) -> bool:
    return name != "no_proxy" and is_loopback(_parsed(value).hostname or "")


def _without_password(value: str) -> str:
    login, at, _ = _parsed(value).netloc.rpartition("@")
    return value.replace(f"{login}@", "***@") if at else value


def _parsed(proxy: str) -> SplitResult:
    return urlsplit(proxy if "://" in proxy else f"//{proxy}")
