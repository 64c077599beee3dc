"""uv in a builder container: it has the network and the wheel cache, no data, no key, no code.

Where packages may be built their code runs there, in the same cage: as the sandbox's user, under
all limits, and with a cache of its own, so that it can't alter the wheels that others install.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tenacity import RetryCallState, retry, retry_if_result, stop_after_attempt, wait_exponential

from orchestrator.errors import EngineRefused
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Ending, Evidence, Failure
from orchestrator.sandbox import ca, caches, volume
from orchestrator.sandbox.container import Container, ContainerSpec, Mount, run_step
from orchestrator.sandbox.downloads import Download, downloads, largest, too_large_unpacked
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.exec import Ended
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.indexes import index_settings
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import MIB, EnvironmentRules, Limits
from orchestrator.sandbox.requirements import Declared
from orchestrator.sandbox.resolution import SOURCE, resolver_failure
from orchestrator.sandbox.volume import Volume

PLACE = "/env"
WHEELS = "/wheels"
CA_FOLDER = "/ca"
CA_NAME = "bundle.crt"
LIMITS = Limits(
    memory_mb=2048, cpus=2.0, pids=256, wall_s=600, tmp_mb=256, nofile=4096, fsize_mb=4096
)
COMPILE = (
    *("python3", "-I", "-S", "-m", "compileall", "-qq"),
    *("-j", "2", "-x", "/tests/", f"{PLACE}/lib"),
)
"""Without the site module: it would run the `.pth` files of what is installed. The tests of large
packages are more than half of them, and nobody imports them."""
MEASURED = f'"$@"; du -sk {PLACE} | cut -f 1'
INSTALL = (Path(__file__).parent / "sent" / "install.py").read_text()
FULL = 93
"""Its status when the cap on what is written was reached."""
WHEELS_MB = 8192
"""Of the wheel cache; beyond it the packages wanted longest ago go."""
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


class EnvironmentImages(Protocol):
    """The images that building takes. `scorer` is where the environment will be used."""

    @property
    def tools(self) -> Image: ...
    @property
    def builder(self) -> Image: ...
    @property
    def scorer(self) -> Image: ...


@dataclass(frozen=True)
class Lock:
    """Requirements with hashes, and what installing them would download."""

    text: str = ""
    seconds: float = 0.0
    downloads: list[Download] = field(default_factory=list)


@dataclass(frozen=True)
class Installed:
    """Seconds it took and bytes on disk."""

    seconds: float
    size: int = 0


class NotInstalled(Exception):
    """Why an environment could not be filled, on the way out of its volume's building."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


