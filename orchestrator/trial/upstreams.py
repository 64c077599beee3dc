"""The models of a trial that are behind an API: refused early, made ready, made known."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from orchestrator.config import OPENAI_URL, Settings
from orchestrator.errors import UsageError
from orchestrator.gateway.service import GatewayService
from orchestrator.models import smollm2
from orchestrator.models.managed import ModelServer
from orchestrator.models.prices import price_of
from orchestrator.models.reference import REMOTE, ModelKind, ModelReference
from orchestrator.models.relay import route
from orchestrator.models.remote import Access, RemoteModels, access_to
from orchestrator.records.schema import ModelRecord
from orchestrator.sandbox.engine import Engine

ANTHROPIC_HOTTEST = 1.0


def check_remote(
    settings: Settings,
    references: Sequence[ModelReference],
    temperature: float | None,
    think: str | None = None,
) -> None:
    """What can be known without asking. Raises UsageError, ConfigInvalid."""
    own = own_model(settings, references)
    for kind in _kinds(references):
        if own is None or kind is not own.kind:
            access_to(kind, settings)
        if think is not None:
            raise UsageError(f"--think is for models of Ollama; a model {kind}/NAME can't be told")
        if kind is ModelKind.ANTHROPIC and (temperature or 0) > ANTHROPIC_HOTTEST:
            raise UsageError(
                f"--temperature {temperature:g} is more than the Anthropic API takes; use at most 1"
            )


def remote_models(
    settings: Settings,
    engine: Engine,
    references: Sequence[ModelReference],
    num_ctx: int,
    gateway: GatewayService,
    stack: ExitStack,
) -> list[ModelRecord]:
    """Tell the gateway of each API, with its key; ask from there for each model.

    The way to one on this host's loopback is kept until `stack` is left.
    """
    found = []
    for kind in _kinds(references):
        assert gateway.uplink is not None
        access = access_to(kind, settings)
        url = stack.enter_context(
            route(access.shown, engine.info(), gateway.uplink.subnet, access.api.option)
        )
        gateway.use_remote(kind.value, url, access.key)
        with gateway.http(url, access.headers) as http:
            models = RemoteModels(http, url, access)
            found += [
                models.prepare(one, num_ctx, price_of(settings, one))
                for one in references
                if one.kind is kind
            ]
    return found


def own_model(settings: Settings, references: Sequence[ModelReference]) -> ModelReference | None:
    """The model that orch serves itself, where it is the only one of its kind and no server is
    named for that."""
    same = [one for one in references if one.kind is ModelKind.OPENAI]
    if settings.openai_url != OPENAI_URL or [one.name for one in same] != [smollm2.NAME]:
        return None
    return same[0]


def prepare_own(
    reference: ModelReference, server: ModelServer, num_ctx: int, gateway: GatewayService
) -> ModelRecord:
    """Tell the gateway of the server that orch started, without any key; ask for the model."""
    url = f"{server.url}/v1"
    gateway.use_remote(reference.kind.value, url, "")
    with gateway.http(url) as http:
        models = RemoteModels(http, url, Access(reference.kind, server.shown, ""))
        return models.prepare(reference, num_ctx)


def _kinds(references: Sequence[ModelReference]) -> list[ModelKind]:
    return sorted({one.kind for one in references} & REMOTE)
