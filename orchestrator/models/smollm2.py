"""A real but tiny language model on the CPU, for machines without GPU and Ollama.

It proves the path of a trial with a model's own words; it is no competitor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import ContainerLost, ContextTooSmall, ModelServerUnreachable
from orchestrator.models.managed import ModelServer
from orchestrator.models.ollama import Say
from orchestrator.sandbox import image
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.network import Network

NAME = "smollm2"
IMAGE = "llama-server"
PORT = 8080
TRAINED = 8192
"""Tokens of context that the model was trained for."""
COMMAND = ("llama-server",)
MEMORY_MB = 1024
"""The weights take 92 MiB, a full context 180."""
LOAD_S = 60.0
_HEALTH = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health', timeout=5)"


@contextmanager
def managed_smollm2(
    engine: Engine, uplink: Network, owner: Owner, num_ctx: int, say: Say
) -> Iterator[ModelServer]:
    """Build its image where it is missing, start it with `num_ctx` tokens of context on `uplink`.

    It has loaded the model when the block is entered, and speaks OpenAI's chat completions.
    Raises ContextTooSmall, ModelServerUnreachable, ImageBuildFailed and the engine's errors.
    """
    if num_ctx > TRAINED:
        raise ContextTooSmall(
            f"openai/{NAME} was trained for {TRAINED} tokens of context, the trial asks for "
            f"{num_ctx}; use --num-ctx {TRAINED} or less"
        )
    say(f"{NAME}: a tiny model on the CPU, to see a trial work; it is no competitor")
    built = image.ensure(engine, IMAGE, say=say)
    cpus = max(engine.info().ncpu, 1)
    spec = ContainerSpec(
        image=built.id,
        owner=owner.as_role(IMAGE),
        limits=Limits(memory_mb=MEMORY_MB, cpus=cpus, pids=64, tmp_mb=16, fsize_mb=16),
        env={"LLAMA_ARG_CTX_SIZE": str(num_ctx)},
        network=uplink.id,
        command=COMMAND,
    )
    with Container(engine, spec) as container:
        _wait_ready(container)
        url = f"http://{container.name}:{PORT}"
        yield ModelServer(url, shown=f"{IMAGE} (started by orch)", can_pull=False)


def _wait_ready(container: Container) -> None:
    deadline = time.monotonic() + LOAD_S
    why = "it did not answer"
    while time.monotonic() < deadline:
        try:
            asked = container.exec(("python3", "-c", _HEALTH), timeout_s=10)
        except ContainerLost as lost:
            why = str(lost)
            break
        if asked.exit_code == 0:
            return
        time.sleep(0.2)
    raise ModelServerUnreachable(
        f"the image {IMAGE} did not load its model within {LOAD_S:g} s ({why}); "
        "use another model, or `orch doctor` to see what the machine lacks"
    )
