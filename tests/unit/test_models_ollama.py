"""Ollama's inventory against the fake: what refuses a trial, and the sentence it gets."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_ollama import FakeModel, FakeOllama

from orchestrator.errors import (
    ContextTooSmall,
    ModelServerUnreachable,
    ModelUnknown,
    OrchError,
    PreflightFailed,
)
from orchestrator.models.ollama import (
    Ollama,
    parameters_of,
    processor_split,
    pull_progress,
    thinking_refused,
)
from orchestrator.models.reference import parse_reference
from orchestrator.records.schema import ModelRecord


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama(FakeModel("gpt-oss:20b", vram_share=0.59)) as server:
        yield server


@pytest.fixture
def said() -> list[str]:
    return []


def prepare(
    fake: FakeOllama, said: list[str], name: str = "gpt-oss:20b", **more: Any
) -> ModelRecord:
    num_ctx, think = more.pop("num_ctx", 32768), more.pop("think", None)
    with httpx.Client(base_url=fake.url) as http:
        ollama = Ollama(http, "http://ollama.example", **more)
        return ollama.prepare(
            parse_reference(name), num_ctx, keep_alive="1h", think=think, say=said.append
        )


def test_a_model_is_loaded_as_the_trial_will_use_it_and_described(
    fake: FakeOllama, said: list[str]
) -> None:
    model = fake.models["gpt-oss:20b"]
    record = prepare(fake, said)
    assert record.model_dump() == {
        "reference": "gpt-oss:20b",
        "upstream": "ollama",
        "name": "gpt-oss:20b",
        "digest": model.digest,
        "parameters": {
            "temperature": "1",
            "top_k": "64",
            "family": "fake",
            "parameter_size": "20.9B",
            "quantization_level": "MXFP4",
        },
        "size_bytes": model.size,
        "context_loaded": 32768,
        "context_trained": 131072,
        "vram_bytes": int(model.size * 0.59),
        "loaded_bytes": model.size,
        "processor": "41%/59% CPU/GPU",
        "load_s": record.load_s,
        "server": "Ollama 0.33.1",
        "price": None,
        "notes": [],
    }
    assert record.load_s is not None
    assert record.load_s > 0
    (loaded,) = fake.asked("/api/generate")
    assert loaded["options"] == {"num_ctx": 32768}
    assert loaded["shift"] is False
    assert fake.asked("/api/pull") == []
    assert said == ["loading gpt-oss:20b with 32768 tokens of context"]


def test_the_call_that_follows_does_not_load_it_again(fake: FakeOllama, said: list[str]) -> None:
    prepare(fake, said, num_ctx=8192)
    ask = {"model": "gpt-oss:20b", "messages": [{"content": "x"}], "shift": False}
    httpx.post(f"{fake.url}/api/chat", json=ask | {"options": {"num_ctx": 8192, "seed": 1}})
    assert fake.loads == 1


def test_a_missing_model_is_pulled_with_progress(fake: FakeOllama, said: list[str]) -> None:
    fake.pullable = ["qwen3"]
    record = prepare(fake, said, "qwen3")
    assert record.digest == FakeModel("qwen3:latest").digest
    assert said == [
        "pulling qwen3",
        "pulling qwen3: pulling manifest",
        "pulling qwen3: 0% of 12.8 GiB",
        "pulling qwen3: 24% of 12.8 GiB",
        "pulling qwen3: 49% of 12.8 GiB",
        "pulling qwen3: 74% of 12.8 GiB",
        "pulling qwen3: 100% of 12.8 GiB",
        "pulling qwen3: verifying sha256 digest",
        "pulling qwen3: writing manifest",
        "pulling qwen3: success",
        "loading qwen3 with 32768 tokens of context",
    ]


def refused(fake: FakeOllama, kind: type[OrchError], *words: str, **more: Any) -> None:
    with pytest.raises(kind) as error:
        prepare(fake, [], **more)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert all(word in sentence for word in words), sentence


def test_a_model_that_does_not_exist(fake: FakeOllama) -> None:
    refused(fake, ModelUnknown, "nope can't be pulled", "does not exist", name="nope")


def test_a_read_only_folder_can_not_be_pulled_into(fake: FakeOllama) -> None:
    refused(fake, ModelUnknown, "read-only", "ollama pull nope", name="nope", can_pull=False)
    assert fake.asked("/api/pull") == []


def test_a_server_that_loads_less_refuses_the_trial(fake: FakeOllama) -> None:
    fake.context_cap = 4096
    refused(fake, ContextTooSmall, "loaded gpt-oss:20b with 4096", "32768 were asked")


def test_a_model_trained_for_less_refuses_the_trial_unloaded(fake: FakeOllama) -> None:
    fake.models["gpt-oss:20b"].trained = 8192
    refused(fake, ContextTooSmall, "trained for 8192", "--num-ctx 8192")
    assert fake.loads == 0


def test_a_model_that_does_not_think_refuses_to_be_told_how_much(fake: FakeOllama) -> None:
    fake.models["gpt-oss:20b"].thinks = False
    for level in ("on", "low", "high"):
        refused(fake, PreflightFailed, "gpt-oss:20b does not think", level, think=level)
    assert fake.loads == 0
    assert prepare(fake, [], think="off").name == "gpt-oss:20b"


@pytest.mark.parametrize(
    ("described", "think", "says"),
    [
        ({"capabilities": ["thinking"]}, None, None),
        ({"capabilities": ["thinking"]}, "on", None),
        ({"capabilities": ["thinking"]}, "off", None),
        ({"capabilities": ["thinking"]}, "high", None),
        ({"capabilities": ["completion"]}, None, None),
        ({"capabilities": ["completion"]}, "off", None),
        ({"capabilities": ["completion"]}, "low", "does not think"),
        ({}, "low", None),  # too old to tell
        ({"capabilities": ["thinking"], "details": {"family": "gptoss"}}, "low", None),
        ({"capabilities": ["thinking"], "details": {"family": "gptoss"}}, "on", "levels"),
        ({"capabilities": ["thinking"], "details": {"family": "gptoss"}}, "off", "levels"),
    ],
)
def test_who_can_be_told_how_much_to_think(
    described: dict[str, Any], think: str | None, says: str | None
) -> None:
    refusal = thinking_refused(described, think)
    assert refusal is None if says is None else says in str(refusal)


def test_a_model_that_can_not_be_loaded(fake: FakeOllama) -> None:
    fake.faults.append("oom")
    refused(fake, PreflightFailed, "500", "out-of-memory")


def test_no_server() -> None:
    with httpx.Client(base_url="http://127.0.0.1:9") as http:
        ollama = Ollama(http, "http://127.0.0.1:9")
        with pytest.raises(ModelServerUnreachable, match=r"127\.0\.0\.1:9 .*start it"):
            ollama.version()
        with pytest.raises(ModelServerUnreachable):
            ollama.wait_ready(0.3)


def answering(text: str) -> Ollama:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=text))
    return Ollama(httpx.Client(transport=transport, base_url="http://x"), "http://x")


@pytest.mark.parametrize("text", ["<html>", "[]", ""])
def test_something_that_is_no_ollama(text: str) -> None:
    with pytest.raises(ModelServerUnreachable, match="no Ollama"):
        answering(text).version()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"status":"pulling manifest"}\n', "broke off"),
        ("", "broke off"),
        ("<html>\n", "no Ollama answers"),
    ],
)
def test_a_pull_that_breaks_off(text: str, words: str) -> None:
    with pytest.raises(ModelServerUnreachable, match=words):
        answering(text).pull("m", lambda _: None)


def test_an_old_server_that_tells_no_context(fake: FakeOllama, said: list[str]) -> None:
    def without(request: httpx.Request) -> httpx.Response:
        answer = httpx.request(request.method, fake.url + request.url.path, content=request.content)
        value = answer.json()
        for model in value.get("models", ()):
            model.pop("context_length", None)
        return httpx.Response(answer.status_code, json=value)

    with httpx.Client(transport=httpx.MockTransport(without), base_url="http://x") as http:
        record = Ollama(http, "x").prepare(
            parse_reference("gpt-oss:20b"), 4096, keep_alive="1h", say=said.append
        )
    assert record.context_loaded is None
    assert "context not verifiable" in record.notes


@pytest.mark.parametrize(
    ("size", "vram", "split"),
    [
        (100, 0, "100% CPU"),
        (100, 100, "100% GPU"),
        (100, 59, "41%/59% CPU/GPU"),
        (0, 0, None),
        (100, 101, None),
    ],
)
def test_the_split_is_worded_as_ollama_words_it(size: int, vram: int, split: str | None) -> None:
    assert processor_split(size, vram) == split


def test_repeated_parameters_are_kept() -> None:
    text = 'stop    "<|a|>"\nstop    "<|b|>"\ntemperature 0.7\n'
    assert parameters_of({"parameters": text}) == {
        "stop": '"<|a|>", "<|b|>"',
        "temperature": "0.7",
    }


def test_progress_of_a_step_without_a_size() -> None:
    assert pull_progress({"status": "verifying"}) == "verifying"
    assert pull_progress({"status": "x", "total": 0}) == "x"
    assert pull_progress({"status": "x", "total": 1 << 30}) == "0% of 1.0 GiB"
