"""The built-in agent in its container: what lands in the workspace, its deadline, its walls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeOllama
from model_lab import AGENT_LIMITS, CALLS, Run, running

from orchestrator.agents import native
from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models.relay import route
from orchestrator.records.failures import FailureClass
from orchestrator.sandbox.container import Container, ContainerSpec, Hardening
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner

Images = Callable[[str], Image]
CASES = Path(__file__).parents[1] / "cases"

SETUP = """
import os
os.chdir('/w')
os.symlink('/tmp', 'link_out')
open('notes.txt', 'w').write('plain\\n')
os.mkdir('.git')
open('.git/config', 'w').write('[core]\\n')
"""


@pytest.fixture
def gateway(engine: Engine, images: Images, owner: Owner) -> Iterator[GatewayService]:
    with GatewayService(engine, images("gateway"), owner, CALLS) as service:
        yield service


@pytest.fixture
def run(
    engine: Engine, gateway: GatewayService, images: Images, tools: str, owner: Owner
) -> Iterator[Run]:
    with running(engine, gateway, images("agent"), tools, owner) as one:
        yield one


def test_a_scripted_reply_lands_whole_and_is_the_sandbox_users(
    run: Run, gateway: GatewayService, tools: str
) -> None:
    readme = "# Gate\n\n```bash\npython train.py\n```\n\n````\nx\n````\n"
    files = {"README.md": readme, "pkg/mod.py": "HELP = '''\n```\n'''\n", "requirements.txt": ""}
    reply = run.agent.render_scripted("As asked.", files)
    gateway.load_scripts({"careful": {"explore": {0: reply}}})
    access = run.open()
    report = run.work(access)
    assert report.failure is None
    assert sorted(report.written) == sorted(files)
    assert run.files(tools) == files | {"SPEC.md": "Do it.\n"}
    (call,) = gateway.close(access)
    assert call.reply == reply
    assert call.request["messages"][1]["content"] == "Write explore.py."
    spec = ContainerSpec(tools, run.owner, mounts=(run.workspace.at("/w"),))
    with Container(run.engine, spec) as container:
        owners = container.exec(("find", "/w", "-printf", "%u %m %P\n"), timeout_s=30).stdout.text
    assert {line.split()[0] for line in owners.splitlines()} == {"sandbox"}
    assert "sandbox 644 pkg/mod.py" in owners


def test_hostile_names_are_refused_beside_a_good_file(
    run: Run, gateway: GatewayService, tools: str
) -> None:
    spec = ContainerSpec(tools, run.owner, mounts=(run.workspace.at("/w", read_only=False),))
    with Container(run.engine, spec) as container:
        assert container.exec(("python3", "-c", SETUP), timeout_s=30).exit_code == 0
    replies = sorted(path for path in (CASES / "13").glob("*.md") if path.name != "EXPECT.md")
    together = "\n\n".join(path.read_text(encoding="utf-8") for path in replies)
    gateway.load_scripts({"careful": {"explore": {0: together}}})
    access = run.open()
    report = run.work(access)
    gateway.close(access)
    assert report.failure is None
    assert report.written == ["inside.txt"]
    assert len(report.dropped) == len(replies)
    assert all(item.reason.startswith("unsafe-path: ") for item in report.dropped)
    assert run.files(tools) == {
        "SPEC.md": "Do it.\n",
        "inside.txt": "fine\n",
        "notes.txt": "plain\n",
        ".git/config": "[core]\n",
    }


@dataclass(frozen=True)
class Recorded:
    """A model reference whose calls are answered out of a recording."""

    kind: str = "replay"
    name: str = "careful"


def test_a_reply_that_is_cut_is_asked_for_once_more_and_replays_so(
    run: Run, gateway: GatewayService, tools: str
) -> None:
    whole = run.agent.render_scripted("First a.py.", {"a.py": "A = 1\n"})
    rest = run.agent.render_scripted("", {"b.py": "B = 2\n"})
    cut = f"{whole}\n{rest[:-8]}"
    gateway.load_scripts({"careful": {"explore": {0: [cut, rest]}}})
    access = run.open()
    report = run.work(access)
    calls = list(gateway.close(access))
    assert report.failure is None
    assert report.written == ["a.py", "b.py"]
    assert report.notes == ["the reply was cut off in b.py; asked once more, b.py came"]
    assert [call.reply for call in calls] == [cut, rest]
    assert run.files(tools) == {"SPEC.md": "Do it.\n", "a.py": "A = 1\n", "b.py": "B = 2\n"}
    gateway.load_recording(run.owner.run, calls)
    access = gateway.open(
        run=run.owner.run, stage="explore", turn=0, model=Recorded(), seed=7, network=run.net
    )
    again = run.work(access)
    replayed = list(gateway.close(access))
    assert (again.blobs, again.notes, again.failure) == (report.blobs, report.notes, None)
    assert [call.request for call in replayed] == [call.request for call in calls]
    assert [call.error for call in replayed] == [None, None]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("", "empty"), ("I would begin with train.py.\n", "prose-only")],
)
def test_replies_that_change_nothing(
    run: Run, gateway: GatewayService, tools: str, reply: str, reason: str
) -> None:
    gateway.load_scripts({"careful": {"explore": {0: reply}}})
    access = run.open()
    report = run.work(access)
    gateway.close(access)
    assert report.failure is not None
    assert report.failure.failure_class is FailureClass.NO_EDITS
    assert report.failure.reason == reason
    assert run.files(tools) == {"SPEC.md": "Do it.\n"}


PROBE = """
import os
print('uid', os.getuid())
for path in ('/x', '/etc/x', '/opt/agent/x', '/home/sandbox/x', '/workspace/x', '/tmp/x'):
    try:
        open(path, 'w').close()
        print('wrote', path)
    except OSError:
        print('refused', path)
