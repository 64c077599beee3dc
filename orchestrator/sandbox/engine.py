"""The container engine: connect, ask, list and remove what is ours, and say what went wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import (
    ContainerLost,
    EngineRefused,
    EngineUnavailable,
    GpuUnavailable,
    ImageMissing,
    NotEnoughSpace,
    OrchError,
)
from orchestrator.sandbox.labels import COMPLETES, CONTENT, TRIAL, Owner, mark_of

if TYPE_CHECKING:
    from docker import APIClient

CALL_TIMEOUT_S = 60
"""Of every call to the engine. A start under load took seconds, never minutes."""
OLDEST_API = (1, 41)
HOSTS = ("unix://", "tcp://", "http://", "https://")
"""How an engine may be addressed: over a socket whose two directions close apart."""

Kind = Literal["container", "network", "volume"]


@dataclass(frozen=True)
class EngineInfo:
    """What the engine says of itself. `free_bytes` is None where its disk is not ours to see."""

    version: str
    api: str
    storage_driver: str
    cgroup_version: int
    ncpu: int
    memory_bytes: int
    runtimes: tuple[str, ...]
    cdi_devices: tuple[str, ...]
    operating_system: str
    root_dir: str
    free_bytes: int | None
    system_time: datetime | None = None
    """Its clock when asked; None where it does not tell."""
    default_runtime: str = ""


@dataclass(frozen=True)
class Owned:
    """An object of the engine that carries our labels."""

    kind: Kind
    id: str
    name: str
    owner: Owner
    complete: bool = True
    """False for a cache that was never finished, or is being built just now."""


@dataclass(frozen=True)
class Freed:
    """What a removal did; `kept` gives each object still there and the engine's reason."""

    removed: tuple[Owned, ...]
    kept: tuple[tuple[Owned, str], ...] = ()


class Engine:
    """A connection to the engine; one serves a whole process and all its threads."""

    def __init__(self, api: APIClient, host: str) -> None:
        self.api = api
        self.host = host
        self.root_owner: dict[str, str] = {}
        """Volume name → `uid:gid` that its root was last given (see container.py)."""

    @classmethod
    def connect(cls) -> Engine:
        """Connect as the `docker` command would: DOCKER_HOST, else its current context.

        Raises EngineUnavailable with the mend.
        """
        import docker
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        host, tls = _endpoint()
        if not host.startswith(HOSTS):
            raise EngineUnavailable(
                f"A container engine at {host} can't be used: forward its socket to this machine "
                "and point DOCKER_HOST at that (unix:///path)."
            )
        try:
            api = docker.APIClient(base_url=host, tls=tls, version="auto", timeout=CALL_TIMEOUT_S)
        except (DockerException, RequestException, OSError) as error:
            raise EngineUnavailable(why_unreachable(host, str(error))) from error
        version = str(api.api_version)
        if tuple(int(part) for part in version.split(".")) < OLDEST_API:
            raise EngineUnavailable(
                f"The container engine at {host} speaks API {version}; "
                "install Docker 20.10 or newer."
            )
        return cls(api, host)

    def info(self) -> EngineInfo:
        """Raises EngineUnavailable."""
        with translated("describe itself"):
            info: dict[str, Any] = self.api.info()
        root = str(info.get("DockerRootDir", ""))
        return EngineInfo(
            version=str(info.get("ServerVersion", "")),
            api=str(self.api.api_version),
            storage_driver=str(info.get("Driver", "")),
            cgroup_version=int(info.get("CgroupVersion") or 1),
            ncpu=int(info.get("NCPU", 0)),
            memory_bytes=int(info.get("MemTotal", 0)),
            runtimes=tuple(sorted(info.get("Runtimes") or ())),
            cdi_devices=tuple(
                str(device.get("ID", ""))
                for device in info.get("DiscoveredDevices") or ()
                if device.get("Source") == "cdi"
            ),
            operating_system=str(info.get("OperatingSystem", "")),
            root_dir=root,
            free_bytes=self._free_bytes(root),
            default_runtime=str(info.get("DefaultRuntime", "")),
            system_time=_moment(str(info.get("SystemTime", ""))),
        )

    def _free_bytes(self, root: str) -> int | None:
        # Only a socket on this machine tells of a folder on this machine, and even then the
        # engine may live in a virtual machine (Docker Desktop): its folder is not here.
        if not self.host.startswith("unix://") or not Path(root).is_dir():
            return None
        try:
            return shutil.disk_usage(root).free
        except OSError:
            return None

    def owned(self, trial: str | None = None) -> list[Owned]:
        """All containers, networks and volumes of ours, in the order they can be removed."""
        label = TRIAL if trial is None else f"{TRIAL}={trial}"
        filters = {"label": label}
        found: list[Owned] = []
        with translated("list what is ours"):
            for item in self.api.containers(all=True, filters=filters):
                name = (item.get("Names") or [item["Id"]])[0].lstrip("/")
                found.append(Owned("container", item["Id"], name, Owner.of(item["Labels"] or {})))
            for item in self.api.networks(filters=filters):
                owner = Owner.of(item["Labels"] or {})
                found.append(Owned("network", item["Id"], item["Name"], owner))
            found += _volumes(self.api.volumes(filters=filters)["Volumes"] or [])
        return found

    def remove(self, owned: Iterable[Owned]) -> Freed:
        """Remove each; what the engine won't remove is told, not raised.

        Raises EngineUnavailable when the engine goes away.
        """
        order: dict[Kind, int] = {"container": 0, "network": 1, "volume": 2}
        removed: list[Owned] = []
        kept: list[tuple[Owned, str]] = []
        removers = {
            "container": self.remove_container,
            "network": self.remove_network,
            "volume": self.remove_volume,
        }
        for item in sorted(owned, key=lambda item: order[item.kind]):
            try:
                removers[item.kind](item.id)
            except EngineUnavailable:
                raise
            except OrchError as error:
                kept.append((item, str(error)))
            else:
                removed.append(item)
        return Freed(tuple(removed), tuple(kept))

    def remove_container(self, container: str) -> None:
        """Kill and remove, with its anonymous volumes; fine if it is gone already."""
        with translated("remove a container"), _gone_is_fine():
            self.api.remove_container(container, force=True, v=True)

    def remove_network(self, network: str) -> None:
        """Disconnect whoever is still attached and remove; fine if it is gone already."""
        with translated("remove a network"), _gone_is_fine():
            for container in self.api.inspect_network(network).get("Containers") or {}:
                with _gone_is_fine():
                    self.api.disconnect_container_from_network(container, network, force=True)
            self.api.remove_network(network)

    def remove_volume(self, volume: str) -> None:
        """Fine if it is gone already; raises EngineRefused while a container uses it.

        The mark of a cache goes first, so that none is ever left that completes nothing.
        """
        self.root_owner.pop(volume, None)
        for name in (mark_of(volume), volume):
            with translated("remove a volume"), _gone_is_fine():
                self.api.remove_volume(name)


