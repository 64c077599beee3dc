"""The command line as a person meets it: one sentence, the right exit code, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (
    "trial", "data", "calibrate", "score", "report", "tasks", "doctor", "clean", "images", "agents",
)  # fmt: skip


def orch(home: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *args],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ORCH_HOME": str(home), "NO_COLOR": "1"} | env,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_says_what_it_does(tmp_path: Path, command: str) -> None:
    done = orch(tmp_path, command, "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert len(done.stdout.splitlines()) > 4


def test_an_unknown_task_names_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'spam'?" in refused(orch(tmp_path, "data", "spma"))


def test_an_unknown_agent_names_the_nearest(tmp_path: Path) -> None:
    asked = ("trial", "spam", "--models", "scripted/careful", "--agent")
    assert "there is no agent 'aidr'; did you mean 'aider'?" in refused(
        orch(tmp_path, *asked, "aidr")
    )
    assert "there are: builtin, aider" in refused(orch(tmp_path, *asked, "x"))


def test_a_malformed_task_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "task.toml").write_text("schema = ")
    sentence = refused(orch(tmp_path, "data", str(tmp_path / "broken")))
    assert "task.toml: not valid TOML" in sentence


def test_no_engine_is_one_sentence(tmp_path: Path) -> None:
    done = orch(tmp_path, "clean", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert "none.sock" in refused(done)


def test_an_unknown_trial_names_where_it_looked(tmp_path: Path) -> None:
    assert str(tmp_path / "runs") in refused(orch(tmp_path, "report", "nope"))


def test_a_bad_setting_names_its_sources(tmp_path: Path) -> None:
    sentence = refused(orch(tmp_path, "clean", ORCH_KV_CACHE_TYPE="q9"))
    assert "ORCH_KV_CACHE_TYPE" in sentence


def test_version_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from orchestrator.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pandas', 'sklearn', 'numpy', 'docker', 'pydantic', 'rich', 'httpx'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["orch, version 0.1.0", "[]"]


def test_tasks_lists_the_shipped_ones(tmp_path: Path) -> None:
    done = orch(tmp_path, "tasks")
    assert done.returncode == 0, done.stderr
    assert "spam" in done.stdout


def test_a_full_disk_behind_stdout_is_one_sentence(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", "tasks"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"ORCH_HOME": str(tmp_path)},
        )
    assert done.returncode == 2
    assert done.stderr.startswith("orch: No space left on device")
