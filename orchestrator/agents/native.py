"""The built-in agent: one question a stage, files and edits out of a plain-text reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.agents.base import Aftermath, AgentJob, AgentReport
from orchestrator.records.calls import loads_whole
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Dropped, Ending, Evidence, Failure
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.exec import Ended
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.volume import Volume

COMMAND = ("python", "-m", "builtin")
WORKSPACE = "/workspace"
STAGE = "/stage"
PROMPT = "prompt.md"
LOG_KB = 1024
"""The report is one line on stdout; its entries are capped far below this."""
FENCE_RUN = re.compile(r"`{3,}|~{3,}")


class BuiltinAgent:
    """See `orchestrator.agents.base.Agent`."""

    name = "builtin"
    image = "agent"

    def __init__(self, engine: Engine, image: Image) -> None:
        self._engine = engine
        self._image = image

    def render_scripted(self, say: str, files: Mapping[str, str]) -> str:
        """Each file under `### FILE:`, in a fence longer than any run of marks inside it.

        Every text comes back whole, with a newline at its end if it had none.
        """
        blocks = [say.rstrip("\n") + "\n"] if say else []
        for path, text in files.items():
            longest = max((len(run) for run in FENCE_RUN.findall(text)), default=3)
            fence = "`" * (max(longest, 3) + 1)
            ending = "" if not text or text.endswith("\n") else "\n"
            blocks.append(f"### FILE: {path}\n{fence}\n{text}{ending}{fence}\n")
        return "\n".join(blocks)

    def run_stage(self, job: AgentJob) -> AgentReport:
        """Work in a fresh container that is gone when this returns. Raises EngineError."""
        stage = volume.create(self._engine, job.owner.as_role("prompt"))
        try:
            with Container(self._engine, self.container(job, stage)) as container:
                container.put(STAGE, {PROMPT: job.prompt.encode("utf-8")}, mode=0o444)
                ended = container.exec(COMMAND, timeout_s=job.limits.wall_s, log_kb=LOG_KB)
        finally:
            volume.remove(self._engine, stage)
        return report_of(ended, job.access.stage)

    def review(self, report: AgentReport, _after: Aftermath, _stage: str, /) -> AgentReport:
        """Nothing to set right: it read the reply itself."""
        return report

    def container(self, job: AgentJob, stage: Volume) -> ContainerSpec:
        """The stage's container; `stage` is the volume that its prompt is put into."""
        return ContainerSpec(
            image=self._image.id,
            owner=job.owner.as_role("agent"),
            limits=job.limits,
            mounts=(
                job.workspace.at(WORKSPACE, read_only=False),
                stage.at(STAGE, read_only=False),
            ),
            env={
                "ORCH_MODEL_URL": job.access.url,
                "ORCH_MODEL_TOKEN": job.access.token,
                "ORCH_MODEL": job.access.model,
                "ORCH_PROMPT": f"{STAGE}/{PROMPT}",
                "ORCH_WORKSPACE": WORKSPACE,
                "ORCH_READ_ONLY": ":".join(job.read_only),
                "ORCH_ROOM_CHARS": str(job.room_chars or ""),
            },
            network=job.network.id,
        )


def report_of(ended: Ended, stage: str) -> AgentReport:
    """The agent's own report, or why there is none. Pure."""
    report = _read(ended)
    if report is None:
        return AgentReport([], [], ended.stderr, _crashed(ended, stage))
    return AgentReport(
        written=list(report["written"]),
        blobs=report["written"],
        dropped=[
            Dropped(path=item["path"], reason=f"{item['reason']}: {item['detail']}")
            for item in report["refused"]
        ],
        output=ended.stdout,
        failure=judge(report, stage),
        notes=report["notes"],
    )


def _read(ended: Ended) -> dict[str, Any] | None:
    if not ended.succeeded:
        return None
    try:
        value = loads_whole(ended.raw_stdout)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("written"), dict) else None


def _crashed(ended: Ended, stage: str) -> Failure:
    if ended.ending is Ending.TIMEOUT:
        return Failure(
            failure_class=FailureClass.TIMEOUT,
            sentence=f"the model was not done within the stage's {ended.duration_s:.0f} s",
            stage=stage,
        )
    last = ended.stderr.text.strip().splitlines()[-1:] or ["no output"]
    return Failure(
        failure_class=FailureClass.AGENT_ERROR,
        sentence=f"the agent ended without a report ({ended.ending}, exit {ended.exit_code})",
        reason=str(ended.ending),
        stage=stage,
        evidence=[Evidence(source="agent stderr", excerpt=last[0])],
    )


NOTHING = {
    "empty": "the reply was empty",
    "only-thinking": "the reply was all reasoning, no answer",
    "prose-only": "the reply held prose and no file",
    "no-file-name": "the reply held code and no file name",
    "tool-call": "the reply called a tool that was not offered",
    "diff": "the reply held a patch that names no file",
}
"""By the code of a reply in which nothing was found."""


def judge(report: Mapping[str, Any], stage: str) -> Failure | None:
    """What the agent's report amounts to; None where files were written and nothing was cut.

    A file refused beside others that were written is no failure by itself: it is in `dropped`.
    """
    if report["error"]:
        known = {str(one) for one in FailureClass}
        named = report["error_class"]
        return Failure(
            failure_class=FailureClass(named if named in known else "agent-error"),
            sentence=report["error"].removeprefix(f"{named}: "),
            stage=stage,
            evidence=[Evidence(source="agent", excerpt=line) for line in report["broken"]],
        )
    reasons = [item["reason"] for item in report["refused"]]
    excerpts = [f"{item['path']}: {item['detail']}" for item in report["refused"]]
    verdict = _verdict(report, reasons)
    if verdict is None:
        return None
    failure_class, sentence, reason = verdict
    return Failure(
        failure_class=failure_class,
        sentence=sentence,
        reason=reason,
        stage=stage,
        evidence=[Evidence(source="reply", excerpt=line) for line in excerpts],
    )


def _verdict(report: Mapping[str, Any], reasons: list[str]) -> tuple[FailureClass, str, str] | None:
    """Class, sentence and reason; the first that applies."""
    if report["done_reason"] == "content_filter":
        sentence = "the reply was ended by its provider's filter"
        return FailureClass.TRUNCATED_REPLY, sentence, "content-filter"
    cut = report["done_reason"] == "length"
    nothing = report["nothing"]
    if nothing == "only-thinking" and cut:
        sentence = "the whole reply budget went into reasoning"
        return FailureClass.REASONING_EXHAUSTED, sentence, nothing
    if cut or "truncated" in reasons:
        budget = "the reply ended at its budget" if cut else "the reply ended inside a file"
        return FailureClass.TRUNCATED_REPLY, budget, "length" if cut else "no-closing-fence"
    if "disk-full" in reasons:
        return FailureClass.DISK_FULL, "the workspace is full", ""
    if unfit := [item for item in report["refused"] if item["reason"] == "did-not-apply"]:
        what = f"the edit of {unfit[0]['path']} {unfit[0]['detail']}"
        return FailureClass.EDIT_DID_NOT_APPLY, what, "did-not-apply"
    if report["written"]:
        return None
    if reasons and set(reasons) <= {"unsafe-path", "read-only-data"}:
        return FailureClass.UNSAFE_PATH, "every file of the reply was refused for its path", ""
    reason = nothing or ", ".join(sorted(set(reasons)))
    sentence = NOTHING.get(nothing, f"no file of the reply could be written ({reason})")
    return FailureClass.NO_EDITS, sentence, reason
