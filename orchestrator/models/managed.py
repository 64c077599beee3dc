"""The Ollama that orch starts itself, from the pinned image, on the gateway's way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.config import Settings
from orchestrator.errors import GpuUnavailable, UsageError
from orchestrator.models.ollama import Say
from orchestrator.models.relay import OLLAMA_PORT
from orchestrator.sandbox import image, volume
from orchestrator.sandbox.container import SANDBOX_USER, Container, ContainerSpec, Gpu
from orchestrator.sandbox.engine import Engine, EngineInfo
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import MIB, Limits
from orchestrator.sandbox.network import Network
from orchestrator.sandbox.volume import Volume

MODELS_VOLUME = "orch-ollama-models"
MODELS = "/models"
COMMAND = ("/bin/ollama", "serve")
LEFT_FOR_OTHERS_MB = 1024

GpuSetting = Literal["auto", "legacy", "cdi", "off"]


@dataclass(frozen=True)
class ModelServer:
    """`url` is how the gateway reaches it, `shown` what the user knows it as."""

    url: str
    shown: str
    can_pull: bool


@contextmanager
def managed_ollama(
    engine: Engine, uplink: Network, owner: Owner, settings: Settings, say: Say
) -> Iterator[ModelServer]:
    """Start it, GPU and all, and remove it when the block is left; its models are kept.

    It may not answer yet: see `Ollama.wait_ready`.
    Raises ImageMissing, GpuUnavailable, UsageError and the engine's errors.
    """
    info = engine.info()
    gpu = choose_gpu(settings.gpu, info)
    if gpu is None:
        say("no GPU for Ollama: models run on the CPU, many times slower (see `orch doctor`)")
    reference = settings.ollama_image or str(image.pins()["ollama"]["image"])
    image.fetch(engine, reference, say=say)
    owner = owner.as_role("ollama")
    folder = models_folder(engine, settings.ollama_models)
    models = _models_volume(engine, folder, owner)
    try:
        spec = ContainerSpec(
            image=reference,
            owner=owner,
            limits=limits(info),
            mounts=(models.at(MODELS, read_only=folder is not None),),
            env=environment(settings, read_only=folder is not None),
            network=uplink.id,
            user=reader_of(engine, folder),
            command=COMMAND,
            gpu=gpu,
        )
        with Container(engine, spec) as container:
            url = f"http://{container.name}:{OLLAMA_PORT}"
            yield ModelServer(url, shown=f"{reference} (started by orch)", can_pull=folder is None)
    finally:
        if folder is not None:
            volume.remove(engine, models)


def choose_gpu(setting: GpuSetting, info: EngineInfo) -> Gpu | None:
    """How the GPU is handed in; None: not at all. Raises GpuUnavailable when asked in vain."""
    ways = gpu_ways(info)
    if setting == "off":
        return None
    if setting == "auto":
        return Gpu(ways[0]) if ways else None
    if setting not in ways:
        what = "no NVIDIA runtime" if setting == "legacy" else "no CDI device of nvidia.com/gpu"
        raise GpuUnavailable(
            f"--gpu {setting}: the engine knows {what}; install the NVIDIA container toolkit, "
            "or use --gpu off"
        )
    return Gpu(setting)


def gpu_ways(info: EngineInfo) -> list[Literal["legacy", "cdi"]]:
    """How this engine can hand an NVIDIA GPU to a container, the preferred way first."""
    ways: list[Literal["legacy", "cdi"]] = []
    if "nvidia" in info.runtimes:
        ways.append("legacy")
    if any(device.startswith("nvidia.com/gpu") for device in info.cdi_devices):
        ways.append("cdi")
    return ways


def limits(info: EngineInfo) -> Limits:
    """All of the machine but a reserve: a model that fits in no other way lies in its memory."""
    return Limits(
        memory_mb=max(info.memory_bytes // MIB - LEFT_FOR_OTHERS_MB, LEFT_FOR_OTHERS_MB),
        cpus=max(info.ncpu, 1),
        pids=2048,
        tmp_mb=1024,
        nofile=4096,
        fsize_mb=1 << 20,
    )


def environment(settings: Settings, *, read_only: bool) -> dict[str, str]:
    """One model at a time and one request, so that a trial's models don't press each other."""
    env = {
        "OLLAMA_HOST": f"0.0.0.0:{OLLAMA_PORT}",
        "OLLAMA_MODELS": MODELS,
        "HOME": "/tmp",  # keeps its key there; not of use, but it won't start without
        "OLLAMA_MAX_LOADED_MODELS": "1",
        "OLLAMA_NUM_PARALLEL": "1",
        "OLLAMA_NO_CLOUD": "1",
        "OLLAMA_FLASH_ATTENTION": "1" if settings.flash_attention else "0",
        "OLLAMA_KV_CACHE_TYPE": settings.kv_cache_type,
    }
    if read_only:
        env["OLLAMA_NOPRUNE"] = "1"
    return env


def _models_volume(engine: Engine, folder: Path | None, owner: Owner) -> Volume:
    if folder is None:
        return volume.shared(engine, MODELS_VOLUME, "ollama-models")
    return volume.host_folder(engine, folder, owner)


def models_folder(engine: Engine, given: Path | None) -> Path | None:
    """The folder that holds `manifests` and `blobs`: the given one, or its `models`.

    Raises UsageError. With an engine elsewhere the folder is there, and not looked at.
    """
    if given is None:
        return None
    folder = given.expanduser().absolute()
    if not _is_here(engine):
        return folder
    for candidate in (folder, folder / "models"):
        if (candidate / "manifests").is_dir():
            return candidate
    raise UsageError(
        f"--ollama-models {folder}: no folder of Ollama's models (no `manifests` in it); "
        "usual are ~/.ollama/models and /usr/share/ollama/.ollama/models"
    )


def reader_of(engine: Engine, folder: Path | None) -> str:
    """The user that Ollama runs as: the folder's owner, who can read it; never root.

    Raises UsageError for a folder that only root can read.
    """
    if folder is None or not _is_here(engine):
        return SANDBOX_USER
    status = folder.stat()
    if status.st_uid != 0:
        return f"{status.st_uid}:{status.st_gid}"
    if status.st_mode & 0o005 != 0o005:
        raise UsageError(
            f"--ollama-models {folder}: only root can read it, and Ollama is not run as root; "
            f"open it with `chmod -R a+rX {folder}`"
        )
    return SANDBOX_USER


def _is_here(engine: Engine) -> bool:
    """Whether the engine's host is this machine, as far as its socket tells."""
    return engine.host.startswith("unix://")
