"""Environments: built once by content, found again, refused where they can't be right."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scoring_lab import images as lab_images

from orchestrator.errors import ImageBuildFailed
from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import Failure
from orchestrator.sandbox import builder, caches, environment, volume
from orchestrator.sandbox.container import ContainerSpec, run_step
from orchestrator.sandbox.environment import build
from orchestrator.sandbox.limits import EnvironmentRules, Limits
from orchestrator.sandbox.requirements import Declared, declared


@pytest.fixture(scope="module")
def images(engine):
    return lab_images(engine)


@pytest.fixture
def no_memory(monkeypatch):
    """Resolve anew, as another process would."""
    monkeypatch.setattr(environment, "_locks", {})


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """Environments that were not built before: the hook is part of what they are."""
    hook = tmp_path / "orch_seed.pth"
    hook.write_text(f"# {secrets.token_hex(8)}\n")
    monkeypatch.setattr(builder, "SEED_HOOK", hook)
    return hook


def wanted(*lines: str) -> Declared:
    found = declared({"requirements.txt": "\n".join(lines).encode()})
    assert isinstance(found, Declared)
    return found


def python_in(engine, images, owner, env, code):
    spec = ContainerSpec(
        images.scorer.id, owner, Limits(memory_mb=128), mounts=(env.mount,),
        env={"PATH": "/env/bin:/usr/bin:/bin"},
    )  # fmt: skip
    return run_step(engine, spec, ("python", "-c", code), timeout_s=60)


def test_a_package_is_there_where_it_is_used(engine, images, owner):
    env = build(engine, images, wanted("six==1.17.0"), owner)
    assert not isinstance(env, Failure)
    assert env.record.packages == {"six": "1.17.0"}
    assert "six==1.17.0" in env.record.lock
    assert "--hash=sha256:" in env.record.lock
    ended = python_in(
        engine, images, owner, env, "import six, sys; print(six.__version__, sys.prefix)"
    )
    assert ended.stdout.text.split() == ["1.17.0", "/env"]
    assert python_in(engine, images, owner, env, "open('/env/x', 'w')").exit_code == 1


def left_by_a_pth_file(engine, images, owner, monkeypatch, tmp_path):
    """What lies in an environment that holds a `.pth` file which tells where it was run."""
    hook = tmp_path / "hook.pth"
    hook.write_text("import os; open('/env/ran', 'w').write('here')\n")
    # What was downloaded once is not downloaded again, for another environment neither.
    assert not isinstance(build(engine, images, wanted("six==1.17.0"), owner), Failure)
    monkeypatch.setitem(builder.UV_SETTINGS, "UV_OFFLINE", "1")
    monkeypatch.setattr(builder, "SEED_HOOK", hook)
    env = build(engine, images, wanted("six==1.17.0"), owner)
    try:
        spec = ContainerSpec(images.scorer.id, owner, Limits(memory_mb=64), mounts=(env.mount,))
        return run_step(engine, spec, ("find", "/env"), timeout_s=60).stdout.text
    finally:
        engine.remove_volume(env.volume.name)


def test_nothing_of_a_package_runs_where_it_is_installed(
    engine, images, owner, monkeypatch, tmp_path
):
    found = left_by_a_pth_file(engine, images, owner, monkeypatch, tmp_path)
    assert "/site-packages/hook.pth" in found
    assert "/__pycache__/six.cpython-" in found
    assert "/env/ran" not in found


def test_by_the_environment_s_own_interpreter_it_would(
    engine, images, owner, monkeypatch, tmp_path
):
    own = ("/env/bin/python", *(word for word in builder.COMPILE[1:] if word != "-S"))
    monkeypatch.setattr(builder, "COMPILE", own)
    assert "/env/ran" in left_by_a_pth_file(engine, images, owner, monkeypatch, tmp_path)


def test_nothing_declared_is_an_environment_too(engine, images, owner):
    env = build(engine, images, Declared(), owner)
    assert not isinstance(env, Failure)
    assert (env.record.lock, env.record.packages, env.record.declared_in) == ("", {}, None)
    assert python_in(engine, images, owner, env, "import sys; print(sys.prefix)").exit_code == 0


def test_one_lock_is_installed_once(engine, images, owner, no_memory):
    first = build(engine, images, wanted("six==1.17.0"), owner)
    environment._locks.clear()
    # Another text with the same lock.
    second = build(engine, images, wanted("six == 1.17.*"), owner)
    assert not isinstance(first, Failure)
    assert not isinstance(second, Failure)
    assert first.volume == second.volume
    assert second.record.reused
    assert second.record.install_s == 0.0


BUILDING = """
import secrets, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from scoring_lab import images
from orchestrator.sandbox import builder
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.environment import build, declared
from orchestrator.sandbox.labels import Owner
builder.SEED_HOOK = Path(sys.argv[2])
engine = Engine.connect()
env = build(engine, images(engine), declared({"requirements.txt": b"six"}), Owner(sys.argv[3]))
print(env.volume.name, env.record.reused)
"""


def test_processes_that_build_the_same_wait_for_one_another(engine, owner, anew):
    argv = [sys.executable, "-c", BUILDING, str(Path(__file__).parent), str(anew), owner.trial]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[0].split() for process in both]
    assert told[0][0] == told[1][0]
    assert sorted(reused for _, reused in told) == ["False", "True"]
    engine.remove_volume(told[0][0])


USING = """
import sys
from orchestrator.sandbox import caches
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.volume import Volume
print(caches.use(Engine.connect(), Volume(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_what_was_used_longest_ago_goes_and_nothing_in_use(engine, images):
    role = f"test-{secrets.token_hex(4)}"
    made = [volume.cached(engine, images.tools.id, str(n), role, lambda _: 100) for n in range(4)]
    users = [
        subprocess.Popen(
            [sys.executable, "-c", USING, v.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for v in made[:3]
    ]  # fmt: skip
    assert [user.stdout.readline().strip() for user in users] == ["True"] * 3
    for number, one in enumerate(made[:3]):
        os.utime(caches.folder() / f"{one.name}.used", (number, number))
    # The last was never used here: whoever uses it can't be seen.
    assert caches.trim(engine, role, 0) == []
    users[1].communicate()
    users[2].kill()
    users[2].communicate()
    # The first would be next, and is in use.
    assert caches.trim(engine, role, 100) == [made[1]]
    users[0].communicate()
    assert caches.trim(engine, role, 0) == [made[0], made[2]]
    assert not caches.use(engine, made[0])
    assert set(volume.complete_ones(engine, role).items()) == {(made[3], 100)}
    volume.remove(engine, made[3])


@pytest.mark.parametrize(
    ("line", "failure_class", "says"),
    [
        ("sklearn", C.DEPENDENCY_NOT_FOUND, "the package is called scikit-learn"),
        ("pickle", C.DEPENDENCY_NOT_FOUND, "standard library"),
        ("six==99.0", C.DEPENDENCY_NOT_FOUND, "no version of six fits six==99.0"),
        ("docopt==0.6.2", C.DEPENDENCY_UNAVAILABLE, "no wheel of docopt"),
    ],
)
def test_what_can_not_be_resolved_is_classified(engine, images, owner, line, failure_class, says):
    failure = build(engine, images, wanted(line), owner)
    assert isinstance(failure, Failure)
    assert failure.failure_class is failure_class
    assert says in failure.sentence


def test_a_conflict_is_explained(engine, images, owner):
    failure = build(engine, images, wanted("pandas==2.2.2", "numpy==1.19.5"), owner)
    assert isinstance(failure, Failure)
    assert failure.failure_class is C.DEPENDENCY_CONFLICT
    assert "numpy==1.19.5" in failure.sentence


def test_an_index_that_stays_away_is_not_the_submission_s_failure(
    engine, images, owner, monkeypatch
):
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setattr(builder, "ATTEMPTS", 2)
    monkeypatch.setitem(builder.UV_SETTINGS, "UV_HTTP_RETRIES", "0")
    failure = build(engine, images, wanted("wheel"), owner)
    assert isinstance(failure, Failure)
    assert failure.failure_class is C.INDEX_UNAVAILABLE
    assert "Connection refused" in failure.sentence


def test_resolving_has_a_time_limit(engine, images, owner):
    # Shorter than uv takes to start.
    failure = build(engine, images, wanted("idna"), owner, EnvironmentRules(wall_s=0.001))
    assert isinstance(failure, Failure)
    assert failure.failure_class is C.TIMEOUT
    assert "took longer than 0.001 s" in failure.sentence


def test_26_what_is_too_large_is_refused_before_it_is_downloaded(engine, images, owner):
    failure = build(engine, images, wanted("torch==2.5.1"), owner)
    assert isinstance(failure, Failure)
    assert failure.failure_class is C.DISK_FULL
    assert re.search(
        r"would download \d{4} MiB in \d\d packages; the task allows 2048 MiB; the "
        r"largest: torch 2\.5\.1 8\d\d MiB, nvidia-",
        failure.sentence,
    )


def in_the_wheel_cache(engine, images, owner) -> str:
    wheels = builder._shared(engine, images, "wheels", {})
    spec = ContainerSpec(images.builder.id, owner, Limits(memory_mb=64), mounts=(wheels.at("/w"),))
    return run_step(engine, spec, ("find", "/w", "-maxdepth", "3"), timeout_s=60).stdout.text


def test_26_installing_has_a_limit_of_disk(engine, images, owner, monkeypatch):
    removed = []
    remove = volume.remove
    monkeypatch.setattr(volume, "remove", lambda e, v: (removed.append(v), remove(e, v)))
    text = wanted("sqlglot==25.0.3")
    failure = build(engine, images, text, owner, EnvironmentRules(disk_mb=1))
    assert isinstance(failure, Failure)
    assert failure.failure_class is C.DISK_FULL
    assert re.search(r"wrote more than 1 MiB.*largest: sqlglot 25.0.3 0\.\d MiB", failure.sentence)
    assert [one.name.startswith("orch-environment-") for one in removed] == [True]
    assert "/sqlglot" not in in_the_wheel_cache(engine, images, owner)
    # Within the limit it stays.
    env = build(engine, images, text, owner)
    assert not isinstance(env, Failure)
    assert "/sqlglot" in in_the_wheel_cache(engine, images, owner)
    engine.remove_volume(env.volume.name)


@pytest.mark.usefixtures("anew")
def test_packages_are_built_where_the_task_allows_it(engine, images, owner):
    env = build(engine, images, wanted("docopt==0.6.2"), owner, EnvironmentRules(allow_sdist=True))
    assert not isinstance(env, Failure)
    ended = python_in(engine, images, owner, env, "import docopt; print(docopt.__version__)")
    assert ended.stdout.text.split() == ["0.6.2"]
    # What package code could have altered is not what others install from.
    engine.remove_volume(env.volume.name)
    cache = in_the_wheel_cache(engine, images, owner)
    assert not re.search(r"/(?:sdists|wheels)-\S+/docopt$", cache, re.MULTILINE)


def test_an_environment_of_another_python_is_refused(engine, images, owner, monkeypatch):
    other = replace(images.scorer, id="another-image")
    monkeypatch.setitem(environment._pythons, "another-image", "3.13.1 /usr/bin/python3.13")
    with pytest.raises(ImageBuildFailed, match=r"built with Python 3\.\d+\.\d+ .* used with 3.13"):
        build(engine, replace(images, scorer=other), wanted("six"), owner)
