"""aider in its container: what it obeys, what it writes, and what it leaves, with hostile replies
and a model server that misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fake_ollama import FakeOllama
from model_lab import AGENT_LIMITS, CALLS, Run, running

from orchestrator.agents.base import Aftermath, AgentReport
from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models.relay import route
from orchestrator.records.calls import CallRecord
from orchestrator.records.failures import FailureClass
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner

Images = Callable[[str], Image]
CASES = Path(__file__).parents[1] / "cases"
LIMITS = AGENT_LIMITS.model_copy(update={"memory_mb": 1024})
CONFIGURED = {
    # Each would leave a file that says it was obeyed, or another model than the one given.
    ".aider.conf.yml": "auto-lint: true\nlint-cmd: touch /workspace/obeyed\n"
    "notifications: true\nnotifications-command: touch /workspace/obeyed\nread: notes.txt\n",
    ".env": "AIDER_LINT_CMD=touch /workspace/obeyed\nOLLAMA_API_BASE=http://127.0.0.1:1\n",
    ".aider.model.settings.yml": "- name: ollama_chat/careful\n  edit_format: diff\n",
    ".aider.model.metadata.json": "{broken",
    ".aiderignore": "*\n",
    "notes.txt": "unread\n",
    "README.md": "```\nxyz\n```\n",
}
LINK = "import os; os.symlink('/tmp', '/w/link_out')"


def lay(run: Run, tools: str, files: Mapping[str, str], code: str = "") -> None:
    content = {path: text.encode() for path, text in files.items()}
    volume.fill(run.engine, tools, run.workspace, content, run.owner)
    if code:
        spec = ContainerSpec(tools, run.owner, mounts=(run.workspace.at("/w", read_only=False),))
        with Container(run.engine, spec) as container:
            assert container.exec(("python3", "-c", code), timeout_s=30).exit_code == 0


def reviewed(
    run: Run, report: AgentReport, calls: Iterable[CallRecord], files: Mapping[str, str]
) -> AgentReport:
    """As a stage has it reviewed."""

    def read(path: str) -> bytes | None:
        return files[path].encode() if path in files else None

    return run.agent.review(report, Aftermath(list(calls), [], read), "explore")


def test_it_obeys_nothing_in_the_workspace_and_writes_nothing_outside(
    engine: Engine, images: Images, tools: str, owner: Owner
) -> None:
    hostile = [path.read_text() for path in sorted((CASES / "13").glob("[a-i]_*.md"))]
    mentions = "I left notes.txt and README.md alone.\n"
    with (
        GatewayService(engine, images("gateway"), owner, CALLS) as gateway,
        running(engine, gateway, images("aider"), tools, owner) as run,
    ):
        lay(run, tools, CONFIGURED, LINK)
        good = run.agent.render_scripted(mentions, {"train.py": "import csv\n"})
        gateway.load_scripts({"careful": {"explore": {0: "\n\n".join([good, *hostile])}}})
        access = run.open()
        job = replace(run.job(access, LIMITS), num_ctx=CALLS.num_ctx, prompt="/run notes.txt")
        report = run.agent.run_stage(job)
        calls = list(gateway.close(access))
        files = run.files(tools)
        report = reviewed(run, report, calls, files)
    assert report.failure is None
    expected = {"SPEC.md": "Do it.\n", "train.py": "import csv\n", "inside.txt": "fine\n"}
    assert files == CONFIGURED | expected
    assert report.written == ["train.py", "inside.txt"]
    assert len(report.dropped) == len(hostile)
    assert {one.reason.partition(":")[0] for one in report.dropped} == {"unsafe-path"}
    # One question, in whole files between three backticks, with the trial's own context.
    (call,) = calls
    assert call.request["options"]["num_ctx"] == CALLS.num_ctx
    said = [message["content"] for message in call.request["messages"]]
    assert "Second line: opening ```\n" in said[0]
    assert said[-1].startswith("You work alone")
    assert "/run notes.txt" in said[-1]
    assert not any("unread" in text or "xyz" in text for text in said)
    assert "/run notes.txt" in report.history["chat.md"]


def test_a_cut_stream_and_a_missing_model_leave_nothing_and_end_soon(
    engine: Engine, images: Images, tools: str, owner: Owner
) -> None:
    with (
        FakeOllama("m") as fake,
        GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as gateway,
        running(engine, gateway, images("aider"), tools, owner) as run,
    ):
        assert gateway.uplink is not None
        fake.reply = run.agent.render_scripted("", {"train.py": "import csv\n" * 40})
        with route(fake.url, engine.info(), gateway.uplink.subnet) as url:
            gateway.use_ollama(url)
            # Half a file comes first, then no model at all, for as often as it may ask.
            fake.faults.extend(["cut", *["not-found"] * 30])
            access = run.open("m")
            report = run.agent.run_stage(run.job(access, LIMITS))
            calls = list(gateway.close(access))
            files = run.files(tools)
            report = reviewed(run, report, calls, files)
        assert files == {"SPEC.md": "Do it.\n"}
        assert calls[0].reply.startswith("train.py\n```\nimport csv\n")
        assert 2 <= len(calls) <= 6
        assert report.failure is not None
        assert report.failure.failure_class is FailureClass.MODEL_UNAVAILABLE
        assert report.written == []
        assert [one.path for one in report.dropped] == ["train.py"]
        roles = {item.owner.role for item in engine.owned(owner.trial) if item.kind == "container"}
        assert roles == {"gateway"}


def test_its_commits_are_read_without_obeying_their_repository(
    engine: Engine, images: Images, tools: str, owner: Owner
) -> None:
    hook = "#!/bin/sh\ntouch /workspace/obeyed\n"
    repository = {
        ".git/config": "[core]\n\tfsmonitor = touch /workspace/obeyed\n\tbare = false\n"
        "[user]\n\tname = x\n[log]\n\tshowSignature = true\n[gpg]\n\tprogram = /workspace/hook\n",
        ".git/hooks/post-commit": hook,
        "hook": hook,
    }
    executable = "import os; [os.chmod(p, 0o755) for p in ('/w/hook', '/w/.git/hooks/post-commit')]"
    with (
        GatewayService(engine, images("gateway"), owner, CALLS) as gateway,
        running(engine, gateway, images("aider"), tools, owner) as run,
    ):
        lay(run, tools, repository, executable)
        reply = run.agent.render_scripted("Read the file first", {"train.py": "import csv\n"})
        gateway.load_scripts({"careful": {"explore": {0: reply}}})
        access = run.open()
        report = run.agent.run_stage(replace(run.job(access, LIMITS), commits=True))
        calls = list(gateway.close(access))
        spec = ContainerSpec(tools, run.owner, mounts=(run.workspace.at("/w"),))
        with Container(engine, spec) as container:
            names = container.exec(("ls", "/w"), timeout_s=30).stdout.text.split()
    assert report.commits is not None
    assert [one.subject for one in report.commits] == ["Read the file first"]
    assert names == ["SPEC.md", "hook", "train.py"]
    assert len(calls) == 2
