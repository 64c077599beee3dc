"""The gateway in its container: what an agent's container reaches, what it is refused, what is
recorded, and the way to an Ollama on the host's loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fake_ollama import FakeModel, FakeOllama
from model_lab import CALLS, Run, ask, chat, reachable, running

from orchestrator.errors import (
    ContainerLost,
    EngineError,
    EngineRefused,
    ModelServerUnreachable,
    NotEnoughSpace,
)
from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models.ollama import Ollama
from orchestrator.models.reference import parse_reference
from orchestrator.models.relay import route
from orchestrator.records.failures import FailureClass
from orchestrator.sandbox import network
from orchestrator.sandbox.container import Container, ContainerSpec, Hardening
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner

Images = Callable[[str], Image]

SCRIPTS = {
    "careful": {"explore": {0: "### FILE: explore.py\n````\nprint('careful')\n````\n"}},
    "careless": {"explore": {0: "### FILE: explore.py\n````\nprint('careless')\n````\n"}},
}


@pytest.fixture
def gateway(engine: Engine, images: Images, owner: Owner) -> Iterator[GatewayService]:
    with GatewayService(engine, images("gateway"), owner, CALLS) as service:
        service.load_scripts(SCRIPTS)
        yield service


@pytest.fixture
def run(
    engine: Engine, gateway: GatewayService, images: Images, tools: str, owner: Owner
) -> Iterator[Run]:
    with running(engine, gateway, images("agent"), tools, owner) as one:
        yield one


def agents_container(run: Run, image: Image, net: network.Network | None = None) -> Container:
    spec = ContainerSpec(image.id, run.owner.as_role("agent"), network=(net or run.net).id)
    return Container(run.engine, spec)


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a service of the host that listens on all addresses."""
    with socket.create_server(("", 0), backlog=16) as listening:
        yield int(listening.getsockname()[1])


def bridges(engine: Engine) -> list[str]:
    return [
        place["Gateway"]
        for one in engine.api.networks()
        for place in one["IPAM"]["Config"] or ()
        if place.get("Gateway")
    ]


def test_from_an_agents_container_only_the_gateway_answers(
    run: Run, images: Images, listener: int
) -> None:
    inside = [("gateway", 11434)]
    outside = [(address, listener) for address in bridges(run.engine)]
    outside += [("192.0.2.1", 443), ("example.com", 80)]
    with agents_container(run, images("agent")) as container:
        assert reachable(container, inside + outside) == inside


def test_the_same_on_an_open_network_reaches_the_host(
    run: Run, images: Images, listener: int
) -> None:
    outside = [(address, listener) for address in bridges(run.engine)]
    with (
        network.bridge(run.engine, run.owner) as opened,
        agents_container(run, images("agent"), opened) as container,
    ):
        assert reachable(container, outside) != []


def test_the_gateway_is_closed_in_itself(
    engine: Engine, run: Run, gateway: GatewayService, listener: int
) -> None:
    container = gateway.container
    details = engine.api.inspect_container(container.id)
    assert details["NetworkSettings"]["Ports"] in ({}, None)
    assert details["HostConfig"]["ReadonlyRootfs"] is True
    assert details["HostConfig"]["CapDrop"] == ["ALL"]
    assert container.exec(("id", "-u"), timeout_s=30).stdout.text.strip() == "10001"
    assert container.exec(("touch", "/opt/gateway/x"), timeout_s=30).exit_code != 0
    lifted = replace(
        container.spec, network=None, user="0:0", command=None,
        hardening=Hardening(read_only_root=False),
    )  # fmt: skip
    with Container(engine, lifted) as opened:
        assert opened.exec(("touch", "/opt/gateway/x"), timeout_s=30).exit_code == 0
    # Without an uplink it has no way out either.
    outside = [(address, listener) for address in bridges(engine)]
    assert reachable(container, outside) == []


def test_with_an_uplink_the_gateway_has_a_way_out(
    engine: Engine, images: Images, owner: Owner, listener: int
) -> None:
    with GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as service:
        assert service.uplink is not None
        outside = [(address, listener) for address in bridges(engine)]
        assert reachable(service.container, outside) != []


def test_an_uplink_that_somebody_else_keeps(engine: Engine, images: Images, owner: Owner) -> None:
    with network.bridge(engine, owner) as compose:
        with GatewayService(
            engine, images("gateway"), owner, CALLS, Uplink(compose.name)
        ) as service:
            assert service.uplink == compose
            assert network.address(engine, compose, service.container)
        assert network.existing(engine, compose.name) == compose
    with (
        pytest.raises(EngineRefused, match="not found"),
        GatewayService(engine, images("gateway"), owner, CALLS, Uplink("orch-no-such-network")),
    ):
        pass


