"""Connections to the model server: kept for the next call, given up where a body has no end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway

from orchestrator.gateway.server import upstreams

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}


def connections_of_three_calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    with FakeOllama("m") as fake, LiveGateway(folder) as gateway:
        accepted: list[Any] = []
        accept = fake.server.get_request

        def counted() -> Any:
            accepted.append(accept())
            return accepted[-1]

        monkeypatch.setattr(fake.server, "get_request", counted)
        gateway.order("ollama", url=fake.url)
        headers = {"Authorization": f"Bearer {gateway.open()}"}
        for _ in range(3):
            answer = httpx.post(f"{gateway.url}/api/chat", json=ASK, headers=headers, timeout=30)
            assert '"done": true' in answer.text
        return len(accepted)


def test_one_connection_serves_call_after_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connections_of_three_calls(tmp_path, monkeypatch) == 1


def test_a_body_that_was_not_read_out_costs_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left(_: AsyncIterator[bytes]) -> None: ...

    monkeypatch.setattr(upstreams, "read_out", left)
    assert connections_of_three_calls(tmp_path, monkeypatch) == 3


def test_a_body_without_end_is_left_and_a_broken_one_no_failure() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"\n"

    async def broken() -> AsyncIterator[bytes]:
        yield b"\n"
        raise httpx.ReadError("gone")

    async def both() -> None:
        await upstreams.read_out(endless())
        await upstreams.read_out(broken())

    asyncio.run(both())
