"""Gathering the facts that checks judge: asks the host, the engine and the model server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import httpx

from orchestrator.config import PACKAGE, Settings
from orchestrator.errors import EngineError, ImageMissing, OrchError, UsageError
from orchestrator.models.managed import models_folder
from orchestrator.models.ollama import Ollama
from orchestrator.models.relay import parse_url
from orchestrator.sandbox import ca, image
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.limits import Limits
from orchestrator.task import Task
from orchestrator.trial.clean import left_overs
from orchestrator.trial.facts import (
    EngineFacts,
    Facts,
    HostFacts,
    ImageFact,
    Needs,
    OllamaFacts,
)
from orchestrator.trial.tasks import list_tasks

COMMANDS = ("docker", "nvidia-smi", "nvidia-ctk")
COMMAND_TIMEOUT_S = 20
USUAL_OLLAMA = "http://127.0.0.1:11434"


def gather(
    settings: Settings, tasks: list[Task] | None = None, models: Collection[str] | None = None
) -> Facts:
    """Ask everything once. `tasks` and `models` (names at the model server) are those of a trial;
    where None, all that there are.

    What does not answer is noted in the facts, never raised.
    """
    problem = ""
    if tasks is None:
        try:
            tasks = list_tasks(settings)
        except OrchError as exc:
            tasks, problem = [], str(exc)
    engine, engine_problem, image_here, models_problem = None, "", False, ""
    try:
        connection = Engine.connect()
        engine = engine_facts(connection, settings)
        pinned = str(image.pins()["ollama"]["image"])
        image_here = image.is_here(connection, settings.ollama_image or pinned)
        if settings.ollama_models is not None:
            models_folder(connection, settings.ollama_models)
    except EngineError as exc:
        engine_problem = str(exc)
    except UsageError as exc:
        models_problem = str(exc)
    ollama = ollama_facts(settings.ollama_url or USUAL_OLLAMA)
    return Facts(
        host=host_facts(settings.runs_dir),
        engine=engine,
        engine_problem=engine_problem,
        ollama=ollama,
        ollama_given=settings.ollama_url is not None,
        ollama_image_here=image_here,
        ollama_models_problem=models_problem,
        gpu=settings.gpu,
        needs=task_needs(tasks, _of_interest(ollama, models)),
        tasks=tuple(task.name for task in tasks),
        tasks_problem=problem,
        runtime=settings.runtime,
    )


def host_facts(runs_dir: Path) -> HostFacts:
    """Asks nothing but this machine; writes nothing."""
    commands = {name for name in COMMANDS if shutil.which(name)}
    if "docker" in commands and _runs(["docker", "buildx", "version"]):
        commands.add("docker buildx")
    folder = next(path for path in (runs_dir, *runs_dir.parents) if path.exists())
    problem = ""
    if not folder.is_dir():
        problem = f"{folder} is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f"{folder} can't be written to"
    named = {name: os.environ.get(name, "") for name in ca.FROM_ENVIRONMENT}
    newest = max(path.stat().st_mtime for path in PACKAGE.glob("*.py"))
    return HostFacts(
        python=sys.version_info[:3],
        now=datetime.now(UTC),
        own_files=datetime.fromtimestamp(newest, UTC),
        ca_bundle=ca.bundle(),
        ca_missing={name: path for name, path in named.items() if path and not Path(path).exists()},
        proxies=ca.proxies(),
        commands=frozenset(commands),
        runs_dir=runs_dir,
        runs_problem=problem,
        runs_free_bytes=shutil.disk_usage(folder).free,
    )


def engine_facts(engine: Engine, settings: Settings) -> EngineFacts:
    """Raises EngineUnavailable."""
    asked_at = datetime.now(UTC)
    return EngineFacts(
        info=engine.info(),
        asked_at=asked_at,
        images=tuple(_image_fact(engine, name) for name in image.names()),
        left_overs=tuple(left_overs(engine, settings)),
    )


def ollama_facts(url: str) -> OllamaFacts:
    """Version, models and loaded models of the server at `url`, or why it did not answer."""
    try:
        with httpx.Client(base_url=parse_url(url).geturl(), trust_env=False) as http:
            ollama = Ollama(http, url)
            return OllamaFacts(url, ollama.version(), "", ollama.models(), tuple(ollama.loaded()))
    except OrchError as exc:
        return OllamaFacts(url, problem=str(exc))


def task_needs(tasks: list[Task], models: dict[str, int]) -> Needs:
    """The most that a container of any of these tasks may use; Limits' defaults for none."""
    limits = [limit for task in tasks for limit in (task.limits.agent, task.limits.execute)]
    limits = limits or [Limits()]
    return Needs(
        memory_mb=max(limit.memory_mb for limit in limits),
        cpus=max(limit.cpus for limit in limits),
        models=models,
    )


def _of_interest(ollama: OllamaFacts, models: Collection[str] | None) -> dict[str, int]:
    return {
        name: size
        for name, size in ollama.models.items()
        if models is None or name in models or name.removesuffix(":latest") in models
    }


def _image_fact(engine: Engine, name: str) -> ImageFact:
    try:
        needs_mb = image.definition(name).needs_mb
    except ImageMissing as exc:
        return ImageFact(name, built=False, needs_mb=0, problem=str(exc))
    try:
        image.ensure(engine, name, build=False)
    except ImageMissing:
        return ImageFact(name, built=False, needs_mb=needs_mb)
    return ImageFact(name, built=True, needs_mb=needs_mb)


def _runs(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
