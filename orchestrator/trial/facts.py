"""What is known of a machine before a trial: plain data, gathered in gather.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from orchestrator.models.managed import gpu_ways
from orchestrator.models.ollama import GIB, Loaded
from orchestrator.sandbox.engine import EngineInfo, Owned


@dataclass(frozen=True)
class HostFacts:
    """The machine that orch runs on."""

    python: tuple[int, int, int]
    now: datetime
    own_files: datetime
    """Newest change of orch's own files: no sane clock is before it."""
    ca_bundle: Path
    ca_missing: dict[str, str]
    """Variable → the file it names, where there is none."""
    proxies: dict[str, str]
    commands: frozenset[str]
    """Of `docker`, `docker buildx`, `nvidia-smi`, `nvidia-ctk`: those found."""
    runs_dir: Path
    runs_problem: str
    """Why records can't be written there; empty when they can."""
    runs_free_bytes: int


@dataclass(frozen=True)
class ImageFact:
    name: str
    built: bool
    needs_mb: int
    problem: str = ""
    """Why it can't be built whatever is installed; empty when it can."""


@dataclass(frozen=True)
class EngineFacts:
    info: EngineInfo
    images: tuple[ImageFact, ...]
    left_overs: tuple[Owned, ...]
    asked_at: datetime
    """Our clock when `info` was asked for."""


@dataclass(frozen=True)
class OllamaFacts:
    """An Ollama that was asked. `problem` says why it did not answer; empty when it did."""

    url: str
    version: str = ""
    problem: str = ""
    models: dict[str, int] = field(default_factory=dict)
    """Name and bytes of each model it holds."""
    loaded: tuple[Loaded, ...] = ()


@dataclass(frozen=True)
class Needs:
    """The most that a task's containers ask for, and the models wanted (name → bytes)."""

    memory_mb: int
    cpus: float
    models: dict[str, int]

    def model_bytes(self, name: str) -> int | None:
        """Size of the model of that name, where the server holds it."""
        return self.models.get(name, self.models.get(f"{name}:latest"))


@dataclass(frozen=True)
class Facts:
    host: HostFacts
    engine: EngineFacts | None
    engine_problem: str
    ollama: OllamaFacts
    ollama_given: bool
    """The user named it; else it is whatever answers at the usual address."""
    ollama_image_here: bool
    """The image from which orch starts its own."""
    ollama_models_problem: str
    """Why the folder of models can't be used; empty where it can or none is named."""
    gpu: str
    """The setting: auto, legacy, cdi or off."""
    needs: Needs
    tasks: tuple[str, ...]
    tasks_problem: str
    """What is wrong with a task folder; empty when all can be read."""
    runtime: str | None = None
    """The engine's runtime asked for, for submissions; None: its default."""

    @property
    def engine_gpu(self) -> bool:
        return self.engine is not None and bool(gpu_ways(self.engine.info))


def size(number: int) -> str:
    """`640 MiB`, `23.5 GiB`."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number >> 20} MiB"
