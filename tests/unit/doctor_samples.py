"""Facts of a machine on which all is well, for tests that change one of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.models.ollama import GIB
from orchestrator.sandbox.engine import EngineInfo
from orchestrator.trial.facts import (
    EngineFacts,
    Facts,
    HostFacts,
    ImageFact,
    Needs,
    OllamaFacts,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
INFO = EngineInfo(
    version="26.1.5",
    api="1.45",
    storage_driver="overlay2",
    cgroup_version=2,
    ncpu=8,
    memory_bytes=32 * GIB,
    runtimes=("nvidia", "runc"),
    cdi_devices=(),
    operating_system="Debian GNU/Linux 12",
    root_dir="/var/lib/docker",
    free_bytes=100 * GIB,
    system_time=NOW,
)
HOST = HostFacts(
    python=(3, 11, 7),
    now=NOW,
    own_files=datetime(2026, 2, 1, tzinfo=UTC),
    ca_bundle=Path("/etc/ssl/certs/ca-certificates.crt"),
    ca_missing={},
    proxies={},
    commands=frozenset({"docker", "docker buildx", "nvidia-smi", "nvidia-ctk"}),
    runs_dir=Path("/home/u/runs"),
    runs_problem="",
    runs_free_bytes=50 * GIB,
)
ENGINE = EngineFacts(
    info=INFO,
    images=(ImageFact("base", True, 700), ImageFact("tools", True, 250)),
    left_overs=(),
    asked_at=NOW,
)
OLLAMA = OllamaFacts("http://127.0.0.1:11434", version="0.34.0", models={"gpt-oss:20b": 14 * GIB})
FACTS = Facts(
    host=HOST,
    engine=ENGINE,
    engine_problem="",
    ollama=OLLAMA,
    ollama_given=True,
    ollama_image_here=True,
    ollama_models_problem="",
    gpu="auto",
    needs=Needs(memory_mb=4096, cpus=2.0, models={"gpt-oss:20b": 14 * GIB}),
    tasks=("spam",),
    tasks_problem="",
)


def with_info(facts: Facts = FACTS, **changes: object) -> Facts:
    assert facts.engine
    info = replace(facts.engine.info, **changes)  # type: ignore[arg-type]
    return replace(facts, engine=replace(facts.engine, info=info))


def with_engine(facts: Facts = FACTS, **changes: object) -> Facts:
    assert facts.engine
    return replace(facts, engine=replace(facts.engine, **changes))  # type: ignore[arg-type]


def with_host(facts: Facts = FACTS, **changes: object) -> Facts:
    return replace(facts, host=replace(facts.host, **changes))  # type: ignore[arg-type]


def with_ollama(facts: Facts = FACTS, **changes: object) -> Facts:
    return replace(facts, ollama=replace(facts.ollama, **changes))  # type: ignore[arg-type]
