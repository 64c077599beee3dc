"""Declared dependencies → an environment: resolved, locked by hash, installed once by content.

Resolving and installing happen in a builder container that has the network and nothing else: no
data, no key, no code of the submission; and nothing of a package runs there (wheels only, so no
build code; compiled elsewhere, so no `.pth` file), as it shares the wheel cache with all others.
What comes of it is a volume that is mounted read-only wherever the submission runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packaging.utils import canonicalize_name
from tenacity import RetryCallState, retry, retry_if_result, stop_after_attempt, wait_exponential

from orchestrator.errors import EngineRefused, ImageBuildFailed
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Ending, EnvironmentRecord, Evidence, Failure
from orchestrator.sandbox import ca, volume
from orchestrator.sandbox.container import Container, ContainerSpec, Mount, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.exec import Ended
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.requirements import Declared, declared
from orchestrator.sandbox.resolution import SOURCE, resolver_failure
from orchestrator.sandbox.volume import Volume

__all__ = ["PLACE", "Declared", "Environment", "EnvironmentImages", "build", "declared"]

PLACE = "/env"
WHEELS = "/wheels"
CA_FOLDER = "/ca"
CA_NAME = "bundle.crt"
LIMITS = Limits(
    memory_mb=2048, cpus=2.0, pids=256, wall_s=600, tmp_mb=256, nofile=4096, fsize_mb=4096
)
COMPILE = ("python3", "-I", "-S", "-m", "compileall", "-qq", "-j", "2", f"{PLACE}/lib")
"""Without the site module: it would run the `.pth` files of what is installed."""
LOCK_KB = 8192
"""Of a lock's text; a hundred packages with all their hashes take about 500."""
ATTEMPTS = 3
SEED_HOOK = Path(__file__).parent / "inside" / "seed" / "orch_seed.pth"
"""Seeds programs that bring a sitecustomize.py of their own; see the scorer image."""
UV_SETTINGS = {
    "UV_CACHE_DIR": WHEELS,
    "UV_NO_CONFIG": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_SYSTEM_PYTHON": "1",
    "UV_HTTP_TIMEOUT": "60",
    "UV_HTTP_RETRIES": "3",
    "HOME": "/tmp",
}
INDEX_VARIABLES = {
    "UV_DEFAULT_INDEX": "UV_DEFAULT_INDEX",
    "UV_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "UV_INDEX": "UV_INDEX",
    "UV_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
}
"""The host's settings of package indexes → uv's; of two with one meaning the first counts."""


class EnvironmentImages(Protocol):
    """The images that building takes. `scorer` is where the environment will be used."""

    @property
    def tools(self) -> Image: ...
    @property
    def builder(self) -> Image: ...
    @property
    def scorer(self) -> Image: ...


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


@dataclass(frozen=True)
class _Lock:
    text: str
    seconds: float


def build(
    engine: Engine,
    images: EnvironmentImages,
    wanted: Declared,
    owner: Owner,
    limits: Limits = LIMITS,
) -> Environment | Failure:
    """The environment of what is declared, found or made.

    One lock's environment is installed once and found again by whoever needs it next; within this
    process one text of requirements also resolves once, so that all runs of a trial that declare
    the same get the same. What the submission can mend, and an index that stays away, comes back
    as a failure; raises the engine's errors, and ImageBuildFailed where the images disagree.
    """
    python = _common_python(engine, images)
    builder = _Builder(engine, images, owner.as_role("environment"), limits)
    lock = builder.resolved(wanted)
    if isinstance(lock, Failure):
        return lock
    digest = hashlib.sha256(lock.text.encode()).hexdigest()
    installed: list[float] = []

    def install(target: Volume) -> None:
        installed.append(builder.install(lock.text, python, target))

    seed_hook = SEED_HOOK.read_bytes()
    key = f"{digest} {python} {images.builder.inputs_sha256} {seed_hook!r}"
    try:
        found = volume.cached(engine, images.tools.id, key, "environment", install)
    except _NotInstalled as stopped:
        return stopped.failure
    record = EnvironmentRecord(
        declared_in=wanted.source,
        lock_sha256=digest,
        lock=lock.text,
        python=python.split()[0],
        packages=locked_packages(lock.text),
        reused=not installed,
        resolve_s=lock.seconds,
        install_s=sum(installed),
    )
    return Environment(found, record)


def locked_packages(lock: str) -> dict[str, str]:
    """Canonical name → version of each requirement in a lock's text."""
    pinned = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", lock, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pinned}


def index_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """uv's variables for the indexes that the host's own pip or uv would use."""
    found: dict[str, str] = {}
    for name, ours in INDEX_VARIABLES.items():
        if environ.get(name):
            found.setdefault(ours, environ[name])
    return found


class _NotInstalled(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


_locks: dict[tuple[str, str], _Lock] = {}
_resolving: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)


