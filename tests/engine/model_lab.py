"""What the engine tests of gateway, agent and model servers share."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agents.aider.agent import AiderAgent
from orchestrator.agents.base import AgentJob, AgentReport
from orchestrator.agents.native import BuiltinAgent
from orchestrator.gateway.service import Access, CallSettings, GatewayService
from orchestrator.models.reference import parse_reference
from orchestrator.sandbox import network, volume
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.network import Network
from orchestrator.sandbox.volume import Volume

AGENT_LIMITS = Limits(memory_mb=512, cpus=1, pids=64, wall_s=120, tmp_mb=16)
CALLS = CallSettings(num_ctx=8192, max_reply_tokens=2000, silence_s=30, total_s=60)
FAKE_IMAGE = "orch-test/fake-ollama:latest"

ASK = """
import json, sys, urllib.request, urllib.error
order = json.load(sys.stdin)
request = urllib.request.Request(
    order["url"], method=order["method"], headers=order["headers"],
    data=json.dumps(order["body"]).encode() if order["body"] is not None else None)
try:
    answer = urllib.request.urlopen(request, timeout=20)
except urllib.error.HTTPError as exc:
    answer = exc
print(json.dumps([answer.status, answer.read().decode()]))
"""

REACH = """
import json, socket, sys
found = []
for host, port in json.load(sys.stdin):
    try:
        socket.create_connection((host, port), 3).close()
        found.append([host, port])
    except OSError:
        pass
print(json.dumps(found))
"""


@dataclass
class Run:
    """One run's workspace and network, with the gateway on it."""

    engine: Engine
    gateway: GatewayService
    agent: BuiltinAgent | AiderAgent
    owner: Owner
    net: Network
    workspace: Volume

    def open(
        self, model: str = "scripted/careful", stage: str = "explore", turn: int = 0, seed: int = 7
    ) -> Access:
        return self.gateway.open(
            run=self.owner.run,
            stage=stage,
            turn=turn,
            model=parse_reference(model),
            seed=seed,
            network=self.net,
        )

    def job(self, access: Access, limits: Limits = AGENT_LIMITS) -> AgentJob:
        return AgentJob(
            prompt="Write explore.py.",
            workspace=self.workspace,
            network=self.net,
            access=access,
            limits=limits,
            owner=self.owner,
        )

    def work(self, access: Access, limits: Limits = AGENT_LIMITS) -> AgentReport:
        return self.agent.run_stage(self.job(access, limits))

    def files(self, tools: str) -> dict[str, str]:
        """What lies in the workspace: path → text."""
        code = (
            "import json, pathlib; root = pathlib.Path('/w'); print(json.dumps("
            "{str(p.relative_to(root)): p.read_text() for p in root.rglob('*') if p.is_file()}))"
        )
        spec = ContainerSpec(tools, self.owner, mounts=(self.workspace.at("/w"),))
        with Container(self.engine, spec) as container:
            ended = container.exec(("python3", "-c", code), timeout_s=60)
        found: dict[str, str] = json.loads(ended.raw_stdout)
        return found


@contextmanager
def running(
    engine: Engine, gateway: GatewayService, agent: Image, tools: str, owner: Owner
) -> Iterator[Run]:
    """With the agent that `agent` is the image of."""
    kind = AiderAgent if agent.name == AiderAgent.image else BuiltinAgent
    workspace = volume.create(engine, owner.as_role("workspace"))
    try:
        volume.fill(engine, tools, workspace, {"SPEC.md": b"Do it.\n"}, owner)
        with network.internal(engine, owner.as_role("run")) as net:
            gateway.attach(net)
            yield Run(engine, gateway, kind(engine, agent), owner, net, workspace)
    finally:
        volume.remove(engine, workspace)


def ask(
    container: Container,
    access: Access,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    token: str | None = None,
) -> tuple[int, str]:
    """One request from inside a container: status and text."""
    bearer = access.token if token is None else token
    order = {
        "url": access.url + path,
        "method": method,
        "headers": {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"},
        "body": body,
    }
    ended = container.exec(
        ("python", "-c", ASK), timeout_s=60, stdin=json.dumps(order).encode(), log_kb=1024
    )
    assert ended.exit_code == 0, ended.stderr.text
    status, text = json.loads(ended.raw_stdout)
    return status, text


def reachable(container: Container, addresses: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of the addresses that take a connection from inside a container."""
    ended = container.exec(
        ("python", "-c", REACH), timeout_s=120, stdin=json.dumps(addresses).encode()
    )
    assert ended.exit_code == 0, ended.stderr.text
    return [(host, port) for host, port in json.loads(ended.raw_stdout)]


def chat(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}


def build_fake_image(engine: Engine, tools: str) -> str:
    """An image that stands in for Ollama's own: the fake lies where Ollama would."""
    fake = (Path(__file__).parents[1] / "fake_ollama.py").read_bytes()
    dockerfile = f"FROM {tools}\nCOPY ollama /bin/ollama\nLABEL orch.role=test\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, data, mode in (("Dockerfile", dockerfile, 0o644), ("ollama", fake, 0o755)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    context.seek(0)
    steps = list(
        engine.api.build(
            fileobj=context, custom_context=True, tag=FAKE_IMAGE, rm=True, forcerm=True, decode=True
        )
    )
    assert not any("error" in step for step in steps), steps
    return FAKE_IMAGE
