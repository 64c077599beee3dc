"""APIs behind `openai/NAME` and `anthropic/NAME`: addresses, keys, what is refused before a run."""

from collections.abc import Iterator

import httpx
import pytest
from fake_apis import FakeApis

from orchestrator.config import Price, Settings
from orchestrator.errors import (
    ConfigInvalid,
    ContextTooSmall,
    ModelServerUnreachable,
    ModelUnknown,
    OrchError,
    PreflightFailed,
    UsageError,
)
from orchestrator.models.prices import known_prices, price_of
from orchestrator.models.reference import ModelKind, parse_reference
from orchestrator.models.remote import Access, RemoteModels, access_to, base_of, context_of
from orchestrator.records.calls import CallRecord, cost_of, usage_of
from orchestrator.records.schema import ModelRecord
from orchestrator.trial.upstreams import check_remote

KEY = "sk-test-0123456789abcdef"
OPENAI, ANTHROPIC = ModelKind.OPENAI, ModelKind.ANTHROPIC
MODELS = {OPENAI: "openai/fake", ANTHROPIC: "anthropic/fake"}


@pytest.fixture
def fake() -> Iterator[FakeApis]:
    with FakeApis(key=KEY) as server:
        yield server


def prepare(
    fake: FakeApis, model: str, num_ctx: int = 4096, *, key: str = KEY, url: str = ""
) -> ModelRecord:
    reference = parse_reference(model)
    base = base_of(reference.kind, url or fake.url)
    access = Access(reference.kind, base, key)
    with httpx.Client(base_url=base, headers=access.headers) as http:
        return RemoteModels(http, base, access).prepare(reference, num_ctx)


# --- addresses and keys --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "url", "base"),
    [
        (OPENAI, "http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        (OPENAI, "127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
        (OPENAI, "https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
        (OPENAI, "https://api.openai.com/v1", "https://api.openai.com/v1"),
        (ANTHROPIC, "https://api.anthropic.com/v1/", "https://api.anthropic.com"),
        (ANTHROPIC, "http://box:1/proxy", "http://box:1/proxy"),
    ],
)
def test_addresses(kind: ModelKind, url: str, base: str) -> None:
    assert base_of(kind, url) == base


@pytest.mark.parametrize("url", ["ftp://x", "", "http://user:secret@x", "http://x/v1?key=secret"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="--openai-url") as raised:
        base_of(OPENAI, url)
    assert "http://user:secret@x" not in str(raised.value)


def test_keys_are_those_of_the_environment_and_are_not_shown() -> None:
    access = access_to(OPENAI, Settings(), {"OPENAI_API_KEY": f" {KEY}\n"})
    assert access.headers == {"authorization": f"Bearer {KEY}"}
    assert KEY not in repr(access)
    assert access_to(ANTHROPIC, Settings(), {"ANTHROPIC_API_KEY": KEY}).headers["x-api-key"] == KEY
    local = Settings(openai_url="http://127.0.0.1:8080")
    assert access_to(OPENAI, local, {}).headers == {}


@pytest.mark.parametrize(
    ("kind", "environ", "words"),
    [
        (OPENAI, {}, "OPENAI_API_KEY is not set"),
        (ANTHROPIC, {"OPENAI_API_KEY": KEY}, "ANTHROPIC_API_KEY is not set"),
        (OPENAI, {"OPENAI_API_KEY": "two words"}, "a character that no key has"),
        (OPENAI, {"OPENAI_API_KEY": "schlüssel"}, "a character that no key has"),
    ],
)
def test_keys_that_cant_be(kind: ModelKind, environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words) as raised:
        access_to(kind, Settings(), environ)
    assert all(value not in str(raised.value) for value in environ.values())


def test_a_temperature_that_anthropic_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    references = [parse_reference("anthropic/m")]
    check_remote(Settings(), references, 1.0, None)
    with pytest.raises(UsageError, match=r"--temperature 1\.5"):
        check_remote(Settings(), references, 1.5, None)
    with pytest.raises(UsageError, match="--think is for models of Ollama"):
        check_remote(Settings(), references, None, "low")


# --- before a run --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OPENAI, ANTHROPIC])
def test_a_model_that_is_there(fake: FakeApis, kind: ModelKind) -> None:
    record = prepare(fake, MODELS[kind])
    assert (record.upstream, record.name) == (kind.value, "fake")
    assert "context not verifiable" in record.notes
    assert any("seed" in note for note in record.notes)
    assert KEY not in record.model_dump_json()


@pytest.mark.parametrize("kind", [OPENAI, ANTHROPIC])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"key": "sk-wrong-key"}, PreflightFailed, r"refuses the key in \w+_API_KEY \(401\)"),
        ({"key": ""}, PreflightFailed, r"\w+_API_KEY is not set"),
        ({"url": "http://127.0.0.1:9"}, ModelServerUnreachable, "no .* API answers at .*:9"),
        ({"model": "nope"}, ModelUnknown, "has no model 'nope'"),
    ],
)
def test_what_is_refused(
    fake: FakeApis, kind: ModelKind, change: dict[str, str], error: type[OrchError], words: str
) -> None:
    more = dict(change)
    model = MODELS[kind].replace("fake", more.pop("model", "fake"))
    with pytest.raises(error, match=words) as raised:
        prepare(fake, model, **more)  # type: ignore[arg-type]
    assert raised.value.exit_code == 2
    assert "sk-" not in str(raised.value)
    assert not any(request["body"] for request in fake.requests)


