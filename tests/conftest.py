"""Marks everything under tests/engine as needing a Docker engine; keeps tests apart."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE_TESTS = Path(__file__).parent / "engine"


def pytest_configure() -> None:
    """A shell has what it starts in the background ignore Ctrl-C, which tests send."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(ENGINE_TESTS):
            item.add_marker("engine")


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A signal left ignored is inherited by every process that a later test starts: one that
    waits for its terminated workers would wait for ever."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before
