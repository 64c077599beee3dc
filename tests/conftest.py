"""Marks everything under tests/engine as needing a Docker engine."""

from pathlib import Path

import pytest

ENGINE_TESTS = Path(__file__).parent / "engine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(ENGINE_TESTS):
            item.add_marker("engine")
