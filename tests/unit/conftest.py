from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway


@pytest.fixture
def gateway(tmp_path: Path, fake: FakeOllama) -> Iterator[LiveGateway]:
    """A gateway in front of the module's own `fake`."""
    with LiveGateway(tmp_path) as server:
        server.order("ollama", url=fake.url)
        yield server
