"""Which caches go, and how processes wait for one another."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.sandbox import caches

SIZES = {"a": 10, "b": 20, "c": 30, "unknown": 1000}
LAST = {"a": 1.0, "b": 3.0, "c": 2.0}


@pytest.mark.parametrize(
    ("cap", "going"), [(60, []), (59, ["a"]), (50, ["a"]), (49, ["a", "c"]), (0, ["a", "c", "b"])]
)
def test_those_used_longest_ago_go_first(cap, going):
    assert list(caches.too_much(SIZES, LAST, cap)) == going


WAITING = """
from orchestrator.sandbox import caches
print("waiting", flush=True)
with caches.locked("one"):
    print("in", flush=True)
"""


def test_a_lock_is_for_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    argv = [sys.executable, "-c", WAITING]
    with caches.locked("one"):
        other = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.2)
    assert other.stdout.read() == "in\n"
    assert other.wait() == 0
    with caches.locked("one"):
        pass
