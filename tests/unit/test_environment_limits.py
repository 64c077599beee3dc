"""What an environment may download and write, by tables and by a command that writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.records.failures import FailureClass
from orchestrator.sandbox.builder import FULL, INSTALL
from orchestrator.sandbox.downloads import Download, downloads, too_large
from orchestrator.sandbox.limits import EnvironmentRules

PYLOCK = """
lock-version = "1.0"

[[packages]]
name = "torch"
version = "2.15.0"
wheels = [{ url = "https://index.invalid/torch.whl", size = 539136850, hashes = {} }]

[[packages]]
name = "docopt"
version = "0.6.2"
sdist = { url = "https://index.invalid/docopt-0.6.2.tar.gz", size = 25901, hashes = {} }

[[packages]]
name = "unsized"
version = "1"
wheels = [{ url = "https://index.invalid/unsized.whl", hashes = {} }]
"""


def test_sizes_are_read_from_the_lock():
    assert downloads(PYLOCK) == [
        Download("torch", "2.15.0", 539136850),
        Download("docopt", "0.6.2", 25901),
        Download("unsized", "1", 0),
    ]
    assert downloads('lock-version = "1.0"\n') == []


def test_what_is_too_large_is_named_with_its_largest():
    many = [Download(f"p{n}", "1.0", n << 20) for n in range(1, 9)]
    failure = too_large(many, EnvironmentRules(download_mb=35))
    assert failure is not None
    assert failure.failure_class is FailureClass.DISK_FULL
    assert failure.sentence == (
        "the declared dependencies would download 36 MiB in 8 packages; the task allows 35 MiB; "
        "the largest: p8 1.0 8.0 MiB, p7 1.0 7.0 MiB, "
        "p6 1.0 6.0 MiB, p5 1.0 5.0 MiB, p4 1.0 4.0 MiB"
    )
    assert too_large(many, EnvironmentRules(download_mb=36)) is None


def installing(place: Path, code: str, cap: int = 1 << 20, packages: tuple[str, ...] = ()):
    """The script that installs, with Python code in the place of uv."""
    for name in ("env", "cache"):
        (place / name).mkdir(exist_ok=True)
    plan = {
        "command": [sys.executable, "-c", code],
        "places": [str(place / "env"), str(place / "cache")],
        "cap": cap,
        "cache": str(place / "cache"),
        "cache_cap": 1 << 20,
        "packages": packages,
    }
    argv = [sys.executable, "-I", "-S", "-c", INSTALL, json.dumps(plan)]
    return subprocess.run(
        argv, cwd=place, input=b"six", capture_output=True, check=False, timeout=60
    )


def test_the_command_gets_its_input_and_gives_its_status(tmp_path):
    ended = installing(tmp_path, "import sys; print(sys.stdin.read()); sys.exit(2)")
    assert (ended.returncode, ended.stdout) == (2, b"six\n")


@pytest.mark.parametrize("where", ["env", "cache"])
def test_what_writes_too_much_is_ended(tmp_path, where):
    code = (
        f"import os, time\nfile = open('{where}/big', 'wb')\n"
        "file.write(os.urandom(3 << 20)); file.flush()\n"
    )
    assert installing(tmp_path, code + "time.sleep(60)").returncode == FULL
    assert installing(tmp_path, code).returncode == FULL
    assert installing(tmp_path, code, cap=4 << 20).returncode == 0


def test_what_it_left_half_done_is_taken_away(tmp_path):
    code = (
        "import os; os.mkdir('cache/.tmpx'); open('cache/.tmpx/y', 'wb').write(b'x' * (17 << 20))"
    )
    assert installing(tmp_path, code).returncode == FULL
    assert not (tmp_path / "cache" / ".tmpx").exists()


def test_what_was_there_before_does_not_count(tmp_path):
    (tmp_path / "cache").mkdir()
    old = tmp_path / "cache" / "old"
    old.write_bytes(b"x" * (3 << 20))
    assert installing(tmp_path, "open('env/x', 'w').write('x' * 9000)").returncode == 0


UV = """#!/bin/sh
shift 3
for name; do echo "$name" >> cleaned; rm -rf "cache/$name"; done
"""


def test_wheels_wanted_longest_ago_leave_a_cache_that_is_too_large(tmp_path, monkeypatch):
    uv = tmp_path / "bin" / "uv"
    used = tmp_path / "cache" / "orch-used"
    for folder in (uv.parent, used):
        folder.mkdir(parents=True)
    uv.write_text(UV)
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        (tmp_path / "cache" / name).write_bytes(b"x" * (400 << 10))
        (used / name).touch()
        os.utime(used / name, (1000 - age, 1000 - age))
    (tmp_path / "cache" / ".tmpnew").mkdir()
    # 1.6 MiB of a cap of 1; what was just wanted stays, however long ago it was wanted before.
    assert installing(tmp_path, "pass", packages=("oldest",)).returncode == 0
    assert (tmp_path / "cleaned").read_text().split() == ["old", "middle"]
    assert sorted(path.name for path in used.iterdir()) == ["new", "oldest"]
    assert (tmp_path / "cache" / ".tmpnew").exists()
    assert installing(tmp_path, "pass", packages=("oldest",)).returncode == 0
    assert len((tmp_path / "cleaned").read_text().split()) == 2
