"""The Ollama that orch starts, with an image that has the fake where Ollama would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from model_lab import CALLS, build_fake_image, reachable, running

from orchestrator.config import Settings
from orchestrator.errors import GpuUnavailable, ImageMissing, ModelUnknown
from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models import managed
from orchestrator.models.ollama import Ollama
from orchestrator.models.reference import parse_reference
from orchestrator.models.server import model_server
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import Container, ContainerSpec, Gpu
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.network import Network

Images = Callable[[str], Image]
MODEL = parse_reference("m")


@pytest.fixture(scope="module")
def fake_image(engine: Engine, tools: str) -> Iterator[str]:
    name = build_fake_image(engine, tools)
    yield name
    engine.api.remove_image(name, force=True)


@pytest.fixture
def gateway(engine: Engine, images: Images, owner: Owner) -> Iterator[GatewayService]:
    with GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as service:
        yield service


@pytest.fixture
def uplink(gateway: GatewayService) -> Network:
    assert gateway.uplink is not None
    return gateway.uplink


@pytest.fixture
def own_models(engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A models volume of this test's own, in place of the one that is shared."""
    name = f"{owner.trial}-models"
    monkeypatch.setattr(managed, "MODELS_VOLUME", name)
    yield name
    engine.remove_volume(name)


def test_it_serves_a_stage_and_only_the_gateway_reaches_it(
    engine: Engine,
    images: Images,
    tools: str,
    owner: Owner,
    gateway: GatewayService,
    uplink: Network,
    fake_image: str,
    own_models: str,
) -> None:
    said: list[str] = []
    settings = Settings(ollama_image=fake_image)
    with model_server(engine, uplink, owner, settings, said.append) as server:
        gateway.use_ollama(server.url)
        with gateway.http(server.url) as http:
            ollama = Ollama(http, server.shown, can_pull=server.can_pull)
            ollama.wait_ready(30)
            record = ollama.prepare(MODEL, 8192, keep_alive="1h", say=said.append)
        assert record.context_loaded == 8192
        assert server.can_pull
        assert "no GPU for Ollama" in said[0]
        host = server.url.removeprefix("http://").removesuffix(":11434")
        with running(engine, gateway, images("agent"), tools, owner) as run:
            access = run.open("m")
            report = run.work(access)
            assert report.failure is not None
            assert report.failure.reason == "prose-only"
            (call,) = gateway.close(access)
            assert call.reply == "Hello.\n"
            details = engine.api.inspect_container(host)
            assert details["NetworkSettings"]["Ports"] in ({}, None) or not any(
                details["NetworkSettings"]["Ports"].values()
            )
            address = details["NetworkSettings"]["Networks"][uplink.name]["IPAddress"]
            spec = ContainerSpec(images("agent").id, run.owner, network=run.net.id)
            with Container(engine, spec) as agent:
                assert reachable(agent, [(address, 11434), (host, 11434)]) == []
            assert reachable(gateway.container, [(address, 11434)]) == [(address, 11434)]
        environment = set(details["Config"]["Env"])
        assert {"OLLAMA_MAX_LOADED_MODELS=1", "OLLAMA_NUM_PARALLEL=1"} <= environment
        assert [mount["Name"] for mount in details["Mounts"]] == [own_models]
    roles = {item.owner.role for item in engine.owned(owner.trial) if item.kind == "container"}
    assert roles == {"gateway"}
    # The models outlive it: no trial's, and named for `orch clean`.
    kept = [item for item in engine.owned("") if item.name == own_models]
    assert [item.owner.role for item in kept] == ["ollama-models"]


def test_a_hosts_model_folder_is_used_read_only(
    engine: Engine, owner: Owner, uplink: Network, gateway: GatewayService, fake_image: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "manifests").mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "manifests" / "here").write_text("x")
    settings = Settings(ollama_image=fake_image, ollama_models=tmp_path)
    with model_server(engine, uplink, owner, settings, lambda _: None) as server:
        host = server.url.removeprefix("http://").removesuffix(":11434")
        details = engine.api.inspect_container(host)
        (mount,) = details["Mounts"]
        assert (mount["Destination"], mount["RW"]) == ("/models", False)
        assert "OLLAMA_NOPRUNE=1" in details["Config"]["Env"]
        with gateway.http(server.url) as http:
            ollama = Ollama(http, server.shown, can_pull=server.can_pull)
            ollama.wait_ready(30)
            with pytest.raises(ModelUnknown, match="read-only"):
                ollama.prepare(parse_reference("other"), 4096, keep_alive="1h", say=lambda _: None)
        spec = ContainerSpec(fake_image, owner, mounts=(volume.Volume(mount["Name"]).at("/m"),))
        with Container(engine, spec) as look:
            assert look.exec(("cat", "/m/manifests/here"), timeout_s=30).stdout.text == "x"
    assert (tmp_path / "manifests" / "here").read_text() == "x"
    assert [item.kind for item in engine.owned(owner.trial) if item.owner.role == "ollama"] == []


@pytest.mark.parametrize("mode", ["legacy", "cdi"])
def test_a_gpu_is_asked_for_as_the_engine_wants_it(
    engine: Engine, owner: Owner, uplink: Network, fake_image: str, own_models: str, mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No GPU here: the request is seen in the engine's refusal, which has a sentence of its own."""
    monkeypatch.setattr(managed, "choose_gpu", lambda *_: Gpu("cdi" if mode == "cdi" else "legacy"))
    settings = Settings(ollama_image=fake_image)
    with (
        pytest.raises(GpuUnavailable, match="nvidia" if mode == "legacy" else "cdi"),
        model_server(engine, uplink, owner, settings, lambda _: None),
    ):
        pass
    assert [i for i in engine.owned(owner.trial) if i.owner.role == "ollama"] == []


def test_an_image_that_can_not_be_had(engine: Engine, owner: Owner, uplink: Network) -> None:
    settings = Settings(ollama_image="orch-test/never-built:1")
    with (
        pytest.raises(ImageMissing, match="docker pull"),
        model_server(engine, uplink, owner, settings, lambda _: None),
    ):
        pass
