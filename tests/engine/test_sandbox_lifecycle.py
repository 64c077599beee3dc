"""Containers come and go: nothing stays behind, and an engine that goes away is told."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import EngineUnavailable, ImageMissing
from orchestrator.sandbox import network, volume
from orchestrator.sandbox.container import Container, ContainerSpec, Mount, run_step, still
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits

SMALL = Limits(memory_mb=64, cpus=1, pids=32, wall_s=60, tmp_mb=4)


@pytest.fixture
def spec(tools: str, owner: Owner) -> ContainerSpec:
    return ContainerSpec(tools, owner, SMALL)


def test_labels_and_names(engine: Engine, spec: ContainerSpec) -> None:
    with Container(engine, spec) as container:
        details = engine.api.inspect_container(container.id)
        (found,) = engine.owned(spec.owner.trial)
    labels = details["Config"]["Labels"]
    assert labels.items() >= {"orch.run": "r1", "orch.role": "step"}.items()
    assert found.owner == spec.owner and found.kind == "container"
    assert found.name == container.name and container.name.startswith("orch-step-")


def test_whatever_is_raised_inside_nothing_is_left(engine: Engine, spec: ContainerSpec) -> None:
    with pytest.raises(RuntimeError, match="mine"), Container(engine, spec):
        raise RuntimeError("mine")
    assert engine.owned(spec.owner.trial) == []


@pytest.mark.parametrize("call", ["create_container_from_config", "start"])
def test_ctrl_c_between_the_engines_act_and_its_answer_leaves_nothing(
    engine: Engine, spec: ContainerSpec, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    original = getattr(engine.api, call)

    def interrupted(*args: Any) -> None:
        original(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.api, call, interrupted)
    with pytest.raises(KeyboardInterrupt), Container(engine, spec):
        pass
    assert engine.owned(spec.owner.trial) == []


def test_an_image_that_is_gone_is_told(engine: Engine, owner: Owner) -> None:
    spec = ContainerSpec("sha256:" + "0" * 64, owner, SMALL)
    with pytest.raises(ImageMissing, match="build or pull"), Container(engine, spec):
        pass


def test_a_container_with_a_command_of_its_own_runs_it(engine: Engine, spec: ContainerSpec) -> None:
    serving = ContainerSpec(spec.image, spec.owner, SMALL, command=("sleep", "600"), env={"A": "b"})
    with Container(engine, serving) as container:
        ended = container.exec(("sh", "-c", "cat /proc/*/cmdline; echo $A; id -u"), timeout_s=60)
    assert "sleep\x00600" in ended.stdout.text
    assert ended.stdout.text.endswith("b\n10001\n")


@pytest.fixture
def pushy_image(engine: Engine, spec: ContainerSpec) -> Iterator[str]:
    """An image that brings a program, a health check and a volume of its own."""
    changes = ["ENTRYPOINT false", "CMD false", "VOLUME /brought", "HEALTHCHECK CMD false"]
    with still(engine, spec.image, spec.owner, ()) as source:
        made = engine.api.commit(source, changes=changes)["Id"]
    yield made
    engine.api.remove_image(made)


def test_what_an_image_would_start_or_mount_by_itself_does_not_matter(
    engine: Engine, spec: ContainerSpec, pushy_image: str
) -> None:
    with Container(engine, replace(spec, image=pushy_image)) as container:
        assert container.exec(("echo", "x"), timeout_s=60).stdout.text == "x\n"
        details = engine.api.inspect_container(container.id)
    assert "Health" not in details["State"]
    (brought,) = (mount["Name"] for mount in details["Mounts"] if mount["Type"] == "volume")
    listed = engine.api.volumes()["Volumes"] or []
    assert brought not in {item["Name"] for item in listed}


def test_all_that_a_dead_process_left_is_found_by_label_and_removed(
    engine: Engine, spec: ContainerSpec, owner: Owner
) -> None:
    # As if killed: entered and never left.
    made = volume.create(engine, owner)
    mounted = ContainerSpec(spec.image, owner, SMALL, mounts=(Mount(made.name, "/w", False),))
    container = Container(engine, mounted)
    container.__enter__()
    engine.api.create_network(f"{owner.trial}-net", labels=owner.labels())
    found = engine.owned(owner.trial)
    assert [item.kind for item in found] == ["container", "network", "volume"]
    # In any order: a volume can only go after its container.
    freed = engine.remove(reversed(found))
    assert freed.kept == () and set(freed.removed) == set(found)
    assert engine.remove(found).kept == ()


class Relay:
    """Stands between client and engine, and can be cut like a machine that goes away."""

    def __init__(self, path: Path, engine: str) -> None:
        self._engine = engine
        self._pairs: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._engine)
                self._pairs += [near, far]
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ValueError, KeyError),
            selectors.DefaultSelector() as both,
        ):
            both.register(near, selectors.EVENT_READ, far)
            both.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in both.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if data:
                        key.data.sendall(data)
                    else:
                        key.data.shutdown(socket.SHUT_WR)
                        both.unregister(key.fileobj)

    def cut(self) -> None:
        # In this order: whoever waits in accept has to wake before the rest is cut.
        for end in (self._listening, *self._pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def relay(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    if not engine.host.startswith("unix://"):
        pytest.skip("relays a local socket only")
    relay = Relay(tmp_path / "sock", engine.host.removeprefix("unix://"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'sock'}")
    yield relay
    relay.cut()


def test_an_engine_that_goes_away_is_told_and_nothing_hangs(
    engine: Engine, relay: Relay, spec: ContainerSpec
) -> None:
    through = Engine.connect()
    with (
        pytest.raises(EngineUnavailable, match="did not answer"),
        Container(through, spec) as container,
    ):
        assert container.exec(("true",), timeout_s=60).exit_code == 0
        container.exec(
            ("sh", "-c", "echo go; sleep 600"), timeout_s=500, sink=lambda _: relay.cut()
        )
    with pytest.raises(EngineUnavailable, match="does not run"):
        Engine.connect()
    # What it could not remove itself is found by label once there is an engine again.
    assert len(engine.remove(engine.owned(spec.owner.trial)).removed) == 1


def test_no_engine_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'none'}")
    with pytest.raises(EngineUnavailable, match="install Docker and start it"):
        Engine.connect()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "none"))
        with pytest.raises(EngineUnavailable, match="does not run"):
            Engine.connect()


def test_networks_are_gone_when_left(engine: Engine, owner: Owner) -> None:
    with contextlib.suppress(KeyboardInterrupt), network.internal(engine, owner):
        assert [item.kind for item in engine.owned(owner.trial)] == ["network"]
        raise KeyboardInterrupt
    assert engine.owned(owner.trial) == []


def test_steps_leave_nothing(engine: Engine, spec: ContainerSpec) -> None:
    run_step(engine, spec, ("true",))
    assert engine.owned(spec.owner.trial) == []
