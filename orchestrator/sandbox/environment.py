"""Declared dependencies → an environment: resolved, locked by hash, installed once by content.

Resolving and installing happen in a builder container that has the network and nothing else: no
data, no key, no code of the submission; and nothing of a package runs there (wheels only, so no
build code, unless the task allows it; compiled elsewhere, so no `.pth` file), as it shares the
wheel cache with all others. What comes of it is a volume that is mounted read-only wherever the
submission runs.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import defaultdict
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from orchestrator.errors import ImageBuildFailed
from orchestrator.records.schema import EnvironmentRecord, Failure
from orchestrator.sandbox import builder as builders
from orchestrator.sandbox import caches, volume
from orchestrator.sandbox.builder import (
    PLACE,
    Builder,
    EnvironmentImages,
    Installed,
    Lock,
    NotInstalled,
)
from orchestrator.sandbox.container import ContainerSpec, Mount, run_step
from orchestrator.sandbox.downloads import too_large
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import MIB, EnvironmentRules, Limits
from orchestrator.sandbox.requirements import Declared, declared
from orchestrator.sandbox.volume import Volume

__all__ = ["PLACE", "Declared", "Environment", "EnvironmentImages", "build", "declared"]

ROLE = "environment"
ENVIRONMENTS_MB = 16384
"""Of all environments together; beyond it those used longest ago go, none that is in use."""
DEFAULT_RULES = EnvironmentRules()


@dataclass(frozen=True)
class Environment:
    volume: Volume
    record: EnvironmentRecord

    @property
    def mount(self) -> Mount:
        return self.volume.at(PLACE)

    @property
    def packages(self) -> frozenset[str]:
        """Canonical names of all that is installed."""
        return frozenset(self.record.packages)


def build(
    engine: Engine,
    images: EnvironmentImages,
    wanted: Declared,
    owner: Owner,
    rules: EnvironmentRules = DEFAULT_RULES,
) -> Environment | Failure:
    """The environment of what is declared, found or made.

    One lock's environment is installed once and found again by whoever needs it next; within this
    process one text of requirements also resolves once, so that all runs of a trial that declare
    the same get the same. What the submission can mend, and an index that stays away, comes back
    as a failure; raises the engine's errors, and ImageBuildFailed where the images disagree.
    """
    python = _common_python(engine, images)
    builder = Builder(engine, images, owner.as_role(ROLE), rules)
    lock = _resolved(builder, images, wanted, rules)
    if isinstance(lock, Failure):
        return lock
    if (failure := too_large(lock.downloads, rules)) is not None:
        return failure
    digest = hashlib.sha256(lock.text.encode()).hexdigest()
    installed: list[Installed] = []

    def install(target: Volume) -> int:
        installed.append(builder.install(lock, python, target))
        return installed[-1].size

    seed_hook = builders.SEED_HOOK.read_bytes()
    # What package code has built is for those who let it.
    built = " built" if rules.allow_sdist else ""
    key = f"{digest} {python} {images.builder.inputs_sha256} {seed_hook!r}{built}"
    name = hashlib.sha256(key.encode()).hexdigest()
    try:
        # Another process that builds the same is waited for.
        with caches.locked(f"environment-{name[:32]}"):
            while True:
                found = volume.cached(engine, images.tools.id, key, ROLE, install)
                if caches.use(engine, found):
                    break
    except NotInstalled as stopped:
        return stopped.failure
    if installed:
        caches.trim(engine, ROLE, ENVIRONMENTS_MB * MIB)
    record = EnvironmentRecord(
        declared_in=wanted.source,
        lock_sha256=digest,
        lock=lock.text,
        python=python.split()[0],
        packages=locked_packages(lock.text),
        reused=not installed,
        resolve_s=lock.seconds,
        install_s=sum(each.seconds for each in installed),
    )
    return Environment(found, record)


def locked_packages(lock: str) -> dict[str, str]:
    """Canonical name → version of each requirement in a lock's text."""
    pinned = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", lock, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pinned}


_Key = tuple[str, str, bool]
_locks: dict[_Key, Lock] = {}
_resolving: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)


def _resolved(
    builder: Builder, images: EnvironmentImages, wanted: Declared, rules: EnvironmentRules
) -> Lock | Failure:
    """Resolved once in this process, however often it is declared."""
    if not wanted.lines:
        return Lock()
    key = (wanted.text, images.builder.id, rules.allow_sdist)
    with _resolving[key]:
        known = _locks.get(key)
        if known is not None:
            return Lock(known.text, 0.0, known.downloads)
        found = builder.resolve(wanted)
        if isinstance(found, Lock):
            _locks[key] = found
        return found


_pythons: dict[str, str] = {}
_PROBE = "import os, sys; print(sys.version.split()[0], os.path.realpath(sys.executable))"


def _common_python(engine: Engine, images: EnvironmentImages) -> str:
    """Version and path of the interpreter, which must be one for building and for using.

    An environment refers to its interpreter by path; under another version it starts and finds
    none of its packages, without an error.
    """
    built, used = (_python(engine, image) for image in (images.builder, images.scorer))
    if built != used:
        raise ImageBuildFailed(
            f"environments would be built with Python {built} and used with {used}; "
            "build the images builder and scorer from one base"
        )
    return built


def _python(engine: Engine, image: Image) -> str:
    if image.id not in _pythons:
        spec = ContainerSpec(image.id, Owner(trial="", role="probe"), Limits(memory_mb=128))
        argv = ("python3", "-I", "-c", _PROBE)
        ended = run_step(engine, spec, argv, timeout_s=60, counted=False)
        if ended.exit_code != 0:
            raise ImageBuildFailed(
                f"image {image.name} has no working python3: {ended.stderr.text.strip()}"
            )
        _pythons[image.id] = ended.stdout.text.strip()
    return _pythons[image.id]
