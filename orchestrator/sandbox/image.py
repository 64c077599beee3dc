"""Images: one folder each under `images/`, built when what they are built from has changed."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests
from docker.errors import APIError, ImageNotFound

from orchestrator.config import CHECKOUT, PACKAGE, bundled
from orchestrator.errors import ImageMissing, NotEnoughSpace
from orchestrator.sandbox import buildx, rootfs
from orchestrator.sandbox.buildx import Context, Say
from orchestrator.sandbox.engine import refusal, translated

if TYPE_CHECKING:
    from orchestrator.sandbox.engine import Engine

ROOT = "root"
REGISTRY_ANSWERS_WITHIN_S = 15


@dataclass(frozen=True)
class Image:
    """An image on the engine. `id` is what containers are started from, never a tag."""

    name: str
    id: str
    inputs_sha256: str
    repo_digest: str | None = None


@dataclass(frozen=True)
class Definition:
    """What an image is built from, as `images.toml` says."""

    name: str
    base: str
    needs_mb: int
    context: Context


@dataclass(frozen=True)
class Start:
    """What an image starts from: `identity` is hashed, `name` stands behind FROM (never an id)."""

    identity: str
    name: str


def names(*, optional: bool = False) -> list[str]:
    """The images of every trial, each after the one it starts from; with the optional ones on
    request, which are built only when somebody asks for them by name."""
    return [name for name, entry in _table().items() if optional or not entry.get("optional")]


def definition(name: str) -> Definition:
    """The named image's definition. Raises ImageMissing for an unknown name or a missing file."""
    table = _table()
    if name not in table:
        raise ImageMissing(f"there is no image {name!r}; there are {', '.join(table)}")
    entry = table[name]
    sources = {"Dockerfile": bundled("images") / name / "Dockerfile"}
    lock = bundled("images") / name / "requirements.lock"
    if lock.is_file():
        sources[lock.name] = lock
    sources |= {inside: _project_path(path) for inside, path in entry.get("files", {}).items()}
    for inside, path in sources.items():
        if not path.exists():
            raise ImageMissing(f"image {name} can't be built here: {inside} ({path}) is missing")
    return Definition(name, entry["base"], entry["needs_mb"], buildx.context(sources))


def pins() -> dict[str, Any]:
    """`images.lock`: what images start from."""
    return tomllib.loads((bundled("images") / "images.lock").read_text())


def ensure(engine: Engine, name: str, *, build: bool = True, say: Say | None = None) -> Image:
    """The named image for what its files hold now; built, with its bases, when it is not there.

    `say` gets the build's output line by line. Raises ImageMissing (unknown, not built and `build`
    is false, or can't be had), ImageBuildFailed, NotEnoughSpace, EngineUnavailable.
    """
    wanted = definition(name)
    say = say or _silent
    if wanted.base == ROOT:
        return _ensure_on_root(engine, wanted, build, say)
    base = ensure(engine, wanted.base, build=build, say=say)
    start = Start(base.id, buildx.tag(base.name, base.inputs_sha256))
    inputs = _inputs(wanted, start)
    return _find(engine, wanted, inputs) or _build(engine, wanted, start, build, say)


def fetch(engine: Engine, reference: str, *, say: Say | None = None) -> None:
    """Have a foreign image on the engine, pulled when it is not there. Raises ImageMissing."""
    if not _pull(engine, reference, say or _silent):
        raise ImageMissing(
            f"the image {reference} is not on the engine and can't be pulled; "
            f"try `docker pull {reference}` to see why"
        )


def _silent(line: str) -> None:
    """Takes a build's output where nobody listens."""


def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads((bundled("images") / "images.toml").read_text())


def _project_path(path: str) -> Path:
    """A path of the project, in a checkout and in an installed wheel alike."""
    first, _, rest = path.partition("/")
    if first == PACKAGE.name:
        return PACKAGE / rest
    if first == "images":
        return bundled("images") / rest
    if first == "tasks":
        return bundled("tasks") / rest
    return CHECKOUT / path


def _ensure_on_root(engine: Engine, wanted: Definition, build: bool, say: Say) -> Image:
    """An image on the pinned upstream one or, where that can't be had, on a root made here.

    What is there already wins over what could be pulled now: an image must not change under a
    trial because a registry has come back.
    """
    pin = pins()[ROOT]
    upstream = Start(pin["upstream"], pin["upstream"])
    recipe = _recipe(pin)
    made = Start(f"{rootfs.architecture()}:{recipe}", buildx.tag(ROOT, recipe))
    for start in (upstream, made):
        found = _find(engine, wanted, _inputs(wanted, start))
        if found:
            return found
    if build and _pull(engine, upstream.name, say):
        return _build(engine, wanted, upstream, build, say)
    if build and not is_here(engine, made.name):
        say("making a root from Debian packages instead")
        _check_space(engine, wanted)
        _import_root(engine, pin, made.name, say)
    return _build(engine, wanted, made, build, say)