def test_the_nearest_name_and_no_api_at_all(fake: FakeApis) -> None:
    with pytest.raises(ModelUnknown, match="did you mean 'fake'"):
        prepare(fake, "openai/fakee")
    fake.models = [f"m{number}" for number in range(9)]
    with pytest.raises(ModelUnknown, match="it has: m0, m1, m2, m3, m4 and 4 more"):
        prepare(fake, "openai/zzz")
    with pytest.raises(PreflightFailed, match="answered the question for its models with 404"):
        prepare(fake, "openai/fake", url=f"{fake.url}/elsewhere")


@pytest.mark.parametrize(
    ("num_ctx", "words"),
    [(4097, "with 4096 tokens of context.*--num-ctx 4096"), (9000, "at most 8192 tokens")],
)
def test_llamacpp_tells_its_context(fake: FakeApis, num_ctx: int, words: str) -> None:
    fake.llamacpp_context = 4096
    record = prepare(fake, "openai/fake", 4096)
    assert (record.context_loaded, record.context_trained) == (4096, 8192)
    assert "context not verifiable" not in record.notes
    with pytest.raises(ContextTooSmall, match=words):
        prepare(fake, "openai/fake", num_ctx)


def test_vllm_tells_its_context_too(fake: FakeApis) -> None:
    fake.entry = {"max_model_len": 2048}
    with pytest.raises(ContextTooSmall, match="--num-ctx 2048"):
        prepare(fake, "openai/fake", 4096)


@pytest.mark.parametrize(
    ("entry", "props", "loaded", "trained"),
    [
        ({}, {}, None, None),
        ({"meta": None}, {"default_generation_settings": None}, None, None),
        ({"meta": {"n_ctx": 1024, "n_ctx_train": 2048}}, {}, 1024, 2048),
        ({"context_length": 131072}, {}, None, 131072),
        ({"meta": {"n_ctx": 8192}}, {"default_generation_settings": {"n_ctx": 2048}}, 2048, None),
        ({"max_model_len": "many", "context_length": True}, {}, None, None),
    ],
)
def test_contexts(
    entry: dict[str, object], props: dict[str, object], loaded: int | None, trained: int | None
) -> None:
    assert context_of(entry, props) == (loaded, trained)


# --- prices --------------------------------------------------------------------------------

PRICE = Price(input=2.0, output=8.0, cached_input=0.5)


def call(prompt: int, reply: int, cached: int = 0) -> CallRecord:
    return CallRecord(
        run="r", stage="s", turn=0, seq=0, at="", endpoint="chat", model="m", upstream="openai",
        request={}, pinned={}, reply="", prompt_tokens=prompt, reply_tokens=reply,
        cached_tokens=cached, duration_s=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "price", "cost"),
    [
        (call(1_000_000, 0), PRICE, 2.0),
        (call(0, 1_000_000), PRICE, 8.0),
        (call(1_000_000, 500_000, cached=400_000), PRICE, 1.2 + 0.2 + 4.0),
        (call(1_000_000, 0, cached=400_000), Price(input=2.0, output=8.0), 2.0),
        (call(1000, 1000), None, None),
        (call(0, 0), PRICE, None),
    ],
)
def test_cost(asked: CallRecord, price: Price | None, cost: float | None) -> None:
    assert cost_of(asked, price) == (cost if cost is None else pytest.approx(cost))


def test_cost_adds_up_over_what_has_one() -> None:
    usage = usage_of([call(1_000_000, 0), call(0, 0)], PRICE) + usage_of([call(5, 5)])
    assert (usage.cost, usage.calls) == (2.0, 3)
    assert usage_of([call(5, 5)]).cost is None


def test_prices_of_the_file_apply_at_the_public_address_and_the_users_go_before() -> None:
    known = known_prices()
    assert known
    for text, price in known.items():
        reference = parse_reference(text)
        assert price.as_of
        assert price_of(Settings(), reference) == price
        elsewhere = Settings(openai_url="http://x/v1", anthropic_url="http://x")
        assert price_of(elsewhere, reference) is None
        assert price_of(Settings(prices={text: PRICE}), reference) == PRICE
    own = Settings(openai_url="http://x/v1", prices={"openai/m": PRICE})
    assert price_of(own, parse_reference("openai/m")) == PRICE
    assert price_of(own, parse_reference("scripted/m")) is None