def _volumes(listed: list[dict[str, Any]]) -> list[Owned]:
    """Ours among them. A mark is part of its cache and no object of its own, unless alone."""
    names = {item["Name"] for item in listed}
    return [
        Owned(
            "volume",
            item["Name"],
            item["Name"],
            Owner.of(item["Labels"]),
            complete=CONTENT not in item["Labels"] or mark_of(item["Name"]) in names,
        )
        for item in listed
        if item["Labels"].get(COMPLETES) not in names
    ]


def _endpoint() -> tuple[str, Any]:
    """Where the `docker` command would connect: base URL and TLS settings (False: none)."""
    from docker.context import ContextAPI
    from docker.errors import DockerException
    from docker.utils import kwargs_from_env

    default = "unix:///var/run/docker.sock"
    if os.environ.get("DOCKER_HOST"):
        try:
            settings = kwargs_from_env()
        except DockerException as error:
            raise EngineUnavailable(
                f"DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH can't be used: {error}."
            ) from error
        return str(settings.get("base_url", default)), settings.get("tls", False)
    try:
        context = ContextAPI.get_current_context()
    except (DockerException, OSError, ValueError):
        context = None
    if context is None or not context.Host:
        return default, False
    return str(context.Host).replace("http+unix://", "unix://"), context.TLSConfig or False


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def why_unreachable(host: str, text: str) -> str:
    """One sentence with the mend, out of the client library's error text."""
    if "Permission denied" in text:
        return (
            f"No permission to use the container engine at {host}: add yourself to the group "
            "that owns the socket (usually `sudo usermod -aG docker $USER`, then log in again)."
        )
    if "No such file" in text or "FileNotFoundError" in text:
        return (
            f"No container engine at {host}: install Docker and start it, or point DOCKER_HOST "
            "at one."
        )
    if "Connection refused" in text:
        return (
            f"The container engine at {host} does not run: start it "
            "(`sudo systemctl start docker`, or Docker Desktop)."
        )
    return f"The container engine at {host} does not answer: {text.strip().rstrip('.')}."


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn whatever the client library raises into our errors; `doing` completes "refused to"."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        raise refusal(doing, error.status_code, error.explanation or str(error)) from error
    except (RequestException, DockerException, HTTPError, OSError) as error:
        raise EngineUnavailable(
            f"The container engine did not answer when asked to {doing}: {error}."
        ) from error


_GPU = ("could not select device driver", "CDI device", "nvidia-container", "libnvidia-ml")


def refusal(doing: str, status: int | None, text: str) -> OrchError:
    """The engine's answer as one of our errors; a table over its words."""
    text = text.strip().rstrip(".")
    if any(words in text for words in _GPU):
        return GpuUnavailable(
            f"The engine can't give a GPU: {text}; install the NVIDIA container toolkit, "
            "or run without a GPU."
        )
    if "no space left on device" in text:
        return NotEnoughSpace(f"The engine's disk is full: {text}; free some space.")
    if status == 404 and "No such image" in text:
        return ImageMissing(f"{text}: build or pull it again.")
    if status == 404 and ("No such container" in text or "No such exec" in text):
        return ContainerLost(f"A container vanished that we had not removed: {text}.")
    if status == 409 and "is not running" in text:
        return ContainerLost(f"A container ended that we had not stopped: {text}.")
    if "fully subnetted" in text or "non-overlapping IPv4" in text:
        return EngineRefused(
            f"The engine has no free subnet left ({text}): remove networks that nobody uses."
        )
    return EngineRefused(f"The container engine refused to {doing}: {text}.")


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    from docker.errors import APIError, NotFound

    try:
        yield
    except NotFound:
        pass
    except APIError as error:
        if "is already in progress" not in str(error.explanation):
            raise