def _inputs(wanted: Definition, start: Start) -> str:
    """Hash of all that a build reads."""
    read = [wanted.name, start.identity, buildx.SOURCE_DATE_EPOCH, wanted.context.sha256()]
    return hashlib.sha256(json.dumps(read).encode()).hexdigest()


def _recipe(pin: dict[str, Any]) -> str:
    """Hash of all that a root made here depends on, besides the packages' versions."""
    code = Path(rootfs.__file__).read_text()
    read = [pin["suite"], pin["packages"], buildx.SOURCE_DATE_EPOCH, code]
    return hashlib.sha256(json.dumps(read).encode()).hexdigest()


def _find(engine: Engine, wanted: Definition, inputs: str) -> Image | None:
    """By tag, then by label: whatever someone builds on our images inherits their labels."""
    details = _inspect(engine, buildx.tag(wanted.name, inputs))
    if details is None or (details["Config"].get("Labels") or {}).get("orch.inputs") != inputs:
        return None
    return _image(wanted.name, details, inputs)


def _inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    details: dict[str, Any]
    with translated("describe an image"):
        try:
            details = engine.api.inspect_image(reference)  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None
    return details


def _image(name: str, details: dict[str, Any], inputs: str) -> Image:
    digests = details.get("RepoDigests") or []
    return Image(name, details["Id"], inputs, digests[0] if digests else None)


def _build(engine: Engine, wanted: Definition, start: Start, build: bool, say: Say) -> Image:
    if not build:
        raise ImageMissing(f"image {wanted.name} is not built; `orch images build` builds it")
    _check_space(engine, wanted)
    say(f"building image {wanted.name}")
    inputs = _inputs(wanted, start)
    arguments = {"BASE": start.name, "SOURCE_DATE_EPOCH": str(buildx.SOURCE_DATE_EPOCH)}
    labels = {"orch.role": "image", "orch.image": wanted.name, "orch.inputs": inputs}
    image_id = buildx.build(wanted.name, wanted.context, arguments, labels, say)
    details = _inspect(engine, image_id)
    if details is None:
        raise ImageMissing(f"image {wanted.name} was removed as soon as it was built")
    return _image(wanted.name, details, inputs)


def _check_space(engine: Engine, wanted: Definition) -> None:
    free = engine.info().free_bytes
    if free is not None and free < wanted.needs_mb << 20:
        raise NotEnoughSpace(
            f"no space for the image {wanted.name}: building it takes {wanted.needs_mb} MiB, "
            f"the engine's disk has {free >> 20} free; free some, "
            "`orch clean` removes what trials left"
        )


def _pull(engine: Engine, reference: str, say: Say) -> bool:
    """Whether the pinned image is on the engine now. Asks first, briefly: most that can't, hang."""
    api = engine.api
    if is_here(engine, reference):
        return True
    asked = f"{api.base_url}/v{api.api_version}/distribution/{reference}/json"
    try:
        answer = api.get(asked, timeout=REGISTRY_ANSWERS_WITHIN_S)
        if answer.status_code != requests.codes.ok:
            say(f"{reference} can't be pulled: {answer.text.strip()}")
            return False
        say(f"pulling {reference}")
        for step in api.pull(reference, stream=True, decode=True):
            if "error" in step:
                say(f"{reference} can't be pulled: {step['error']}")
                return False
    except (APIError, requests.RequestException) as error:
        say(f"{reference} can't be pulled: {error}")
        return False
    return is_here(engine, reference)


def is_here(engine: Engine, reference: str) -> bool:
    """Whether the engine holds the image of this name, id or digest."""
    return _inspect(engine, reference) is not None


def _import_root(engine: Engine, pin: dict[str, Any], root_tag: str, say: Say) -> None:
    archive = rootfs.make(pin["suite"], pin["packages"], buildx.SOURCE_DATE_EPOCH, say)
    repository, _, version = root_tag.partition(":")
    changes = [
        "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "ENV LANG=C.UTF-8",
        'CMD ["python3"]',
        "LABEL orch.role=image",
        f"LABEL orch.image={ROOT}",
    ]
    try:
        with translated("import an image"):
            answer = engine.api.import_image(
                src=str(archive), repository=repository, tag=version, changes=changes
            )
    finally:
        archive.unlink()
    # A failure in the middle comes as a line of the answer, under a status of success.
    failed = re.search(r'"error":\s*"([^"]*)"', answer)
    if failed:
        raise refusal("import an image", None, failed.group(1))
