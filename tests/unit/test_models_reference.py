"""Model references: what users may write, and the sentence they get otherwise."""

import pytest

from orchestrator.errors import ModelUnknown
from orchestrator.models.reference import ModelKind, parse_reference


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("gpt-oss:20b", ModelKind.OLLAMA, "gpt-oss:20b"),
        ("qwen3-coder:30b-a3b", ModelKind.OLLAMA, "qwen3-coder:30b-a3b"),
        ("llama3", ModelKind.OLLAMA, "llama3"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", ModelKind.OLLAMA, None),
        ("registry.local:5000/team/model:tag", ModelKind.OLLAMA, None),
        (" scripted/careful ", ModelKind.SCRIPTED, "careful"),
        ("scripted/text-only", ModelKind.SCRIPTED, "text-only"),
        ("openai/gpt-4.1-mini", ModelKind.OPENAI, "gpt-4.1-mini"),
        ("openai/meta-llama/llama-3:free", ModelKind.OPENAI, "meta-llama/llama-3:free"),
        ("anthropic/claude-opus-5", ModelKind.ANTHROPIC, "claude-opus-5"),
        ("ollama/llama3", ModelKind.OLLAMA, "ollama/llama3"),
    ],
)
def test_parses(text: str, kind: ModelKind, name: str | None) -> None:
    reference = parse_reference(text)
    assert reference.kind is kind
    assert reference.name == (text if name is None else name)
    assert reference.text == text.strip()
    assert reference.needs_upstream is (kind is not ModelKind.SCRIPTED)
    assert reference.needs_ollama is (kind is ModelKind.OLLAMA)


@pytest.mark.parametrize(
    "text", ["", " ", "a b", "-x", "scripted/", "scripted/../x", "model:", ":tag", "x//y", "ä"]
)
def test_refuses_what_is_no_reference(text: str) -> None:
    with pytest.raises(ModelUnknown, match="no model reference"):
        parse_reference(text)
