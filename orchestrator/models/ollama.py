"""Ollama's inventory: what models there are, what was really loaded, pulling what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import tenacity

from orchestrator.errors import (
    ContextTooSmall,
    ModelServerUnreachable,
    ModelUnknown,
    PreflightFailed,
)
from orchestrator.models.reference import ModelReference
from orchestrator.records.schema import ModelRecord

Say = Callable[[str], None]


@dataclass(frozen=True)
class Loaded:
    """A model in memory. `context` and `split` are None where the server does not tell."""

    name: str
    context: int | None
    split: str | None


INVENTORY_TIMEOUT_S = 30.0
LOAD_TIMEOUT_S = 900.0
"""Loading tens of GB from a slow disk; Ollama itself gives up after five minutes of standstill."""
PULL_SILENCE_S = 300.0
GIB = 1 << 30
LEVELS_ONLY = frozenset({"gptoss", "gpt-oss"})
"""Families whose thinking can't be turned on or off: a yes or no is ignored."""


class Ollama:
    """One server. `http` has its base URL, and says by its transport from where it is asked.

    `shown` is the URL that the user knows; a server whose models can't be added to has
    `can_pull` false.
    """

    def __init__(self, http: httpx.Client, shown: str, *, can_pull: bool = True) -> None:
        self._http = http
        self._shown = shown
        self._can_pull = can_pull

    def version(self) -> str:
        """Raises ModelServerUnreachable."""
        return str(self._json("GET", "/api/version").get("version", "unknown"))

    def models(self) -> dict[str, int]:
        """Name and bytes of each model that it holds. Raises ModelServerUnreachable."""
        listed = self._json("GET", "/api/tags").get("models") or []
        return {str(one.get("name")): int(one.get("size") or 0) for one in listed}

    def loaded(self) -> list[Loaded]:
        """The models in memory now. Raises ModelServerUnreachable."""
        return [
            Loaded(
                str(one.get("name")),
                one.get("context_length"),
                processor_split(one.get("size", 0), one.get("size_vram", 0)),
            )
            for one in self._json("GET", "/api/ps").get("models") or []
        ]

    def wait_ready(self, timeout_s: float) -> str:
        """Its version, once it answers. Raises ModelServerUnreachable after `timeout_s`."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ModelServerUnreachable),
            stop=tenacity.stop_after_delay(timeout_s),
            wait=tenacity.wait_exponential(0.1, max=2.0),
            reraise=True,
        )
        return retrying(self.version)

    def prepare(
        self,
        reference: ModelReference,
        num_ctx: int,
        *,
        keep_alive: str,
        say: Say,
        think: str | None = None,
    ) -> ModelRecord:
        """Pull the model where it is missing, load it with `num_ctx` tokens, describe it.

        `think` is the thinking level that its calls will ask for; None: its own.

        Raises ModelServerUnreachable, ModelUnknown, ContextTooSmall, PreflightFailed.
        """
        listed = self._listed(reference.name)
        if listed is None:
            self.pull(reference.name, say)
            listed = self._listed(reference.name) or {}
        described = self._json("POST", "/api/show", {"model": reference.name})
        trained = trained_context(described)
        if trained is not None and trained < num_ctx:
            raise ContextTooSmall(
                f"{reference.text} was trained for {trained} tokens of context, the trial asks for "
                f"{num_ctx}; use --num-ctx {trained} or another model"
            )
        if why := thinking_refused(described, think):
            raise PreflightFailed(f"{reference.text} {why}")
        say(f"loading {reference.text} with {num_ctx} tokens of context")
        load_s = self._load(reference.name, num_ctx, keep_alive)
        running = self._running(reference.name)
        loaded = running.get("context_length")
        if isinstance(loaded, int) and loaded < num_ctx:
            raise ContextTooSmall(
                f"Ollama at {self._shown} loaded {reference.text} with {loaded} tokens of context "
                f"though {num_ctx} were asked for; free memory on the GPU or use --num-ctx {loaded}"
            )
        return ModelRecord(
            reference=reference.text,
            upstream="ollama",
            name=reference.name,
            digest=listed.get("digest"),
            parameters=parameters_of(described),
            size_bytes=listed.get("size"),
            context_loaded=loaded,
            context_trained=trained,
            vram_bytes=running.get("size_vram"),
            loaded_bytes=running.get("size"),
            processor=processor_split(running.get("size", 0), running.get("size_vram", 0)),
            load_s=load_s,
            server=f"Ollama {self.version()}",
            notes=[] if isinstance(loaded, int) else ["context not verifiable"],
        )

    def _listed(self, name: str) -> dict[str, Any] | None:
        return _of_name(self._json("GET", "/api/tags"), name)

    def _running(self, name: str) -> dict[str, Any]:
        return _of_name(self._json("GET", "/api/ps"), name) or {}

    def _load(self, name: str, num_ctx: int, keep_alive: str) -> float:
        """Load the model as the gateway's calls will use it; seconds that it took."""
        began = time.monotonic()
        body = {
            "model": name,
            "options": {"num_ctx": num_ctx},
            "keep_alive": keep_alive,
            "stream": False,
            "truncate": False,
            "shift": False,
        }
        self._json("POST", "/api/generate", body, timeout_s=LOAD_TIMEOUT_S)
        return time.monotonic() - began

    def pull(self, name: str, say: Say) -> None:
        """Download the model, telling how far it is.

        Raises ModelUnknown when no such model can be had, ModelServerUnreachable.
        """
        if not self._can_pull:
            raise ModelUnknown(
                f"{name} is not in the model folder, which is used read-only; "
                f"pull it there first: ollama pull {name}"
            )
        say(f"pulling {name}")
        told = ""
        done = False
        with self._asking(), self._http.stream(
            "POST", "/api/pull", json={"model": name}, timeout=PULL_SILENCE_S
        ) as answer:  # fmt: skip
            if answer.status_code != httpx.codes.OK:
                answer.read()
                raise self._refusal("POST /api/pull", answer)
            for step in _json_lines(answer):
                if "error" in step:
                    raise ModelUnknown(f"{name} can't be pulled: {step['error']}")
                done = step.get("status") == "success"
                text = pull_progress(step)
                if text != told:
                    told = text
                    say(f"pulling {name}: {text}")
        if not done:
            raise ModelServerUnreachable(
                f"Ollama at {self._shown} broke off while pulling {name}; "
                "run the trial again, it goes on where it stopped"
            )

    def _json(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        timeout_s: float = INVENTORY_TIMEOUT_S,
    ) -> dict[str, Any]:
        with self._asking():
            answer = self._http.request(method, path, json=body, timeout=timeout_s)
        if answer.status_code != httpx.codes.OK:
            raise self._refusal(f"{method} {path}", answer)
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ModelServerUnreachable(
                f"what answers at {self._shown} is no Ollama; correct --ollama-url"
            )
        return value

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as exc:
            raise ModelServerUnreachable(
                f"no Ollama answers at {self._shown} ({exc or type(exc).__name__}); start it, "
                "or name another with --ollama-url"
            ) from exc

    def _refusal(self, what: str, answer: httpx.Response) -> PreflightFailed | ModelUnknown:
        try:
            text = str(answer.json()["error"])
        except (ValueError, KeyError, TypeError):
            text = answer.text[:300]
        if answer.status_code == httpx.codes.NOT_FOUND:
            return ModelUnknown(f"Ollama at {self._shown}: {text}; check the model's name")
        return PreflightFailed(
            f"Ollama at {self._shown} answered {what} with {answer.status_code}: {text}"
        )


