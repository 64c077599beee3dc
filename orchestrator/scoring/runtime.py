"""How a submission's code runs, in execute stages and in scoring alike: one bench, one env."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Volume

WORKSPACE = "/workspace"
DATA = "/data"
ENV = "/env"
INPUT = "/in"
OUTPUT = "/out"
INPUT_NAME = "features.csv"
OUTPUT_NAME = "predictions.csv"
PLACEHOLDERS = {
    "data": DATA,
    "input": f"{INPUT}/{INPUT_NAME}",
    "output": f"{OUTPUT}/{OUTPUT_NAME}",
}
"""What stands in a step's command as `{data}`, `{input}`, `{output}`."""


@dataclass(frozen=True)
class ScoringBench:
    """What everything that runs a submission needs. One for a run; `owner` labels its objects."""

    engine: Engine
    tools: Image
    builder: Image
    scorer: Image
    owner: Owner
    data: Volume
    """The training data, mounted read-only at /data."""
    limits: Limits
    seed: int
    data_columns: frozenset[str] = frozenset()
    """Columns of the training data, to tell a missing column from another KeyError."""


def submission_env(limits: Limits, seed: int) -> dict[str, str]:
    """Variables for a submission's process: seeded, single locale, threads as many as CPUs.

    Thread pools size themselves by the host's cores, not by the quota; left alone they would be
    slow, hit the limit of processes, and give other sums on other machines.
    """
    threads = str(max(1, math.floor(limits.cpus)))
    return {
        "PATH": f"{ENV}/bin:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": ENV,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
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
