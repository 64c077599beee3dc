"""`orch agents check` in real containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_built_in_agent_does_what_every_agent_must(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", "agents", "check", "builtin", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"ORCH_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["status"] for one in json.loads(done.stdout)} == {"ok"}
