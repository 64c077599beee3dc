"""How a submission's code runs, in execute stages and in scoring alike: one bench, one env."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.sandbox import volume
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.environment import PLACE as ENV
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Volume
from orchestrator.task import Task

WORKSPACE = "/workspace"
DATA = "/data"
INPUT = "/in"
OUTPUT = "/out"
INPUT_NAME = "features.csv"
OUTPUT_NAME = "predictions.csv"
PLACEHOLDERS = {
    "{data}": DATA,
    "{input}": f"{INPUT}/{INPUT_NAME}",
    "{output}": f"{OUTPUT}/{OUTPUT_NAME}",
}
"""What a step's command may hold, and what stands there when it runs."""


@dataclass(frozen=True)
class ScoringBench:
    """What everything that runs a submission needs. One for a run; `owner` labels its objects."""

    engine: Engine
    tools: Image
    builder: Image
    scorer: Image
    owner: Owner
    task: Task
    data: Volume
    """The training data, mounted read-only at /data."""
    seed: int
    data_columns: frozenset[str] = frozenset()
    """Columns of the training data, to tell a missing column from another KeyError."""
    runtime: str | None = None
    """Runtime of the engine that the submission's code runs under; None: its default."""

    @property
    def limits(self) -> Limits:
        return self.task.limits.execute


def content_volume(
    engine: Engine, tools_image: str, role: str, files: Mapping[str, bytes | Path]
) -> Volume:
    """The volume with exactly these files, laid once and found again by content. For reading."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + _sha256(content))

    def fill(target: Volume) -> None:
        volume.fill(engine, tools_image, target, files, Owner(trial="", role=role))

    return volume.cached(engine, tools_image, digest.hexdigest(), role, fill)


def input_volume(bench: ScoringBench, features: bytes | Path) -> Volume:
    """The input of a step that predicts, as {input} names it."""
    return content_volume(bench.engine, bench.tools.id, "input", {INPUT_NAME: features})


def _sha256(content: bytes | Path) -> bytes:
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def submission_env(limits: Limits, seed: int) -> dict[str, str]:
    """Variables for a submission's process: seeded, one locale, threads as many as CPUs.

    Thread pools size themselves by the host's cores, not by the quota; left alone they would be
    slow, hit the limit of processes, and give other sums on other machines.
    """
    threads = str(max(1, math.floor(limits.cpus)))
    return {
        "PATH": f"{ENV}/bin:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": ENV,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # Where compiled code crashes, the line of the program that it was called from is told.
        "PYTHONFAULTHANDLER": "1",
        "PYTHONHASHSEED": "0",
        "ORCH_SEED": str(seed),
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "NUMEXPR_NUM_THREADS": threads,
        "LOKY_MAX_CPU_COUNT": threads,
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "USER": "sandbox",
        "HOME": "/tmp/home",
        "XDG_CACHE_HOME": "/tmp/home/.cache",
        "XDG_CONFIG_HOME": "/tmp/home/.config",
        "XDG_DATA_HOME": "/tmp/home/.local/share",
        "MPLCONFIGDIR": "/tmp/home/.config/matplotlib",
    }
