"""Snapshots of real volumes; and the seeding hook where submissions run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import EngineRefused, NotEnoughSpace
from orchestrator.sandbox import history as snapshots
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import Container, ContainerSpec, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.history import History, viewing
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Scratch, Volume

SMALL = Limits(memory_mb=128, cpus=1, pids=32, wall_s=60, tmp_mb=4)


@pytest.fixture
def workspace(engine: Engine, tools: str, owner: Owner) -> Iterator[Volume]:
    made = volume.create(engine, owner.as_role("workspace"))
    volume.fill(engine, tools, made, {"SPEC.md": b"task\n", "src/a.py": b"x = 1\n"}, owner)
    yield made
    volume.remove(engine, made)


def work(engine: Engine, tools: str, owner: Owner, workspace: Volume, script: str) -> None:
    spec = ContainerSpec(tools, owner, SMALL, mounts=(workspace.at("/w", read_only=False),))
    ended = run_step(engine, spec, ("sh", "-ec", f"cd /w; {script}"))
    assert ended.exit_code == 0, ended


HOSTILE = """
mkdir .git nested nested/.GIT; printf '[core]\\n\\tfsmonitor = touch /w/ran\\n' > .git/config
cp .git/config nested/.GIT/config; echo '*' > .gitignore
echo '* text eol=crlf filter=x' > .gitattributes
ln -s /etc/passwd link; mkfifo pipe; mkdir closed; chmod 0 closed; printf 'a\\r\\nb' > src/a.py
rm SPEC.md; echo new > 'odd
name'
"""


def test_snapshots_tell_what_a_stage_did(
    engine: Engine, tools: str, owner: Owner, workspace: Volume, tmp_path: Path
) -> None:
    history = History(tmp_path / "runs" / "r1" / "history.git")
    before = history.snapshot(engine, tools, workspace, "baseline", owner)
    again = history.snapshot(engine, tools, workspace, "again", owner)
    assert before.id == again.id and before.skipped == []
    work(engine, tools, owner, workspace, HOSTILE)
    after = history.snapshot(engine, tools, workspace, "stage", owner)
    found = {change.path: change.change for change in history.changes(before.id, after.id)}
    assert found == {
        ".gitattributes": "added",
        ".gitignore": "added",
        "SPEC.md": "deleted",
        "link": "added",
        "odd\nname": "added",
        "src/a.py": "modified",
    }
    assert history.read(after.id, "src/a.py") == b"a\r\nb"
    assert "link" not in history.extract(after.id)
    assert {dropped.path for dropped in after.skipped} == {
        ".git", "nested/.GIT", "pipe", "closed"
    }  # fmt: skip


def test_what_was_kept_can_be_laid_again(
    engine: Engine, tools: str, owner: Owner, workspace: Volume, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.git")
    kept = history.snapshot(engine, tools, workspace, "baseline", owner)
    with Scratch(engine, owner, tools, {"work": 8}) as scratch:
        scratch.put("work", history.extract(kept.id))
        laid = history.snapshot(engine, tools, scratch.volume("work"), "copy", owner)
    assert laid.id == kept.id


def test_a_walker_that_fails_leaves_the_history_as_it_was(
    engine: Engine,
    tools: str,
    owner: Owner,
    workspace: Volume,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History(tmp_path / "history.git")
    kept = history.snapshot(engine, tools, workspace, "baseline", owner)
    monkeypatch.setattr(snapshots, "WALKER", ("sh", "-c", "echo M 1; echo oh >&2; exit 1", "/ws"))
    with pytest.raises(EngineRefused, match=r"snapshot of a workspace failed .*oh"):
        history.snapshot(engine, tools, workspace, "broken", owner)
    monkeypatch.undo()
    assert history.snapshot(engine, tools, workspace, "again", owner).id == kept.id


def test_a_full_disk_is_told(engine: Engine, tools: str, owner: Owner, workspace: Volume) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

    with (
        viewing(engine, tools, workspace, owner) as pour,
        pytest.raises(NotEnoughSpace, match="No space left"),
    ):
        pour(Full())  # type: ignore[arg-type]


STARTS = (
    "python3 -c '{draw}'",
    "python3 -I -c '{draw}'",
    "env -i /usr/bin/env python3 -c '{draw}'",
    "cd /tmp; PYTHONPATH=/nowhere python3 -c '{draw}'",
    "python3 -m venv --without-pip /tmp/env; /tmp/env/bin/python -c '{draw}'",
)


def test_the_scorers_interpreter_is_seeded_however_it_is_started(
    engine: Engine, images: Callable[[str], Image], owner: Owner
) -> None:
    with Container(engine, ContainerSpec(images("scorer").id, owner, SMALL)) as container:

        def drawn(start: str, seed: str) -> str:
            script = start.format(draw="import random; print(random.random())")
            ended = container.exec(("sh", "-c", script), timeout_s=60, env={"ORCH_SEED": seed})
            assert ended.exit_code == 0, ended
            return ended.stdout.text

        for start in STARTS:
            assert drawn(start, "11") == drawn(start, "11")
            # A program that empties its environment falls back to the image's own seed.
            emptied = "env -i" in start
            assert (drawn(start, "11") == drawn(start, "12")) == emptied
        # A seed that is no number leaves a program alone.
        assert drawn(STARTS[0], "none") != drawn(STARTS[0], "none")
