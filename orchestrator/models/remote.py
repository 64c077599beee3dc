"""Models behind `openai/NAME` and `anthropic/NAME`: where their API is, its key, what it tells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import tenacity

from orchestrator.config import ANTHROPIC_URL, OPENAI_URL, Price, Settings
from orchestrator.errors import (
    ConfigInvalid,
    ContextTooSmall,
    ModelServerUnreachable,
    ModelUnknown,
    PreflightFailed,
    UsageError,
    did_you_mean,
)
from orchestrator.models.reference import ModelKind, ModelReference
from orchestrator.models.relay import parse_url
from orchestrator.records.schema import ModelRecord

TIMEOUT_S = 60.0
LOADING_S = 300.0
"""So long a server may say that it is still loading its model."""
ANTHROPIC_VERSION = "2023-06-01"


class Api(NamedTuple):
    """What differs between the two, for people and for asking."""

    name: str
    public: str
    setting: str
    key_variable: str

    @property
    def option(self) -> str:
        return "--" + self.setting.replace("_", "-")


APIS = {
    ModelKind.OPENAI: Api("OpenAI API", OPENAI_URL, "openai_url", "OPENAI_API_KEY"),
    ModelKind.ANTHROPIC: Api("Anthropic API", ANTHROPIC_URL, "anthropic_url", "ANTHROPIC_API_KEY"),
}


class Access(NamedTuple):
    """How an API is asked. `shown` is the base URL that the user knows; the key may be empty."""

    kind: ModelKind
    shown: str
    key: str

    @property
    def api(self) -> Api:
        return APIS[self.kind]

    @property
    def headers(self) -> dict[str, str]:
        if self.kind is ModelKind.ANTHROPIC:
            return {"x-api-key": self.key, "anthropic-version": ANTHROPIC_VERSION}
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def __repr__(self) -> str:
        return f"Access({self.kind}, {self.shown})"


def access_to(
    kind: ModelKind, settings: Settings, environ: Mapping[str, str] = os.environ
) -> Access:
    """Raises UsageError for the URL, ConfigInvalid for the key."""
    api = APIS[kind]
    shown = base_of(kind, getattr(settings, api.setting))
    key = environ.get(api.key_variable, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigInvalid(
            f"{api.key_variable} holds a character that no key has; set it to the key alone"
        )
    if not key and shown == api.public:
        raise ConfigInvalid(
            f"{api.key_variable} is not set; {shown} needs a key (or name another server with "
            f"{api.option})"
        )
    return Access(kind, shown, key)


def base_of(kind: ModelKind, url: str) -> str:
    """The URL that the API's paths are under. Raises UsageError.

    Of a compatible server the bare address will do: its API is under /v1.
    """
    api = APIS[kind]
    parts = parse_url(url, api.option, None)
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"{api.option} must be an address and nothing else; a key belongs in {api.key_variable}"
        )
    path = parts.path.rstrip("/")
    path = path.removesuffix("/v1") if kind is ModelKind.ANTHROPIC else path or "/v1"
    return parts._replace(path=path, fragment="").geturl()


class RemoteModels:
    """One API. `http` has its base URL as `url`, and says by its transport from where it asks."""

    def __init__(self, http: httpx.Client, url: str, access: Access) -> None:
        self._http = http
        self._url = url
        self._access = access

    def prepare(
        self, reference: ModelReference, num_ctx: int, price: Price | None = None
    ) -> ModelRecord:
        """Check key, model and context as far as the API tells; describe the model.

        Raises ModelServerUnreachable, PreflightFailed, ModelUnknown, ContextTooSmall.
        """
        if self._access.kind is ModelKind.ANTHROPIC:
            entry = self._anthropic_entry(reference)
            context = Context(None, None)
        else:
            entry = self._openai_entry(reference)
            context = context_of(entry, self._props(entry))
        self._check_context(reference, num_ctx, context)
        return ModelRecord(
            reference=reference.text,
            upstream=self._access.kind.value,
            name=reference.name,
            context_loaded=context.loaded,
            context_trained=context.trained,
            price=price,
            notes=self._notes(context),
        )

    def _notes(self, context: Context) -> list[str]:
        notes = [f"{self._access.api.name} at {self._access.shown}"]
        if context.loaded is None:
            notes.append("context not verifiable")
        if self._access.kind is ModelKind.ANTHROPIC:
            notes.append("no seed was sent: the API takes none")
        else:
            notes.append("the seed was sent; whether it is kept to is up to the server")
        return notes

    def _openai_entry(self, reference: ModelReference) -> dict[str, Any]:
        listed = self._json(self._ask("GET", "models"), "models").get("data")
        entries = [one for one in listed or [] if isinstance(one, dict)]
        # Some servers list their models to anybody; this asks for nothing but says if the key is
        # good.
        if self._ask("POST", "chat/completions", {}).status_code == httpx.codes.UNAUTHORIZED:
            raise self._bad_key(httpx.codes.UNAUTHORIZED)
        for entry in entries:
            if entry.get("id") == reference.name:
                return entry
        raise ModelUnknown(
            f"{self._access.shown} has no model {reference.name!r}; "
            + _has([str(entry.get("id")) for entry in entries], reference.name)
        )

    def _anthropic_entry(self, reference: ModelReference) -> dict[str, Any]:
        path = f"v1/models/{quote(reference.name, safe='')}"
        answer = self._ask("GET", path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise ModelUnknown(
                f"{self._access.shown} has no model {reference.name!r}; check the name"
            )
        return self._json(answer, path)

    def _props(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What llama.cpp's server, and no other, tells of itself."""
        if entry.get("owned_by") != "llamacpp":
            return {}
        answer = self._ask("GET", self._url.removesuffix("/v1") + "/props")
        return self._json(answer, "props") if answer.status_code == httpx.codes.OK else {}

    def _check_context(self, reference: ModelReference, num_ctx: int, context: Context) -> None:
        if context.trained is not None and context.trained < num_ctx:
            raise ContextTooSmall(
                f"{reference.text} has at most {context.trained} tokens of context, the trial "
                f"asks for {num_ctx}; use --num-ctx {context.trained} or another model"
            )
        if context.loaded is not None and context.loaded < num_ctx:
            raise ContextTooSmall(
                f"{self._access.shown} serves {reference.text} with {context.loaded} tokens of "
                f"context, the trial asks for {num_ctx}; start the server with more, or use "
                f"--num-ctx {context.loaded}"
            )

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Raises ModelServerUnreachable, PreflightFailed for a refused key."""
        loading = tenacity.Retrying(
            retry=tenacity.retry_if_result(_is_loading),
            stop=tenacity.stop_after_delay(LOADING_S),
            wait=tenacity.wait_exponential(0.2, max=5.0),
            retry_error_callback=_last_answer,
        )
        try:
            answer = loading(self._http.request, method, path, json=body, timeout=TIMEOUT_S)
        except httpx.HTTPError as exc:
            raise ModelServerUnreachable(
                f"no {self._access.api.name} answers at {self._access.shown} "
                f"({exc or type(exc).__name__}); start the server, or correct "
                f"{self._access.api.option}"
            ) from None
        if method == "GET" and answer.status_code in (401, 403):
            raise self._bad_key(answer.status_code)
        return answer

    def _bad_key(self, status: int) -> PreflightFailed:
        # Without the server's own words: they may hold the key.
        api = self._access.api
        if not self._access.key:
            return PreflightFailed(
                f"{self._access.shown} needs a key, and {api.key_variable} is not set ({status})"
            )
        return PreflightFailed(
            f"{self._access.shown} refuses the key in {api.key_variable} ({status})"
        )

    def _json(self, answer: httpx.Response, path: str) -> dict[str, Any]:
        if answer.status_code != httpx.codes.OK:
            raise PreflightFailed(
                f"{self._access.shown} answered the question for its {path} with "
                f"{answer.status_code}; check {self._access.api.option}"
            )
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ModelServerUnreachable(
                f"what answers at {self._access.shown} is no {self._access.api.name}; correct "
                f"{self._access.api.option}"
            )
        return value


class Context(NamedTuple):
    """Tokens that the server runs the model with, and that the model has at most, where told."""

    loaded: int | None
    trained: int | None


def context_of(entry: Mapping[str, Any], props: Mapping[str, Any]) -> Context:
    """From a model's entry in the list (llama.cpp, vLLM and OpenRouter tell) and llama.cpp's props.

    Of the latter's n_ctx, the props have that of one request, the list that of all together.
    """
    settings, meta = _dict(props.get("default_generation_settings")), _dict(entry.get("meta"))
    return Context(
        loaded=_first(settings.get("n_ctx"), meta.get("n_ctx"), entry.get("max_model_len")),
        trained=_first(meta.get("n_ctx_train"), entry.get("context_length")),
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(*values: object) -> int | None:
    return next((value for value in values if type(value) is int and value > 0), None)


def _has(names: list[str], wanted: str, shown: int = 5) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return did_you_mean(wanted, names, f"it has: {', '.join(names[:shown]) or 'none'}{rest}")


def _is_loading(answer: httpx.Response) -> bool:
    return answer.status_code == httpx.codes.SERVICE_UNAVAILABLE


def _last_answer(state: tenacity.RetryCallState) -> httpx.Response:
    outcome = state.outcome
    assert outcome is not None
    answer: httpx.Response = outcome.result()
    return answer