def test_only_the_right_token_from_the_right_network_reaches_its_model(
    engine: Engine, run: Run, gateway: GatewayService, images: Images, tools: str, owner: Owner
) -> None:
    access = run.open()
    with agents_container(run, images("agent")) as agent:
        status, text = ask(agent, access, "/api/chat", chat("careful"))
        assert status == 200
        assert json.loads(text.splitlines()[-1])["done"] is True
        assert ask(agent, access, "/api/chat", chat("careful"), token="wrong")[0] == 401
        assert ask(agent, access, "/api/chat", chat("careless"))[0] == 404
        assert ask(agent, access, "/api/pull", {"model": "careful"})[0] == 403
        assert ask(agent, access, "/api/delete", {"model": "careful"}, method="DELETE")[0] == 403
        tags = json.loads(ask(agent, access, "/api/tags", method="GET")[1])
        assert [model["name"] for model in tags["models"]] == ["careful"]
        with network.internal(engine, owner.as_role("other-run")) as other:
            gateway.attach(other)
            with agents_container(run, images("agent"), other) as stranger:
                status, text = ask(stranger, access, "/api/chat", chat("careful"))
                assert status == 403
                assert "network" in text
                # It is the network that is refused: from any, the same container is served.
                anywhere = gateway.open(
                    run="r", stage="explore", turn=0, model=parse_reference("scripted/careful"),
                    seed=1, network=replace(run.net, subnet="0.0.0.0/0"),
                )  # fmt: skip
                assert ask(stranger, anywhere, "/api/chat", chat("careful"))[0] == 200
    calls = list(gateway.close(access))
    assert [(call.error.cause if call.error else "ok") for call in calls] == [
        "ok", "refused", "refused", "refused",
    ]  # fmt: skip
    assert gateway.status()["refused"] == {"unknown-token": 1, "endpoint": 2, "wrong-network": 1}
    with agents_container(run, images("agent")) as agent:
        assert ask(agent, access, "/api/chat", chat("careful"))[0] == 401


def test_two_runs_at_once_get_their_own(
    engine: Engine, gateway: GatewayService, images: Images, tools: str, owner: Owner
) -> None:
    first = Owner(owner.trial, "run-careful", "agent")
    second = Owner(owner.trial, "run-careless", "agent")
    with (
        running(engine, gateway, images("agent"), tools, first) as one,
        running(engine, gateway, images("agent"), tools, second) as two,
    ):
        pairs = [(one, one.open("scripted/careful")), (two, two.open("scripted/careless"))]
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(lambda pair: pair[0].work(pair[1]), pairs))
        assert [report.written for report in reports] == [["explore.py"], ["explore.py"]]
        for run, access in pairs:
            (call,) = gateway.close(access)
            assert call.run == run.owner.run
            assert call.model == access.model
            assert f"print('{access.model}')" in call.reply
            assert run.files(tools)["explore.py"] == f"print('{access.model}')\n"


def test_a_gateway_that_was_killed_leaves_its_record_and_a_successor(
    engine: Engine, run: Run, gateway: GatewayService, images: Images
) -> None:
    assert gateway.revive() is False
    access = run.open()
    with agents_container(run, images("agent")) as agent:
        assert ask(agent, access, "/api/chat", chat("careful"))[0] == 200
        engine.api.kill(gateway.container.id)
        left = gateway.close(access)
        assert "careful" in next(left).reply
        with pytest.raises(ContainerLost):
            next(left)
        with pytest.raises(EngineError):
            run.open()
        assert gateway.revive() is True
        gateway.attach(run.net)
        assert ask(agent, access, "/api/chat", chat("careful"))[0] == 401
        access = run.open()
        assert ask(agent, access, "/api/chat", chat("careful"))[0] == 200
    assert [call.seq for call in gateway.close(access)] == [0]


def test_what_the_disk_could_not_take_is_told_after_what_it_could(
    engine: Engine, run: Run, gateway: GatewayService, images: Images
) -> None:
    access = run.open()
    with agents_container(run, images("agent")) as agent:
        assert ask(agent, access, "/api/chat", chat("careful"))[0] == 200
        # As on a full disk: the file takes no further line.
        gateway.container.exec(("chmod", "0400", access.file), timeout_s=20)
        _, text = ask(agent, access, "/api/chat", chat("careful"))
        assert "host-disk-full: a call can't be recorded" in text
        assert ask(agent, access, "/api/chat", chat("careful"))[0] == 507
    left = gateway.close(access)
    assert next(left).seq == 0
    with pytest.raises(NotEnoughSpace, match="could not keep all calls of explore"):
        next(left)


def test_orders_that_make_no_sense(gateway: GatewayService, run: Run) -> None:
    access = run.open()
    assert list(gateway.close(access)) == []
    with pytest.raises(EngineRefused, match="no such token"):
        gateway.close(access)


