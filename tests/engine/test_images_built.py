"""Images as the engine holds them: reused, rebuilt on change, free of what must not be in them."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from orchestrator.config import CHECKOUT
from orchestrator.errors import ImageBuildFailed, ImageMissing, NotEnoughSpace
from orchestrator.sandbox import buildx, ca, image
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image

FORBIDDEN = re.compile(r"(^|/)(holdout|runs|\.git|answer_key|key\.csv)(/|$)")
PROBE = """ARG BASE
FROM ${BASE}
COPY payload/ /payload/
"""


def exported(engine: Engine, reference: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Every file of the image, as the container started from it would see it."""
    container = engine.api.create_container(reference, ["true"])["Id"]
    try:
        stream = engine.api.export(container)
        with tarfile.open(fileobj=cast("IO[bytes]", Reader(stream)), mode="r|") as archive:
            for member in archive:
                yield member, archive.extractfile(member) if member.isreg() else None
    finally:
        engine.api.remove_container(container, force=True)


class Reader(io.RawIOBase):
    """Chunks of a response as a file to read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.left = chunks, b""

    def read(self, size: int = -1) -> bytes:
        while len(self.left) < size and (chunk := next(self.chunks, None)):
            self.left += chunk
        taken, self.left = self.left[:size], self.left[size:]
        return taken


def output(engine: Engine, reference: str, script: str) -> str:
    """What the script prints in a fresh container of the image, as the image's own user.

    Both streams go through one pipe: the engine keeps no order between two.
    """
    spec = {"network_disabled": True, "entrypoint": ["sh", "-c"]}
    container = engine.api.create_container(reference, [f"exec 2>&1; {script}"], **spec)["Id"]
    try:
        engine.api.start(container)
        engine.api.wait(container, timeout=60)
        return str(engine.api.logs(container).decode())
    finally:
        engine.api.remove_container(container, force=True)


def base_tag(engine: Engine) -> str:
    base = image.ensure(engine, "base")
    return buildx.tag(base.name, base.inputs_sha256)


@pytest.fixture
def probe(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[str, Path]]:
    """A small image of its own beside the real ones: its name and its folder of sources."""
    image.ensure(engine, "base")
    name = f"probe-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "images"
    shutil.copytree(CHECKOUT / "images", folder)
    (folder / name / "payload").mkdir(parents=True)
    (folder / name / "Dockerfile").write_text(PROBE)
    (folder / name / "payload/text").write_text("one")
    files = f'{{ payload = "images/{name}/payload" }}'
    entry = f'\n[{name}]\nbase = "base"\nneeds_mb = 1\nfiles = {files}\n'
    with (folder / "images.toml").open("a") as table:
        table.write(entry)
    monkeypatch.setattr(image, "bundled", lambda kind: folder)
    yield name, folder / name
    for built in engine.api.images(filters={"label": f"orch.image={name}"}):
        engine.api.remove_image(built["Id"], force=True)


def test_an_image_carries_our_labels_and_its_inputs(
    engine: Engine, probe: tuple[str, Path]
) -> None:
    built = image.ensure(engine, probe[0])
    details: dict[str, Any] = engine.api.inspect_image(buildx.tag(probe[0], built.inputs_sha256))
    assert details["Id"] == built.id
    assert details["Config"]["Labels"] == {
        "orch.role": "image",
        "orch.image": probe[0],
        "orch.inputs": built.inputs_sha256,
    }


def test_an_image_is_built_once_and_again_when_its_content_changes(
    engine: Engine, probe: tuple[str, Path]
) -> None:
    name, folder = probe
    first = image.ensure(engine, name)
    said: list[str] = []
    assert image.ensure(engine, name, say=said.append) == first
    assert said == []
    (folder / "payload/text").write_text("two")
    with pytest.raises(ImageMissing, match=f"image {name} is not built"):
        image.ensure(engine, name, build=False)
    second = image.ensure(engine, name)
    assert second.id != first.id
    assert second.inputs_sha256 != first.inputs_sha256
    (folder / "payload/text").write_text("one")
    assert image.ensure(engine, name, build=False) == first


def test_what_is_built_on_an_image_is_not_taken_for_it(
    engine: Engine, probe: tuple[str, Path]
) -> None:
    name, _ = probe
    first = image.ensure(engine, name)
    start = buildx.tag(name, first.inputs_sha256)
    heir = subprocess.run(
        ["docker", "buildx", "build", "--builder", "default", "--load", "-q", "-"],
        input=f"FROM {start}\nENV HEIR=1\n",
        text=True,
        capture_output=True,
        check=True,
    ).stdout.strip()
    labels = engine.api.inspect_image(heir)["Config"]["Labels"]
    assert labels["orch.inputs"] == first.inputs_sha256
    assert image.ensure(engine, name, build=False) == first


def test_a_failing_build_shows_its_last_words(engine: Engine, probe: tuple[str, Path]) -> None:
    name, folder = probe
    (folder / "Dockerfile").write_text(PROBE + "RUN echo broken-in-a-known-way; exit 7\n")
    with pytest.raises(ImageBuildFailed, match=r"(?s)failed .*broken-in-a-known-way"):
        image.ensure(engine, name)


def test_no_build_starts_without_the_space_it_needs(
    engine: Engine, probe: tuple[str, Path]
) -> None:
    name, folder = probe
    if engine.info().free_bytes is None:
        pytest.skip("the engine's disk can't be seen from here")
    table = folder.parent / "images.toml"
    enough = table.read_text()
    table.write_text(enough.replace("needs_mb = 1\n", "needs_mb = 900000000\n"))
    with pytest.raises(NotEnoughSpace, match=f"no space for the image {name}"):
        image.ensure(engine, name)
    table.write_text(enough)
    assert image.ensure(engine, name).id


@pytest.mark.parametrize("name", image.names())
def test_an_image_holds_no_key_no_record_and_no_history(engine: Engine, name: str) -> None:
    members = [member for member, _ in exported(engine, image.ensure(engine, name).id)]
    names = {member.name for member in members}
    assert "workspace" in names
    assert [each for each in names if FORBIDDEN.search(each)] == []
    if name == "base":
        assert [member.name for member in members if member.isreg() and member.mode & 0o6000] == []


def test_a_key_in_an_image_would_be_seen(engine: Engine, probe: tuple[str, Path]) -> None:
    name, folder = probe
    (folder / "payload/key.csv").write_text("id,label\n")
    names = {member.name for member, _ in exported(engine, image.ensure(engine, name).id)}
    assert [each for each in names if FORBIDDEN.search(each)] == ["payload/key.csv"]


@pytest.mark.parametrize("name", image.names())
def test_an_image_runs_python_as_the_sandbox_user(engine: Engine, name: str) -> None:
    built = image.ensure(engine, name)
    said = output(engine, built.id, "id -u; id -g; python -V; python3 -V; touch /x /data/x /env/x")
    assert said.startswith("10001\n10001\nPython 3.11.")
    assert said.count("Python 3.11.") == 2
    assert said.count("Permission denied") == 3


@pytest.mark.parametrize("kept", [False, True])
def test_the_hosts_ca_bundle_is_there_in_the_build_and_not_in_the_image(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: bool
) -> None:
    """With `kept` the build copies it on purpose, and the same search must then find it."""
    mark = uuid.uuid4().hex
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(ca.bundle().read_bytes() + f"# {mark}\n".encode())
    monkeypatch.setenv("ORCH_CA_BUNDLE", str(bundle))
    dockerfile = tmp_path / "Dockerfile"
    copy = "cp /run/ca.pem /home/ca.pem" if kept else "true"
    dockerfile.write_text(
        "ARG BASE\nFROM ${BASE}\nUSER 0\n"
        f"RUN --mount=type=secret,id=ca,target=/run/ca.pem grep -q {mark} /run/ca.pem && {copy}\n"
    )
    labels = {"orch.image": f"probe-{mark[:8]}", "orch.inputs": mark}
    built = buildx.build(
        f"probe-{mark[:8]}",
        buildx.Context({"Dockerfile": dockerfile}),
        {"BASE": base_tag(engine)},
        labels,
        lambda line: None,
    )
    try:
        holding = [
            member.name
            for member, content in exported(engine, built)
            if content is not None and f"# {mark}".encode() in content.read()
        ]
        history = str(engine.api.history(built))
    finally:
        engine.api.remove_image(built, force=True)
    assert holding == (["home/ca.pem"] if kept else [])
    assert "BEGIN CERTIFICATE" not in history


@pytest.mark.parametrize("guarded", [True, False])
def test_the_context_of_compose_leaves_keys_outside(
    engine: Engine, tmp_path: Path, guarded: bool
) -> None:
    """Without .dockerignore the key gets in, so the list is what keeps it out."""
    for name in (
        "pyproject.toml",
        "orchestrator/cli.py",
        "orchestrator/holdout/spam/key.csv",
        "holdout/spam/key.csv",
        "runs/t/trial.json",
        ".git/config",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    if guarded:
        shutil.copy(CHECKOUT / ".dockerignore", tmp_path)
    target = tmp_path / "seen"
    command = ["docker", "buildx", "build", "--builder", "default", "--quiet", "--file", "-"]
    command += ["--output", f"type=local,dest={target}", str(tmp_path)]
    subprocess.run(command, input="FROM scratch\nCOPY . /\n", text=True, check=True)
    seen = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert {"pyproject.toml", "orchestrator/cli.py"} <= seen
    assert any(FORBIDDEN.search(name) for name in seen) is not guarded


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.cpu.yaml"]])
def test_compose_files_are_valid(files: list[str]) -> None:
    command = ["docker", "compose", "--profile", "run"]
    for name in files:
        command += ["--file", name]
    shown = subprocess.run(
        [*command, "config"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert ("capabilities" in shown.stdout) is (len(files) == 1)
    assert "/var/run/docker.sock" in shown.stdout


def test_the_image_of_orch_answers_over_the_engines_socket(engine: Engine) -> None:
    environ = {
        **os.environ,
        "ORCH_BASE": base_tag(engine),
        "ORCH_CA_BUNDLE": str(ca.bundle()),
        "BUILDX_BUILDER": "default",
    }
    subprocess.run(
        ["docker", "compose", "build", "--quiet", "orch"], cwd=CHECKOUT, env=environ, check=True
    )
    orch = ["docker", "run", "--rm", "-v", "/var/run/docker.sock:/var/run/docker.sock"]
    orch += ["orch/orch:local"]

    def says(*words: str) -> str:
        done = subprocess.run([*orch, *words], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert says("--version").startswith("orch, version ")
    assert re.search(r"ok +engine +Docker", says("doctor"))
    names = {member.name for member, _ in exported(engine, "orch/orch:local")}
    assert [each for each in names if FORBIDDEN.search(each)] == []


def test_the_base_is_the_pinned_one_or_made_of_its_suite(engine: Engine) -> None:
    base: Image = image.ensure(engine, "base")
    pins = image.pins()["root"]
    assert pins["suite"] in output(engine, base.id, "cat /etc/os-release")
