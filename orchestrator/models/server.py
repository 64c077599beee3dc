"""The model server of a trial: the one the user named, or one that orch starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config import Settings
from orchestrator.models.managed import ModelServer, managed_ollama
from orchestrator.models.ollama import Say
from orchestrator.models.relay import route
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.network import Network


@contextmanager
def model_server(
    engine: Engine, uplink: Network, owner: Owner, settings: Settings, say: Say
) -> Iterator[ModelServer]:
    """There while the block lasts; a server of the user's is left as it was found.

    Raises UsageError, ModelServerUnreachable, ImageMissing, GpuUnavailable, engine errors.
    """
    if settings.ollama_url is not None:
        with route(settings.ollama_url, engine.info(), uplink.subnet) as url:
            yield ModelServer(url, shown=settings.ollama_url, can_pull=True)
    else:
        with managed_ollama(engine, uplink, owner, settings, say) as server:
            yield server
