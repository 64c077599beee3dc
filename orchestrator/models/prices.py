"""What models cost: the prices that come along, and the user's, which go before."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from orchestrator.config import ANTHROPIC_URL, OPENAI_URL, Price, Settings
from orchestrator.models.reference import ModelKind, ModelReference

FILE = Path(__file__).with_name("prices.toml")


def known_prices() -> dict[str, Price]:
    """Model reference → price, of the providers' public addresses."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {reference: Price.model_validate(table) for reference, table in tables.items()}


def price_of(settings: Settings, reference: ModelReference) -> Price | None:
    """None where none is known: then no cost is computed."""
    given: Mapping[str, Price] = settings.prices
    if reference.text in given:
        return given[reference.text]
    public = {
        ModelKind.OPENAI: settings.openai_url.rstrip("/") == OPENAI_URL,
        ModelKind.ANTHROPIC: settings.anthropic_url.rstrip("/") == ANTHROPIC_URL,
    }
    return known_prices().get(reference.text) if public.get(reference.kind) else None