class Builder:
    """Resolves and installs, each in a fresh container, under the rules of a task."""

    def __init__(
        self, engine: Engine, images: EnvironmentImages, owner: Owner, rules: EnvironmentRules
    ) -> None:
        self._engine = engine
        self._images = images
        self._owner = owner
        self._rules = rules
        self._limits = LIMITS.model_copy(update={"wall_s": rules.wall_s})

    @property
    def _wheels_only(self) -> tuple[str, ...]:
        return () if self._rules.allow_sdist else ("--no-build",)

    def resolve(self, wanted: Declared) -> Lock | Failure:
        """A lock of what is declared, or why there is none. Sizes are not judged here."""
        compile_ = ("uv", "pip", "compile", *self._wheels_only, "--no-header")
        argv = (*compile_, "--generate-hashes", "--no-annotate", "-")
        # Its other format tells sizes; answered from what was just looked up.
        sized = (*compile_, "--no-deps", "--format", "pylock.toml", "-")
        with self._cache() as cache, self._container(cache) as container:
            ended = self._uv(container, argv, wanted.text)
            failure = self._failed(ended, "resolving")
            if failure is None and ended.stdout.dropped_bytes:
                failure = Failure(
                    failure_class=FailureClass.DEPENDENCY_REFUSED,
                    sentence=f"the declared dependencies need more than {LOCK_KB} KiB of lock",
                )
            if failure is not None:
                return failure
            text = ended.raw_stdout.decode()
            told = self._uv(container, sized, text)
            failure = self._failed(told, "resolving")
        if failure is not None:
            return failure
        found = downloads(told.raw_stdout.decode())
        return Lock(text, ended.duration_s + told.duration_s, found)

    def install(self, lock: Lock, python: str, target: Volume) -> Installed:
        """Fill `target`. Raises NotInstalled."""
        venv = ("uv", "venv", "--relocatable", "--python", "python3", PLACE)
        with (
            self._cache() as cache,
            self._container(cache, target.at(PLACE, read_only=False)) as container,
        ):
            made = container.exec(venv, timeout_s=self._limits.wall_s)
            if made.exit_code != 0:
                raise EngineRefused(f"uv venv failed: {made.stderr.text.strip()}")
            container.put(site_packages(python), {SEED_HOOK.name: SEED_HOOK})
            if not lock.text:
                return Installed(made.duration_s)
            with self._alone():
                ended = self._uv(container, self._sync(lock), lock.text)
        if ended.ending is Ending.EXITED and ended.exit_code == FULL:
            raise NotInstalled(too_large_unpacked(lock.downloads, self._rules))
        if (failure := self._failed(ended, "installing")) is not None:
            if ended.ending is Ending.TIMEOUT:
                named = f"{failure.sentence}; the largest: {largest(lock.downloads)}"
                failure = failure.model_copy(update={"sentence": named})
            raise NotInstalled(failure)
        compiled = self._compile(target)
        seconds = made.duration_s + ended.duration_s + compiled.seconds
        return Installed(seconds, compiled.size)

    def _sync(self, lock: Lock) -> tuple[str, ...]:
        options = (*self._wheels_only, "--require-hashes", "--link-mode", "copy")
        plan = {
            "command": ["uv", "pip", "sync", *options, "--python", f"{PLACE}/bin/python", "-"],
            "places": [PLACE, WHEELS],
            "cap": self._rules.disk_mb * MIB,
            "cache": WHEELS,
            "cache_cap": WHEELS_MB * MIB,
            "packages": [each.package for each in lock.downloads],
        }
        return ("python3", "-I", "-S", "-c", INSTALL, json.dumps(plan))

    def _compile(self, target: Volume) -> Installed:
        """Bytecode for what is installed, as the environment will be read-only."""
        spec = ContainerSpec(
            self._images.builder.id,
            self._owner,
            self._limits,
            mounts=(target.at(PLACE, read_only=False),),
        )
        ended = run_step(self._engine, spec, ("/bin/sh", "-c", MEASURED, "sh", *COMPILE))
        # Status 1: some file does not compile, which packages bring as templates.
        if ended.ending is not Ending.EXITED:
            failure = self._failed(ended, "compiling")
            assert failure is not None
            raise NotInstalled(failure)
        return Installed(ended.duration_s, int(ended.raw_stdout.split()[-1]) * 1024)

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
        if ended.succeeded:
            return None
        if ended.ending is Ending.EXITED:
            return resolver_failure(ended.stderr.text)
        what = f"{doing} the declared dependencies"
        sentences = {
            Ending.TIMEOUT: f"{what} took longer than {self._limits.wall_s:g} s",
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

    @contextmanager
    def _cache(self) -> Iterator[Volume]:
        """The wheels of all; or, where code of packages runs, an empty cache that goes at once."""
        if not self._rules.allow_sdist:
            yield _shared(self._engine, self._images, "wheels", {})
            return
        own = volume.create(self._engine, self._owner.as_role("own-wheels"))
        try:
            yield own
        finally:
            volume.remove(self._engine, own)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What others bring into the common cache meanwhile would count as ours."""
        if self._rules.allow_sdist:
            yield
            return
        with caches.locked("wheels"):
            yield

    def _container(self, cache: Volume, *mounts: Mount) -> Container:
        bundle = ca.bundle().read_bytes()
        authorities = _shared(self._engine, self._images, "ca", {CA_NAME: bundle})
        spec = ContainerSpec(
            self._images.builder.id,
            self._owner,
            self._limits,
            mounts=(authorities.at(CA_FOLDER), cache.at(WHEELS, read_only=False), *mounts),
            env={
                **UV_SETTINGS,
                **ca.client_environment(f"{CA_FOLDER}/{CA_NAME}"),
                **ca.proxies(),
                **index_settings(),
            },
            network="bridge",
        )
        return Container(self._engine, spec)


def site_packages(python: str) -> str:
    """Where an environment for that version of the interpreter has its packages."""
    minor = ".".join(python.split(".")[:2])
    return f"{PLACE}/lib/python{minor}/site-packages"


def _index_is_away(ended: Ended) -> bool:
    return (
        ended.ending is Ending.EXITED
        and ended.exit_code not in (0, FULL)
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
