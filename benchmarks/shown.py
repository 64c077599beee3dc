"""How a benchmark shows what it measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence

from orchestrator.sandbox.engine import Engine


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """As Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def machine(engine: Engine) -> str:
    """What it was measured on, and how busy that was."""
    info = engine.info()
    return (
        f"{info.ncpu} CPUs ({platform.machine()}), {info.memory_bytes >> 30} GiB, Docker "
        f"{info.version}; load average at the end {os.getloadavg()[0]:.1f}"
    )