# --- an Ollama on the host's loopback, through the relay ------------------------------------


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama(FakeModel("gpt-oss:20b", vram_share=0.59)) as server:
        server.reply = "### FILE: explore.py\n````python\nprint('from the model')\n````\n"
        yield server


@pytest.fixture
def served(
    engine: Engine, images: Images, owner: Owner, fake: FakeOllama
) -> Iterator[tuple[GatewayService, Ollama]]:
    with GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as service:
        assert service.uplink is not None
        with route(fake.url, engine.info(), service.uplink.subnet) as url:
            assert "127.0.0.1" not in url
            service.use_ollama(url)
            with service.http(url) as http:
                yield service, Ollama(http, fake.url)


def test_the_orchestrator_asks_the_server_from_where_the_gateway_stands(
    served: tuple[GatewayService, Ollama], fake: FakeOllama
) -> None:
    _, ollama = served
    said: list[str] = []
    fake.pullable = ["qwen3-coder:30b"]
    assert ollama.wait_ready(20) == "0.33.1"
    for name in ("gpt-oss:20b", "qwen3-coder:30b"):
        record = ollama.prepare(parse_reference(name), 8192, keep_alive="1h", say=said.append)
        assert record.context_loaded == 8192
        assert record.digest
    assert "pulling qwen3-coder:30b: 49% of 12.8 GiB" in said
    assert said[-1] == "loading qwen3-coder:30b with 8192 tokens of context"
    assert record.processor == "100% GPU"
    assert {request["client"] for request in fake.requests} == {"127.0.0.1"}


def test_a_server_that_is_not_there_is_said_with_the_users_address(
    engine: Engine, images: Images, owner: Owner
) -> None:
    with GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as service:
        assert service.uplink is not None
        with (
            route("http://127.0.0.1:9", engine.info(), service.uplink.subnet) as url,
            service.http(url) as http,
            pytest.raises(ModelServerUnreachable, match=r"127\.0\.0\.1:9 "),
        ):
            Ollama(http, "http://127.0.0.1:9").version()


def test_a_stage_with_a_model_end_to_end(
    engine: Engine,
    served: tuple[GatewayService, Ollama],
    fake: FakeOllama,
    images: Images,
    tools: str,
    owner: Owner,
) -> None:
    service, ollama = served
    ollama.prepare(parse_reference("gpt-oss:20b"), 8192, keep_alive="1h", say=lambda _: None)
    fake.thinking = "Let me see."
    with running(engine, service, images("agent"), tools, owner) as run:
        access = run.open("gpt-oss:20b", seed=11)
        report = run.work(access)
        (call,) = service.close(access)
        assert report.failure is None
        assert run.files(tools) == {
            "SPEC.md": "Do it.\n",
            "explore.py": "print('from the model')\n",
        }
    (sent,) = fake.asked("/api/chat")
    assert sent["options"] == {"num_ctx": 8192, "seed": 11, "num_predict": 2000}
    assert (sent["truncate"], sent["shift"]) == (False, False)
    assert fake.loads == 1  # the warm-up loaded it as the calls use it
    assert call.reply == fake.reply
    assert call.thinking == "Let me see."
    assert call.timings.load_s == 0
    assert call.prompt_tokens > 0


FAULTS = {
    "cut": FailureClass.MODEL_SERVER_ERROR,
    "no-done": FailureClass.MODEL_SERVER_ERROR,
    "error-line": FailureClass.MODEL_SERVER_ERROR,
    "oom": FailureClass.MODEL_SERVER_ERROR,
    "not-found": FailureClass.MODEL_UNAVAILABLE,
    "empty": FailureClass.NO_EDITS,
    "think-only": FailureClass.REASONING_EXHAUSTED,
}


def test_half_a_reply_never_reaches_the_workspace(
    engine: Engine,
    served: tuple[GatewayService, Ollama],
    fake: FakeOllama,
    images: Images,
    tools: str,
    owner: Owner,
) -> None:
    service, _ = served
    with running(engine, service, images("agent"), tools, owner) as run:
        for fault, failure_class in FAULTS.items():
            fake.faults.extend([fault] * 9)
            access = run.open("gpt-oss:20b")
            report = run.work(access)
            calls = list(service.close(access))
            fake.faults.clear()
            assert report.failure is not None
            assert report.failure.failure_class is failure_class, fault
            assert report.written == []
            assert 1 <= sum(len(call.attempts) for call in calls) <= 3
        assert run.files(tools) == {"SPEC.md": "Do it.\n"}
        # The same without a fault lands.
        access = run.open("gpt-oss:20b")
        assert run.work(access).written == ["explore.py"]
        service.close(access)