"""
EVERYWHERE = ["/x", "/etc/x", "/opt/agent/x", "/home/sandbox/x", "/workspace/x", "/tmp/x"]


def probed(run: Run, **changes: Any) -> list[str]:
    """What the probe says in the very container that a stage would work in, but for `changes`."""
    spec = replace(run.agent.container(run.job(run.open()), run.workspace), **changes)
    with Container(run.engine, spec) as container:
        ended = container.exec(("python", "-c", PROBE), timeout_s=60)
    assert ended.exit_code == 0, ended.stderr.text
    return ended.stdout.text.splitlines()


def test_it_can_write_its_workspace_and_nothing_else(run: Run) -> None:
    allowed = {"/workspace/x", "/tmp/x"}
    assert probed(run) == [
        "uid 10001",
        *(f"{'wrote' if path in allowed else 'refused'} {path}" for path in EVERYWHERE),
    ]


def test_without_its_walls_it_could_write_anywhere(run: Run) -> None:
    lifted = Hardening(read_only_root=False, drop_capabilities=False)
    assert probed(run, user="0:0", hardening=lifted) == [
        "uid 0",
        *(f"wrote {path}" for path in EVERYWHERE),
    ]


def test_an_agent_that_crashes_is_no_fault_of_the_model(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "COMMAND", ("python", "-c", "raise SystemExit('broken')"))
    report = run.work(run.open())
    assert report.failure is not None
    assert report.failure.failure_class is FailureClass.AGENT_ERROR
    assert report.failure.evidence[0].excerpt == "broken"


def test_a_stage_ends_at_its_deadline_and_its_call_with_it(
    engine: Engine, images: Images, tools: str, owner: Owner
) -> None:
    with (
        FakeOllama("m") as fake,
        GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as gateway,
        running(engine, gateway, images("agent"), tools, owner) as run,
    ):
        assert gateway.uplink is not None
        fake.faults.append("hang-midway")
        with route(fake.url, engine.info(), gateway.uplink.subnet) as url:
            gateway.use_ollama(url)
            access = run.open("m")
            report = run.work(access, AGENT_LIMITS.model_copy(update={"wall_s": 4.0}))
            calls = list(gateway.close(access))
        assert report.failure is not None
        assert report.failure.failure_class is FailureClass.TIMEOUT
        assert report.written == []
        assert [call.error.cause for call in calls if call.error] == ["client-gone"]
        roles = {item.owner.role for item in engine.owned(owner.trial) if item.kind == "container"}
        assert roles == {"gateway"}
