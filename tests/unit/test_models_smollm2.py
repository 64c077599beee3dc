"""When `openai/smollm2` means the model that orch serves itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.config import Settings
from orchestrator.errors import ConfigInvalid
from orchestrator.models.reference import parse_reference
from orchestrator.trial.upstreams import check_remote, own_model

ELSEWHERE = "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("models", "url", "own"),
    [
        (["openai/smollm2"], None, True),
        (["openai/smollm2", "scripted/careful", "gpt-oss:20b"], None, True),
        (["openai/smollm2"], ELSEWHERE, False),
        (["openai/smollm2", "openai/other"], None, False),
        (["openai/other"], None, False),
        (["smollm2"], None, False),
    ],
)
def test_it_is_served_where_no_server_and_no_other_of_its_kind_is_named(
    models: Sequence[str], url: str | None, own: bool
) -> None:
    settings = Settings(openai_url=url) if url else Settings()
    references = [parse_reference(text) for text in models]
    assert own_model(settings, references) == (references[0] if own else None)


def test_it_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    check_remote(Settings(), [parse_reference("openai/smollm2")], None)
    with pytest.raises(ConfigInvalid, match="OPENAI_API_KEY"):
        check_remote(Settings(), [parse_reference("openai/other")], None)
