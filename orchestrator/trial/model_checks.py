"""Checks of what models need: GPU, memory, the model server. Judgements over facts."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.models.managed import gpu_ways
from orchestrator.models.ollama import GIB
from orchestrator.models.relay import is_loopback, parse_url
from orchestrator.sandbox.engine import EngineInfo
from orchestrator.trial.checks import Check
from orchestrator.trial.facts import Facts, size

OLDEST_OLLAMA = (0, 20)
"""The first whose calls can ask not to have a long prompt cut in silence."""
RESERVE_BYTES = GIB
"""Memory for the engine, the gateway, the agent and the orchestrator beside a scorer."""


def memory(info: EngineInfo, facts: Facts) -> Check:
    """The engine's memory against one scorer, and against the largest model beside it."""
    have = info.memory_bytes
    scorer = facts.needs.memory_mb << 20
    found = f"{size(have)}; a submission gets up to {size(scorer)}"
    if have < scorer:
        mend = "give the engine more memory, or lower memory_mb in task.toml"
        return Check.fail("memory", found, mend)
    if facts.needs.models and _shares_memory(info, facts):
        name, largest = max(facts.needs.models.items(), key=lambda item: item[1])
        found += f"; {name} takes {size(largest)}"
        if largest > have and not facts.ollama_given and not gpu_ways(info):
            mend = "without a GPU it can't be loaded: use a smaller model or quantisation"
            return Check.fail("memory", found, mend)
        if largest + scorer + RESERVE_BYTES > have:
            mend = "what the GPU can't hold competes with the scorer; a smaller model is safer"
            return Check.warn("memory", found, mend)
    if have < scorer + RESERVE_BYTES:
        mend = "tight: a submission at its limit may press on the engine itself"
        return Check.warn("memory", found, mend)
    return Check.ok("memory", found)


def gpu(info: EngineInfo, facts: Facts) -> Check:
    if facts.ollama_given:
        found = f"not asked for: the Ollama at {facts.ollama.url} uses what it has"
        return Check.ok("gpu", found)
    if facts.gpu == "off":
        return Check.ok("gpu", "off by setting; models run on the CPU")
    ways = gpu_ways(info)
    if ways and facts.gpu in ("auto", *ways):
        names = {"legacy": "NVIDIA runtime", "cdi": "CDI devices of nvidia.com"}
        return Check.ok("gpu", " and ".join(names[way] for way in ways))
    mend = _gpu_mend(facts.host.commands)
    if facts.gpu == "auto":
        found = "no NVIDIA runtime and no CDI device: models would run on the CPU, far slower"
        return Check.warn("gpu", found, mend)
    found = f"gpu = {facts.gpu}, and the engine has no such way to a GPU"
    return Check.fail("gpu", found, mend)


def _gpu_mend(commands: frozenset[str]) -> str:
    if "nvidia-ctk" in commands:
        return (
            "the toolkit is here: `sudo nvidia-ctk runtime configure --runtime=docker`, then "
            "restart the engine"
        )
    if "nvidia-smi" in commands:
        return (
            "a driver is here, the NVIDIA container toolkit is not: install it, run "
            "`sudo nvidia-ctk runtime configure --runtime=docker`, restart the engine"
        )
    return (
        "with an NVIDIA GPU: install its driver and the NVIDIA container toolkit; "
        "without one use --gpu off, or --ollama-url of a machine that has one"
    )


def ollama(facts: Facts) -> Check:
    asked = facts.ollama
    if asked.problem and facts.ollama_given:
        mend = "start it, or correct --ollama-url; scripted models need none"
        return Check.fail("ollama", asked.problem, mend)
    if asked.problem:
        if facts.ollama_models_problem:
            mend = "correct ollama_models, or leave it away to have models pulled"
            return Check.fail("ollama", facts.ollama_models_problem, mend)
        if facts.ollama_image_here:
            found = "none named: orch starts the pinned image, which is here"
            return Check.ok("ollama", found)
        found = "none named and none at the usual address; the pinned image is not here yet"
        mend = "name one with --ollama-url, or let the first trial pull the image (some GB)"
        return Check.warn("ollama", found, mend)
    found = f"{asked.version} at {asked.url}, holds {_names(asked.models)}"
    if not facts.ollama_given:
        found += "; used with --ollama-url only, else orch starts its own"
    version = _version(asked.version)
    if version is not None and version < OLDEST_OLLAMA:
        oldest = ".".join(map(str, OLDEST_OLLAMA))
        mend = f"update it to {oldest} or newer: older ones cut long prompts without a word"
        return Check.warn("ollama", found, mend)
    return Check.ok("ollama", found)


def ollama_context(facts: Facts) -> Check:
    """Ollama does not tell its default context, so say what its loaded models run with."""
    note = (
        "the default (OLLAMA_CONTEXT_LENGTH) can't be asked for; each call of a trial sets its own"
    )
    if facts.ollama.problem:
        return Check.ok("context", f"not asked; {note}")
    loaded = ", ".join(
        f"{one.name} with {one.context or 'unknown'} tokens of context on {one.split or '?'}"
        for one in facts.ollama.loaded
    )
    return Check.ok("context", f"loaded now: {loaded or 'none'}; {note}")


def _shares_memory(info: EngineInfo, facts: Facts) -> bool:
    """Whether the models live in the memory that the engine reports.

    Not those of an Ollama elsewhere, nor beside the virtual machine of Docker Desktop.
    """
    if not facts.ollama_given:
        return True
    desktop = "Docker Desktop" in info.operating_system
    return is_loopback(parse_url(facts.ollama.url).hostname or "") and not desktop


def _names(models: Iterable[str], shown: int = 4) -> str:
    names = sorted(models)
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest or "no models yet"


def _version(text: str) -> tuple[int, ...] | None:
    """`0.33.1-rc2` → (0, 33); None for what is no version (builds from source say 0.0.0)."""
    parts = text.split("-")[0].split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return None
    found = (int(parts[0]), int(parts[1]))
    return None if found == (0, 0) else found
