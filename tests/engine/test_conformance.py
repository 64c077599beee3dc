"""`orch agents check` in real containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agents.registry import AGENTS


@pytest.mark.soak
@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_does_what_every_agent_must(tmp_path: Path, agent: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", "agents", "check", agent, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"ORCH_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["status"] for one in json.loads(done.stdout)} == {"ok"}
