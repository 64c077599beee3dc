"""Volumes: what goes in comes out, what must not come out does not, caches are whole or unused."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import EngineRefused, UnsafeOutput
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import Container, ContainerSpec, Hardening, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Scratch, Volume

SMALL = Limits(memory_mb=64, cpus=1, pids=32, wall_s=60, tmp_mb=4)


@pytest.fixture
def plain(engine: Engine, owner: Owner) -> Iterator[Volume]:
    made = volume.create(engine, owner)
    yield made
    volume.remove(engine, made)


@pytest.fixture
def spec(tools: str, owner: Owner, plain: Volume) -> ContainerSpec:
    return ContainerSpec(tools, owner, SMALL, mounts=(plain.at("/w", read_only=False),))


def test_files_laid_belong_to_the_sandbox_and_can_be_replaced(
    engine: Engine, spec: ContainerSpec, plain: Volume, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * 4096)
    files: dict[str, bytes | Path] = {"a/b/c.txt": b"one", "large.bin": large}
    volume.fill(engine, spec.image, plain, files, spec.owner)
    with Container(engine, spec) as container:
        ended = container.exec(
            ("sh", "-c", "cd /w; stat -c '%n %u:%g %a' . a a/b/c.txt; echo two > a/b/new"),
            timeout_s=60,
        )
        assert ended.stdout.text.splitlines() == [
            ". 10001:10001 755", "a 10001:10001 755", "a/b/c.txt 10001:10001 644"
        ]  # fmt: skip
        assert ended.exit_code == 0
        assert container.get("/w/large.bin", 1 << 20) == large.read_bytes()
        assert container.get("/w/a/b/new", 10) == b"two\n"
        container.put("/w/a", {"b/c.txt": b"three"}, mode=0o755)
        assert container.get("/w/a/b/c.txt", 10) == b"three"
        entry = container.stat("/w/a/b/c.txt")
        assert entry is not None and (entry.kind, entry.size, entry.mode) == ("file", 5, 0o755)
        assert container.stat("/w/none") is None and container.stat("/none/none") is None


def test_a_fresh_volume_can_be_written_by_whoever_it_is_mounted_for(
    engine: Engine, spec: ContainerSpec
) -> None:
    assert run_step(engine, spec, ("touch", "/w/x")).exit_code == 0


def test_a_path_that_leaves_the_folder_is_refused(engine: Engine, spec: ContainerSpec) -> None:
    with Container(engine, spec) as container:
        for path in ("../x", "/x", "", "a/../../x", "a\0b"):
            with pytest.raises(ValueError, match="path"):
                container.put("/w", {path: b""})


def test_nothing_can_be_put_beside_the_volumes(engine: Engine, spec: ContainerSpec) -> None:
    with Container(engine, spec) as container, pytest.raises(EngineRefused, match="read-only"):
        container.put("/etc", {"passwd": b""})


HOSTILE = """
cd /w; mkdir dir; echo secret > dir/file; ln -s /etc/passwd link; ln -s dir dirlink; mkfifo fifo
ln -s loop loop; truncate -s 1T sparse; echo ok > plain; ln -s / root
ln -s "$(printf %0300d 1)" longname; ln -s /etc/passwd/x throughfile
"""


def test_only_regular_files_within_their_size_come_out(engine: Engine, spec: ContainerSpec) -> None:
    # Without the cap on a file's size, which would not let it pretend to a terabyte.
    with Container(engine, replace(spec, hardening=Hardening(ulimits=False))) as container:
        assert container.exec(("sh", "-ec", HOSTILE), timeout_s=60).exit_code == 0
        container.stop()
        assert container.get("/w/plain", 3) == b"ok\n"
        for path, reason in {
            "/w/link": "symlink",
            "/w/dir": "directory",
            "/w/fifo": "regular",
            "/w/loop": "symlink",
            "/w/none": "missing",
            "/w/sparse": "1099511627776 bytes",
            "/w/dirlink/file": "lies under /w/dirlink",
            "/w/root/etc/passwd": "lies under /w/root",
            "/w/loop/x": "leads nowhere",
            "/w/longname": "leads nowhere",
            "/w/throughfile": "leads nowhere",
            "/w/plain/x": "lies under /w/plain",
        }.items():
            with pytest.raises(UnsafeOutput, match=reason):
                container.get(path, 1 << 20)
        with pytest.raises(UnsafeOutput, match="more than the 2"):
            container.get("/w/plain", 2)
        # Nothing above left a stream open, which would hold the container:
        assert container.get("/w/plain", 3) == b"ok\n"


def test_scratch_is_shared_while_it_is_held_and_gone_after(
    engine: Engine, tools: str, owner: Owner
) -> None:
    with Scratch(engine, owner, tools, {"out": 8, "other": 1}) as scratch:
        scratch.put("out", {"in/f": b"1"})
        spec = ContainerSpec(
            tools, owner, SMALL, mounts=(scratch.volume("out").at("/out", read_only=False),)
        )
        assert run_step(engine, spec, ("sh", "-c", "cat /out/in/f > /out/g")).exit_code == 0
        assert run_step(engine, spec, ("cat", "/out/g")).stdout.text == "1"
        assert scratch.get("out", "g", 10) == b"1"
        with pytest.raises(ValueError, match="path"):
            scratch.get("out", "../etc/passwd", 10)
        scratch.copy("out", "other")
        scratch.clear("out")
        assert scratch.get("other", "in/f", 10) == b"1"
        assert scratch.stat("out", "in") is None
        kinds = sorted(item.kind for item in engine.owned(owner.trial))
        assert kinds == ["container", "volume", "volume"]
    assert engine.owned(owner.trial) == []


def test_a_volume_in_use_is_not_removed_and_one_that_is_gone_is_fine(
    engine: Engine, spec: ContainerSpec, plain: Volume
) -> None:
    with Container(engine, spec):
        with pytest.raises(EngineRefused, match="in use"):
            volume.remove(engine, plain)
        freed = engine.remove(
            item for item in engine.owned(spec.owner.trial) if item.kind == "volume"
        )
        assert [item.name for item, _ in freed.kept] == [plain.name]
    volume.remove(engine, plain)
    volume.remove(engine, plain)


@pytest.fixture
def role(engine: Engine) -> Iterator[str]:
    """A role of this test alone, for caches, which belong to no trial."""
    mine = f"test-{secrets.token_hex(5)}"
    yield mine
    engine.remove(item for item in engine.owned("") if item.owner.role == mine)
    assert [item for item in engine.owned("") if item.owner.role == mine] == []


def caches(engine: Engine, role: str) -> list[bool]:
    """Completeness of each cache of `role`."""
    return [item.complete for item in engine.owned("") if item.owner.role == role]


def test_a_cache_is_built_once_for_each_key(engine: Engine, tools: str, role: str) -> None:
    built: list[str] = []

    def build(made: Volume) -> None:
        built.append(made.name)
        volume.fill(engine, tools, made, {"f": b"1"}, Owner("", role=role))

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(volume.cached, engine, tools, "key", role, build) for _ in range(3)]
        names = {job.result().name for job in jobs}
    assert names == set(built) and len(built) == 1
    assert volume.cached(engine, tools, "other", role, build).name not in names
    assert caches(engine, role) == [True, True]


def test_a_cache_that_could_not_be_built_leaves_nothing(
    engine: Engine, tools: str, role: str
) -> None:
    def build(made: Volume) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        volume.cached(engine, tools, "key", role, build)
    assert caches(engine, role) == []


def test_of_two_processes_that_build_at_once_one_wins(
    engine: Engine, tools: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: list[Volume] = []
    # Marks of the same second are in order of name: here, the other process comes first.
    names = iter((f"orch-{role}-2", f"orch-{role}-1"))
    monkeypatch.setattr(volume, "new_name", lambda role: next(names))

    def slow(made: Volume) -> None:
        # Meanwhile another process, which this one's lock does not hold, builds the same.
        monkeypatch.setattr(volume, "_building", {})
        other.append(volume.cached(engine, tools, "key", role, lambda made: None))

    assert volume.cached(engine, tools, "key", role, slow) == other[0]
    assert caches(engine, role) == [True]


CRASH = """
import os, signal, sys
from orchestrator.sandbox import volume
from orchestrator.sandbox.engine import Engine

def build(made):
    os.kill(os.getpid(), signal.SIGKILL)

volume.cached(Engine.connect(), sys.argv[1], "key", sys.argv[2], build)
"""


def test_a_cache_half_built_by_a_killed_process_is_never_used(
    engine: Engine, tools: str, role: str
) -> None:
    done = subprocess.run([sys.executable, "-c", CRASH, tools, role], check=False)
    assert done.returncode == -9
    assert caches(engine, role) == [False]
    built = threading.Event()
    made = volume.cached(engine, tools, "key", role, lambda made: built.set())
    assert built.is_set()
    assert sorted(caches(engine, role)) == [False, True]
    half = [item for item in engine.owned("") if item.owner.role == role and not item.complete]
    assert engine.remove(half).kept == ()
    assert volume.cached(engine, tools, "key", role, pytest.fail) == made
