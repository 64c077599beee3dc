"""The tiny real model: its server answers on the uplink, and writes a stage's reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from model_lab import CALLS, running

from orchestrator.errors import ContextTooSmall
from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models.reference import parse_reference
from orchestrator.models.smollm2 import NAME, managed_smollm2
from orchestrator.records.failures import Attribution
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.trial.upstreams import prepare_own

Images = Callable[[str], Image]
CONTEXT = 2048
ASKED = {
    "model": NAME,
    "messages": [{"role": "user", "content": "Say hello."}],
    "max_tokens": 8,
    "seed": 1,
}


def test_it_answers_where_the_gateway_stands_and_is_closed_in_itself(
    engine: Engine, images: Images, owner: Owner
) -> None:
    with GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as gateway:
        assert gateway.uplink is not None
        said: list[str] = []
        with managed_smollm2(engine, gateway.uplink, owner, CONTEXT, said.append) as server:
            assert "no competitor" in said[0]
            with gateway.http(server.url) as http:
                (model,) = http.get("/v1/models").json()["data"]
                assert (model["id"], model["meta"]["n_ctx"]) == (NAME, CONTEXT)
                answer = http.post("/v1/chat/completions", json=ASKED, timeout=60).json()
            assert answer["choices"][0]["message"]["content"]
            assert 1 <= answer["usage"]["completion_tokens"] <= ASKED["max_tokens"]
            name = server.url.removeprefix("http://").partition(":")[0]
            details = engine.api.inspect_container(name)
            assert details["HostConfig"]["ReadonlyRootfs"] is True
            assert details["Config"]["User"] == "10001:10001"
            assert not any(details["NetworkSettings"]["Ports"].values())
            assert list(details["NetworkSettings"]["Networks"]) == [gateway.uplink.name]


def test_a_stage_with_a_real_model_is_recorded_and_its_failure_is_the_models(
    engine: Engine, images: Images, tools: str, owner: Owner
) -> None:
    few = replace(CALLS, num_ctx=CONTEXT, max_reply_tokens=24)
    with GatewayService(engine, images("gateway"), owner, few, Uplink()) as gateway:
        assert gateway.uplink is not None
        with (
            managed_smollm2(engine, gateway.uplink, owner, CONTEXT, print) as server,
            running(engine, gateway, images("agent"), tools, owner) as run,
        ):
            reference = parse_reference(f"openai/{NAME}")
            record = prepare_own(reference, server, CONTEXT, gateway)
            assert (record.context_loaded, record.context_trained) == (CONTEXT, 8192)
            access = run.open(reference.text, seed=1)
            report = run.work(access)
            calls = list(gateway.close(access))
            assert run.files(tools) == {"SPEC.md": "Do it.\n"}
    # What it says differs from machine to machine; in 24 tokens it can be no whole program.
    assert report.failure is not None
    assert report.failure.attribution is Attribution.MODEL
    # Once more where what it said looked like a file that was cut.
    assert len(calls) in (1, 2)
    for call in calls:
        assert call.error is None
        assert call.upstream == "openai"
        assert call.reply
        assert 1 <= call.reply_tokens <= 24
        assert call.prompt_tokens > 0
        assert not call.tokens_estimated


def test_more_context_than_it_has_is_refused_before_anything_starts(
    engine: Engine, owner: Owner
) -> None:
    with (
        pytest.raises(ContextTooSmall, match="use --num-ctx 8192"),
        managed_smollm2(engine, None, owner, 32768, print),  # type: ignore[arg-type]
    ):
        pass
