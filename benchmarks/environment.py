"""What environments cost, against what uv and the engine themselves take in the same run.

Each figure is a median over pairs measured one right after the other. The wheels are downloaded
before anything is measured; how long that took is told apart. `make bench` runs it.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from shown import machine, table

from orchestrator.records.schema import Failure
from orchestrator.sandbox import builder, environment, image, volume
from orchestrator.sandbox.builder import PLACE, Builder
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.environment import Environment, build
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import EnvironmentRules
from orchestrator.sandbox.requirements import Declared, declared

REQUIREMENTS = b"scikit-learn==1.7.2\npandas==2.3.3\n"
RUNS = 10


@dataclass(frozen=True)
class Lab:
    engine: Engine
    tools: Image
    builder: Image
    scorer: Image
    owner: Owner

    def build(self) -> Environment:
        built = build(self.engine, self, self.wanted, self.owner)
        assert not isinstance(built, Failure), built.sentence
        return built

    @property
    def wanted(self) -> Declared:
        found = declared({"requirements.txt": REQUIREMENTS})
        assert isinstance(found, Declared)
        return found


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def another() -> Iterator[None]:
    """Environments of the same lock that nobody has yet: the seed hook is part of their key."""
    with tempfile.TemporaryDirectory() as folder:
        hook = Path(folder, "orch_seed.pth")
        hook.write_text(f"# {secrets.token_hex(8)}\n")
        with mock.patch.object(builder, "SEED_HOOK", hook):
            yield


def installed(lab: Lab) -> tuple[float, float]:
    """Seconds of an installation from warm wheels: as `build` takes it, and as its steps do."""
    with another():
        began = time.perf_counter()
        env = lab.build()
        whole = time.perf_counter() - began
    assert not env.record.reused
    lab.engine.remove_volume(env.volume.name)
    return whole, env.record.install_s


def by_uv(lab: Lab, lock: str) -> float:
    """Seconds of uv and the compiler alone, in one container that runs already."""
    target = volume.create(lab.engine, lab.owner.as_role("bare"))
    bare = Builder(lab.engine, lab, lab.owner, EnvironmentRules())
    sync = ("uv", "pip", "sync", "--no-build", "--require-hashes", "--link-mode", "copy")
    sync = (*sync, "--python", f"{PLACE}/bin/python", "-")
    try:
        with (
            bare._cache() as cache,
            bare._container(cache, target.at(PLACE, read_only=False)) as container,
        ):
            venv = ("uv", "venv", "--relocatable", "--python", "python3", PLACE)
            ended = [
                container.exec(venv, timeout_s=60),
                container.exec(sync, timeout_s=600, stdin=lock.encode()),
                container.exec(builder.COMPILE, timeout_s=600),
            ]
    finally:
        volume.remove(lab.engine, target)
    assert ended[1].exit_code == 0, ended[1].stderr.text
    return sum(one.duration_s for one in ended)


def fresh(lab: Lab) -> float:
    """Another process finds the environment: it resolves first."""
    with mock.patch.object(environment, "_locks", {}):
        return timed(lab.build)


def listing(lab: Lab) -> float:
    """The least that finding a volume by its content takes."""
    return timed(lambda: volume.complete_ones(lab.engine, environment.ROLE))


def counted(lab: Lab) -> tuple[int, int]:
    """(resolutions, installations) of ten runs that declare the same."""
    resolve, install = Builder.resolve, Builder.install
    done: list[str] = []

    def resolving(self: Builder, wanted: Declared) -> object:
        done.append("resolve")
        return resolve(self, wanted)

    def installing(self: Builder, *args: object) -> object:
        done.append("install")
        return install(self, *args)  # type: ignore[arg-type]

    with (
        another(),
        mock.patch.object(environment, "_locks", {}),
        mock.patch.object(Builder, "resolve", resolving),
        mock.patch.object(Builder, "install", installing),
    ):
        found = [lab.build() for _ in range(RUNS)]
    lab.engine.remove_volume(found[0].volume.name)
    return done.count("resolve"), done.count("install")


def offline(lab: Lab) -> bool:
    """Whether another environment of that lock can be installed without a network."""
    with mock.patch.dict(builder.UV_SETTINGS, {"UV_OFFLINE": "1"}):
        installed(lab)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, choices=range(2, 51), metavar="2-50")
    rounds = parser.parse_args().rounds
    engine = Engine.connect()
    images = [image.ensure(engine, name) for name in ("tools", "builder", "scorer")]
    lab = Lab(engine, *images, Owner(f"bench-{secrets.token_hex(4)}"))
    first = lab.build()
    print(f"first build: {first.record.resolve_s:.1f} s resolving, "
          f"{first.record.install_s:.1f} s downloading and installing")  # fmt: skip
    hits = [(listing(lab), timed(lab.build)) for _ in range(rounds * 4)]
    news = [(installed(lab), by_uv(lab, first.record.lock)) for _ in range(rounds)]
    hit = statistics.median(hit for _, hit in hits)
    whole = statistics.median(whole for (whole, _), _ in news)
    ratio = statistics.median(whole / bare for (whole, _), bare in news)
    bare = statistics.median(bare for _, bare in news)
    again = statistics.median(fresh(lab) for _ in range(rounds))
    resolved, done = counted(lab)
    passed = [hit <= 0.3, whole <= 6.0, (resolved, done) == (1, 1), offline(lab)]
    listed = statistics.median(listed for listed, _ in hits)
    rows = [
        ("warm hit", f"{hit:.3f} s", f"listing volumes {listed:.3f} s", "≤ 0.3 s"),
        ("installing from warm wheels, bytecode included", f"{whole:.1f} s",
         f"uv and compiler alone {bare:.1f} s, ratio {ratio:.2f}", "≤ 6 s"),
        (f"{RUNS} runs of one lock", f"{resolved} resolution, {done} installation", "", "1, 1"),
        ("another environment of that lock, offline", "installed", "", "no download"),
    ]  # fmt: skip
    judged = [(*row, "PASS" if good else "over") for row, good in zip(rows, passed, strict=True)]
    print("\n" + table(("", "", "beside", "bound", ""), judged))
    print(f"\nAnother process finds it in {again:.2f} s, resolving included. {machine(engine)}")
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
