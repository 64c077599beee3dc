"""One image build as a child process: what goes in, and what its failure means."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from docker.context import ContextAPI

from orchestrator.errors import ImageBuildFailed, NotEnoughSpace
from orchestrator.sandbox import ca

Say = Callable[[str], None]

# 2025-01-01. Part of every image's inputs, so that a build depends on what it reads, not on when.
SOURCE_DATE_EPOCH = 1735689600
SHOWN_OF_A_FAILURE = 15

# Never enter a build context, whatever folder is named: keys, records, history, byte code.
NEVER = frozenset(
    {".git", ".venv", "holdout", "runs", "__pycache__", "node_modules", ".DS_Store", "_bundled"}
)
NEVER_SUFFIXES = (".pyc", ".egg-info", "_cache")


@dataclass(frozen=True)
class Context:
    """Files of a build by their name in it. Names sort; contents are read when they are needed."""

    files: Mapping[str, Path]

    def sha256(self) -> str:
        """Of all names and contents; neither times nor modes count."""
        digest = hashlib.sha256()
        for name in sorted(self.files):
            content = hashlib.sha256(self.files[name].read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\n".encode())
        return digest.hexdigest()

    def write(self, folder: Path) -> None:
        """Lay the files out below `folder`, with equal modes and times."""
        for name in sorted(self.files):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.files[name].read_bytes())
            target.chmod(0o644)
            os.utime(target, (SOURCE_DATE_EPOCH, SOURCE_DATE_EPOCH))


def context(sources: Mapping[str, Path]) -> Context:
    """The context of these files and folders; links and everything in NEVER stay outside."""
    files: dict[str, Path] = {}
    for name, source in sources.items():
        if source.is_file():
            files[name] = source
            continue
        for folder, folders, names in os.walk(source):
            folders[:] = sorted(f for f in folders if _wanted(f))
            for each in sorted(filter(_wanted, names)):
                path = Path(folder) / each
                if path.is_file() and not path.is_symlink():
                    files[f"{name}/{path.relative_to(source).as_posix()}"] = path
    return Context(files)


def _wanted(name: str) -> bool:
    return name not in NEVER and not name.endswith(NEVER_SUFFIXES)


def build(
    name: str, files: Context, arguments: Mapping[str, str], labels: Mapping[str, str], say: Say
) -> str:
    """Build and load the image; returns its id. `say` gets each line of the build's output.

    Raises ImageBuildFailed, NotEnoughSpace.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise ImageBuildFailed(
            f"building image {name} needs the docker command with buildx; install Docker's client"
        )
    with tempfile.TemporaryDirectory(prefix=f"orch-image-{name}-") as folder:
        place, result = Path(folder) / "context", Path(folder) / "id"
        place.mkdir()
        files.write(place)
        command = [docker, "buildx", "build", "--load", "--provenance=false", "--progress=plain"]
        command += ["--builder", _engines_own_builder(), "--iidfile", str(result)]
        command += ["--secret", f"id=ca,src={ca.bundle()}"]
        for key, value in arguments.items():
            command += ["--build-arg", f"{key}={value}"]
        # By name only: a proxy's password is not for the process list.
        proxies = ca.proxies()
        for key in proxies:
            command += ["--build-arg", key]
        for key, value in labels.items():
            command += ["--label", f"{key}={value}"]
        command += ["--tag", tag(name, labels["orch.inputs"]), str(place)]
        code, lines = _run(command, {**_environment(), **proxies}, say)
        if code:
            raise failure(name, code, lines)
        return result.read_text().strip()


def _engines_own_builder() -> str:
    """The builder of the engine we talk to: only that one sees images that are in no registry."""
    if os.environ.get("DOCKER_HOST"):
        return "default"
    context = ContextAPI.get_current_context()
    return str(context.Name) if context else "default"


def _environment() -> dict[str, str]:
    """Ours without what would lead the child to another engine than Engine.connect found."""
    elsewhere = ("DOCKER_CONTEXT", "BUILDX_BUILDER")
    return {name: value for name, value in os.environ.items() if name not in elsewhere}


def tag(name: str, inputs: str) -> str:
    """The name people see for an image of these inputs."""
    return f"orch/{name}:{inputs[:12]}"


def _run(command: list[str], environ: Mapping[str, str], say: Say) -> tuple[int, list[str]]:
    lines: list[str] = []
    with subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1])
    return process.returncode, lines


def failure(name: str, code: int, lines: list[str]) -> ImageBuildFailed | NotEnoughSpace:
    """What a build's last words mean."""
    if any(re.search("no space left on device", line, re.IGNORECASE) for line in lines):
        return NotEnoughSpace(
            f"no space for the image {name} on the engine's disk; free some, "
            "`orch clean` removes what trials left"
        )
    if any("CERTIFICATE_VERIFY_FAILED" in line for line in lines):
        return ImageBuildFailed(
            f"building image {name} failed: the network re-signs TLS and {ca.bundle()} does not "
            "know its certificate; name a bundle that does in ORCH_CA_BUNDLE"
        )
    tail = "\n".join(line for line in lines if line.strip()).splitlines()[-SHOWN_OF_A_FAILURE:]
    return ImageBuildFailed(
        "\n".join([f"building image {name} failed (exit {code}); its last words:", *tail])
    )