def trained_context(described: dict[str, Any]) -> int | None:
    """`<architecture>.context_length` of /api/show; None where it is not told."""
    info = described.get("model_info") or {}
    value = info.get(f"{info.get('general.architecture')}.context_length")
    return value if isinstance(value, int) else None


def thinking_refused(described: dict[str, Any], think: str | None) -> str | None:
    """Why the model of this /api/show can't be asked to think so, said of the model; or None.

    A server too old to list what its models can do is believed.
    """
    capabilities = described.get("capabilities")
    if think is None or not isinstance(capabilities, list):
        return None
    if "thinking" not in capabilities:
        return None if think == "off" else f"does not think; leave --think {think} away"
    family = (described.get("details") or {}).get("family")
    if family in LEVELS_ONLY and think in ("on", "off"):
        return f"takes levels of thinking only; use --think low, medium or high, not {think}"
    return None


def parameters_of(described: dict[str, Any]) -> dict[str, str]:
    """The Modelfile's parameters and what the model is; of a repeated one all values."""
    found: dict[str, str] = {}
    for line in str(described.get("parameters") or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if name:
            value = value.strip()
            found[name] = f"{found[name]}, {value}" if name in found else value
    details = described.get("details") or {}
    for name in ("family", "parameter_size", "quantization_level"):
        if details.get(name):
            found[name] = str(details[name])
    return found


def processor_split(size: int, size_vram: int) -> str | None:
    """Where the model lies, as Ollama's own listing words it; None where it does not tell."""
    if size <= 0 or size_vram > size:
        return None
    if size_vram == 0:
        return "100% CPU"
    if size_vram == size:
        return "100% GPU"
    cpu = round((size - size_vram) / size * 100)
    return f"{cpu}%/{100 - cpu}% CPU/GPU"


def pull_progress(step: dict[str, Any]) -> str:
    """One line of a pull, in whole percents so that equal lines need not be told twice."""
    total = step.get("total")
    if not isinstance(total, int) or total <= 0:
        return str(step.get("status", ""))
    return f"{100 * int(step.get('completed', 0)) // total}% of {total / GIB:.1f} GiB"


def _json_lines(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise httpx.DecodingError(f"not a JSON line: {line[:100]}")
        yield value


def _of_name(listing: dict[str, Any], name: str) -> dict[str, Any] | None:
    wanted = _full(name)
    models = listing.get("models") or []
    return next((one for one in models if _full(str(one.get("name"))) == wanted), None)


def _full(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
