"""The engine that these tests run against, its images, and proof that each test cleans up."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest

from orchestrator.errors import EngineUnavailable
from orchestrator.sandbox import image
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner


@pytest.fixture(scope="session")
def engine() -> Engine:
    """Fails where no engine answers: a suite that skips its engine tests proves nothing."""
    try:
        return Engine.connect()
    except EngineUnavailable as missing:
        pytest.fail(f"{missing} `make engine` starts one; `-m 'not engine'` leaves these out.")


@pytest.fixture(scope="session")
def images(engine: Engine) -> Callable[[str], Image]:
    """An image by the name of its folder, built where it is missing."""
    return lambda name: image.ensure(engine, name)


@pytest.fixture(scope="session")
def tools(images: Callable[[str], Image]) -> str:
    """Id of the helpers' image."""
    return images("tools").id


@pytest.fixture
def owner(engine: Engine) -> Iterator[Owner]:
    """Labels of this test alone. Whatever still carries them when it ends is a failure."""
    trial = f"test-{secrets.token_hex(5)}"
    yield Owner(trial, run="r1", role="step")
    left = engine.owned(trial)
    engine.remove(left)
    assert left == []
