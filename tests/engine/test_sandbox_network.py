"""Networks that lead nowhere, proved from inside; and open ones, which the proof must tell."""

from __future__ import annotations

import pytest

from orchestrator.sandbox import network
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.probe import prove_isolation

SMALL = Limits(memory_mb=64, cpus=1, pids=32, wall_s=60, tmp_mb=4)


def test_a_container_without_network_reaches_nothing(
    engine: Engine, tools: str, owner: Owner
) -> None:
    proof = prove_isolation(engine, tools, None, owner)
    assert proof.closed, proof.answered
    assert any(tried.startswith(("172.", "10.")) for tried in proof.tried)
    assert "name example.com" in proof.tried and "192.0.2.1 port 443" in proof.tried


def test_from_an_internal_network_nothing_answers(engine: Engine, tools: str, owner: Owner) -> None:
    with network.internal(engine, owner) as closed:
        proof = prove_isolation(engine, tools, closed, owner)
        gateway = closed.subnet.rpartition(".")[0] + ".1 port"
    assert proof.closed, proof.answered
    assert any(tried.startswith(gateway) for tried in proof.tried)


def test_without_its_option_an_internal_network_reaches_the_host(
    engine: Engine, tools: str, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "NO_GATEWAY", {})
    with network.internal(engine, owner) as leaking:
        proof = prove_isolation(engine, tools, leaking, owner)
    assert any(answer.endswith("connected") for answer in proof.answered), proof


def test_from_an_open_network_the_proof_tells_the_way_out(
    engine: Engine, tools: str, owner: Owner
) -> None:
    with network.bridge(engine, owner) as opened:
        proof = prove_isolation(engine, tools, opened, owner)
    assert any(answer.startswith("default route") for answer in proof.answered), proof
    assert any(answer.startswith("name example.com") for answer in proof.answered), proof
    assert any(answer.endswith("connected") for answer in proof.answered), proof


def test_members_reach_one_another_by_name(engine: Engine, tools: str, owner: Owner) -> None:
    serve = (
        "import socket; s = socket.create_server(('', 8080)); print('ready', flush=True)\n"
        "while True: s.accept()[0].close()"
    )
    call = "import socket; print(socket.create_connection(('gateway', 8080), 5).getpeername()[0])"
    with (
        network.internal(engine, owner) as inner,
        network.internal(engine, owner) as outer,
        Container(engine, ContainerSpec(tools, owner, SMALL, network=outer.id)) as gateway,
        Container(engine, ContainerSpec(tools, owner, SMALL, network=inner.id)) as agent,
        Container(engine, ContainerSpec(tools, owner, SMALL, network=outer.id)) as stranger,
    ):
        address = network.attach(engine, inner, gateway, "gateway")
        assert address.startswith(inner.subnet.rpartition(".")[0].rpartition(".")[0])
        start = f'python3 -c "{serve}" > /tmp/out 2>&1 & until grep -q ready /tmp/out; do :; done'
        assert gateway.exec(("sh", "-c", start), timeout_s=60).exit_code == 0
        caller = ("python3", "-c", call)
        assert agent.exec(caller, timeout_s=60).stdout.text.strip() == address
        # Not on that network, not reached: neither by name nor by address.
        assert stranger.exec(caller, timeout_s=60).exit_code == 1
        by_address = ("python3", "-c", call.replace("gateway", address))
        assert stranger.exec(by_address, timeout_s=60).exit_code == 1
        network.detach(engine, inner, gateway)
        network.detach(engine, inner, gateway)
        assert agent.exec(caller, timeout_s=60).exit_code == 1


def test_a_network_is_removed_with_containers_still_on_it(
    engine: Engine, tools: str, owner: Owner
) -> None:
    with network.internal(engine, owner) as inner:
        container = Container(engine, ContainerSpec(tools, owner, SMALL, network=inner.id))
        container.__enter__()
    assert [item.kind for item in engine.owned(owner.trial)] == ["container"]
    container.__exit__(None, None, None)
