"""The commits in a workspace's own repository, read without obeying it."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.records.schema import Commit
from orchestrator.sandbox.container import ContainerSpec, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Volume

SCRIPT = (Path(__file__).parent / "sent" / "commits.py").read_text()
PLACE = "/workspace"
LIMITS = Limits(memory_mb=256, cpus=1, pids=32, wall_s=60, tmp_mb=4, log_kb=1024)


def commits_in(engine: Engine, git_image: str, workspace: Volume, owner: Owner) -> list[Commit]:
    """Newest first, at most 200; none where there is no repository, or one that can't be read.

    In a container without network that sees the workspace read-only. Raises the engine's errors.
    """
    spec = ContainerSpec(git_image, owner.as_role("commits"), LIMITS, mounts=(workspace.at(PLACE),))
    ended = run_step(engine, spec, ("python3", "-I", "-S", "-c", SCRIPT, PLACE), counted=False)
    if not ended.succeeded or ended.stdout.dropped_bytes:
        return []
    return [Commit(id=each, subject=subject) for each, subject in json.loads(ended.stdout.text)]
