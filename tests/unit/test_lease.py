import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.trial.lease import Lease, known, living

HOLD = """
import sys, pathlib
from orchestrator.trial.lease import Lease
with Lease(pathlib.Path(sys.argv[1]), "t1"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lease_is_living_only_while_held(tmp_path: Path) -> None:
    with Lease(tmp_path, "t1"):
        assert living(tmp_path) == {"t1"}
    assert living(tmp_path) == set()
    assert known(tmp_path) == set()


def test_a_second_holder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with Lease(tmp_path, "t1"), pytest.raises(UsageError, match=f"process {os.getpid()}"):
        Lease(tmp_path, "t1").__enter__()


def test_a_killed_holder_leaves_a_known_dead_name_that_can_be_taken_again(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert living(tmp_path) == {"t1"}
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert living(tmp_path) == set()
    assert known(tmp_path) == {"t1"}
    with Lease(tmp_path, "t1"):
        assert living(tmp_path) == {"t1"}
