"""What an environment's own files say that can be imported from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import EngineRefused
from orchestrator.sandbox.builder import site_packages
from orchestrator.sandbox.container import ContainerSpec, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.environment import Environment
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits

SCRIPT = (Path(__file__).parent / "sent" / "modules.py").read_text()
LIMITS = Limits(memory_mb=256, cpus=1, pids=32, wall_s=60, tmp_mb=4, log_kb=4096)


@dataclass(frozen=True)
class Importable:
    """Modules that the interpreter brings, and those of what is installed, dotted in namespaces."""

    stdlib: frozenset[str]
    provided: frozenset[str]

    def provides(self, module: str) -> bool:
        """Whether `import module` would find its package; submodules of one are not looked at."""
        parts = module.split(".")
        if parts[0] in self.stdlib:
            return True
        heads = (".".join(parts[: n + 1]) for n in range(len(parts)))
        if any(head in self.provided for head in heads):
            return True
        return any(known.startswith(f"{module}.") for known in self.provided)


_known: dict[str, Importable] = {}


def importable(engine: Engine, scorer: Image, environment: Environment, owner: Owner) -> Importable:
    """Asked once for each environment in this process, as it never changes.

    Nothing of the environment runs. Raises the engine's errors.
    """
    key = f"{scorer.id} {environment.volume.name}"
    if key not in _known:
        packages = site_packages(environment.record.python)
        spec = ContainerSpec(
            scorer.id, owner.as_role("modules"), LIMITS, mounts=(environment.mount,)
        )
        ended = run_step(engine, spec, ("python3", "-I", "-S", "-c", SCRIPT, packages))
        if not ended.succeeded or ended.stdout.dropped_bytes:
            raise EngineRefused(
                f"The modules of an environment could not be listed ({ended.ending}): "
                f"{ended.stderr.text.strip()[-400:]}."
            )
        found = json.loads(ended.stdout.text)
        _known[key] = Importable(frozenset(found["stdlib"]), frozenset(found["provided"]))
    return _known[key]