class _Builder:
    """uv in a container that has the network, the wheel cache and nothing of the submission."""

    def __init__(
        self, engine: Engine, images: EnvironmentImages, owner: Owner, limits: Limits
    ) -> None:
        self._engine = engine
        self._images = images
        self._owner = owner
        self._limits = limits

    def resolved(self, wanted: Declared) -> _Lock | Failure:
        if not wanted.lines:
            return _Lock("", 0.0)
        key = (wanted.text, self._images.builder.id)
        with _resolving[key]:
            known = _locks.get(key)
            if known is not None:
                return _Lock(known.text, 0.0)
            found = self._resolve(wanted)
            if isinstance(found, _Lock):
                _locks[key] = found
            return found

    def _resolve(self, wanted: Declared) -> _Lock | Failure:
        options = ("--no-build", "--generate-hashes", "--no-header", "--no-annotate")
        argv = ("uv", "pip", "compile", *options, "-")
        with self._container() as container:
            ended = self._uv(container, argv, wanted.text)
            if (failure := self._failed(ended, "resolving")) is not None:
                return failure
        if ended.stdout.dropped_bytes:
            return Failure(
                failure_class=FailureClass.DEPENDENCY_REFUSED,
                sentence=f"the declared dependencies need more than {LOCK_KB} KiB of lock",
            )
        return _Lock(ended.raw_stdout.decode(), ended.duration_s)

    def install(self, lock: str, python: str, target: Volume) -> float:
        """Fill `target`; seconds it took. Raises _NotInstalled."""
        minor = ".".join(python.split(".")[:2])
        venv = ("uv", "venv", "--relocatable", "--python", "python3", PLACE)
        options = ("--no-build", "--require-hashes", "--link-mode", "copy")
        sync = ("uv", "pip", "sync", *options, "--python", f"{PLACE}/bin/python", "-")
        with self._container(target.at(PLACE, read_only=False)) as container:
            made = container.exec(venv, timeout_s=self._limits.wall_s)
            if made.exit_code != 0:
                raise EngineRefused(f"uv venv failed: {made.stderr.text.strip()}")
            packages = f"{PLACE}/lib/python{minor}/site-packages"
            container.put(packages, {SEED_HOOK.name: SEED_HOOK})
            if not lock:
                return made.duration_s
            ended = self._uv(container, sync, lock)
            if (failure := self._failed(ended, "installing")) is not None:
                raise _NotInstalled(failure)
        return made.duration_s + ended.duration_s + self._compile(target)

    def _compile(self, target: Volume) -> float:
        """Bytecode for what is installed, as the environment will be read-only; seconds."""
        spec = ContainerSpec(
            self._images.builder.id,
            self._owner,
            self._limits,
            mounts=(target.at(PLACE, read_only=False),),
        )
        ended = run_step(self._engine, spec, COMPILE)
        # Status 1: some file does not compile, which packages bring as templates.
        if ended.ending is not Ending.EXITED:
            failure = self._failed(ended, "compiling")
            assert failure is not None
            raise _NotInstalled(failure)
        return ended.duration_s

    def _uv(self, container: Container, argv: Sequence[str], stdin: str) -> Ended:
        """Again where the index did not answer, in the same container."""

        @retry(
            retry=retry_if_result(_index_is_away),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=0.5, max=8),
            retry_error_callback=_last_result,
        )
        def attempt() -> Ended:
            return container.exec(
                argv, timeout_s=self._limits.wall_s, stdin=stdin.encode(), log_kb=LOCK_KB
            )

        return attempt()

    def _failed(self, ended: Ended, doing: str) -> Failure | None:
        if ended.ending is Ending.EXITED and ended.exit_code == 0:
            return None
        if ended.ending is Ending.EXITED:
            return resolver_failure(ended.stderr.text)
        what = f"{doing} the declared dependencies"
        sentences = {
            Ending.TIMEOUT: f"{what} took longer than {self._limits.wall_s:.0f} s",
            Ending.OUT_OF_MEMORY: f"{what} took more memory than {self._limits.memory_mb} MiB",
        }
        classes = {
            Ending.TIMEOUT: FailureClass.TIMEOUT,
            Ending.OUT_OF_MEMORY: FailureClass.OUT_OF_MEMORY,
        }
        return Failure(
            failure_class=classes.get(ended.ending, FailureClass.UNKNOWN),
            sentence=sentences.get(ended.ending, f"{what} was ended by a signal"),
            evidence=[Evidence(source=SOURCE, excerpt=ended.stderr.text[-400:])],
        )

    def _container(self, *mounts: Mount) -> Container:
        bundle = ca.bundle().read_bytes()
        authorities = _shared(self._engine, self._images, "ca", {CA_NAME: bundle})
        wheels = _shared(self._engine, self._images, "wheels", {})
        spec = ContainerSpec(
            self._images.builder.id,
            self._owner,
            self._limits,
            mounts=(authorities.at(CA_FOLDER), wheels.at(WHEELS, read_only=False), *mounts),
            env={
                **UV_SETTINGS,
                **ca.client_environment(f"{CA_FOLDER}/{CA_NAME}"),
                **ca.proxies(),
                **index_settings(),
            },
            network="bridge",
        )
        return Container(self._engine, spec)


def _index_is_away(ended: Ended) -> bool:
    return (
        ended.ending is Ending.EXITED
        and ended.exit_code != 0
        and resolver_failure(ended.stderr.text).failure_class is FailureClass.INDEX_UNAVAILABLE
    )


def _last_result(state: RetryCallState) -> Ended:
    assert state.outcome is not None
    result: Ended = state.outcome.result()
    return result


def _shared(
    engine: Engine, images: EnvironmentImages, role: str, files: Mapping[str, bytes]
) -> Volume:
    """A volume that all builds use, found by its first content."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())

    def fill(target: Volume) -> None:
        volume.fill(engine, images.tools.id, target, files, Owner(trial="", role=role))

    return volume.cached(engine, images.tools.id, digest.hexdigest(), role, fill)


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
        ended = run_step(engine, spec, ("python3", "-I", "-c", _PROBE), timeout_s=60)
        if ended.exit_code != 0:
            raise ImageBuildFailed(
                f"image {image.name} has no working python3: {ended.stderr.text.strip()}"
            )
        _pythons[image.id] = ended.stdout.text.strip()
    return _pythons[image.id]
