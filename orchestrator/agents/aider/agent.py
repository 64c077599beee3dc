"""aider, driven by a message file: one fresh container a stage, nothing of its own left over."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.agents.aider.review import FENCE, REASONING_TAG, review
from orchestrator.agents.base import Aftermath, AgentJob, AgentReport, ModelAccess
from orchestrator.errors import TaskInvalid, UnsafeOutput
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Dropped, Ending, Failure
from orchestrator.sandbox import volume
from orchestrator.sandbox.commits import commits_in
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.volume import Volume

COMMAND = ("python", "-m", "orchestrator.agents.aider.start")
WORKSPACE = "/workspace"
STAGE = "/stage"
"""Fresh for each stage, and its home: what a reply may plant there steers no later stage."""
MESSAGE, CHAT, REFUSED = "message.md", "chat.md", "refused.jsonl"
MODELS, METADATA = "models.json", "metadata.json"
MAX_CHAT = 256 << 10
MAX_CHAT_READ = 64 << 20
MAX_REFUSED = 1 << 20
MAX_DROPPED = 300
HEADING = """\
You work alone in a repository; nobody answers questions. Hand in each file whole, as a file \
listing. Inside a file, write blocks of code between `~~~` lines, as a line of three backticks \
ends the listing.

"""
"""Before the prompt, which may begin as it likes: aider takes `/` and `!` there for commands."""

OPTIONS = (
    "--edit-format=whole", "--map-tokens=0", "--yes-always", "--encoding=utf-8",
    "--no-gitignore", "--no-check-update", "--no-analytics", "--no-show-release-notes",
    "--no-show-model-warnings", "--no-detect-urls", "--no-suggest-shell-commands",
    "--no-auto-lint", "--no-auto-test", "--no-pretty", "--no-fancy-input", "--stream",
    "--no-restore-chat-history", "--max-chat-history-tokens=100000000",
    "--skip-sanity-check-repo", "--disable-playwright",
    # The gateway ends a call that takes too long, and the stage's limit aider itself.
    "--timeout=100000",
    f"--model-settings-file={STAGE}/{MODELS}",
    f"--model-metadata-file={STAGE}/{METADATA}",
    f"--env-file={STAGE}/none",
    f"--message-file={STAGE}/{MESSAGE}",
    f"--chat-history-file={STAGE}/{CHAT}",
    f"--input-history-file={STAGE}/input",
    f"--aiderignore={STAGE}/ignore",
)  # fmt: skip
NO_COMMITS = ("--no-git",)
COMMITS = ("--git", "--auto-commits", "--no-dirty-commits", "--no-git-commit-verify")
GIT_SETTINGS = {
    "user.name": "aider",
    "user.email": "aider@localhost",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
}
"""Over those of the workspace's repository, which a model may have written."""
INIT = ("git", "init", "--quiet", "--template=", "--initial-branch=main")
INIT_S = 30.0


class AiderAgent:
    """See `orchestrator.agents.base.Agent`."""

    name = "aider"
    image = "aider"

    def __init__(self, engine: Engine, image: Image) -> None:
        self._engine = engine
        self._image = image

    def render_scripted(self, say: str, files: Mapping[str, str]) -> str:
        """File listings as aider reads them: name, fence, whole text, fence.

        In Markdown, lines of three backticks become `~~~`, as the message asks. Raises TaskInvalid
        for another file that has such a line: no listing can hold it.
        """
        blocks = [say.rstrip("\n") + "\n"] if say else []
        for path, text in files.items():
            ending = "" if not text or text.endswith("\n") else "\n"
            blocks.append(f"{path}\n{FENCE}\n{_without_fences(path, text)}{ending}{FENCE}\n")
        return "\n".join(blocks)

    def run_stage(self, job: AgentJob) -> AgentReport:
        """Work in a fresh container that is gone when this returns. Raises EngineError."""
        stage = volume.create(self._engine, job.owner.as_role("home"))
        try:
            with Container(self._engine, self.container(job, stage)) as container:
                container.put(STAGE, stage_files(job), mode=0o444)
                if job.commits:
                    container.exec(INIT, timeout_s=INIT_S, counted=False)
                more = COMMITS if job.commits else NO_COMMITS
                model = f"--model={_model(job.access)}"
                ended = container.exec(
                    (*COMMAND, *OPTIONS, *more, model), timeout_s=job.limits.wall_s
                )
                chat, refused = _chat(container), _refused(container)
        finally:
            volume.remove(self._engine, stage)
        commits = None
        if job.commits:
            commits = commits_in(self._engine, self._image.id, job.workspace, job.owner)
        failure = None
        if ended.ending is not Ending.EXITED:
            failure = _ended(ended.ending, ended.duration_s, job.access.stage)
        return AgentReport(
            written=[],
            dropped=refused,
            output=ended.stdout,
            failure=failure,
            commits=commits,
            history={CHAT: chat} if chat else {},
        )

    def review(self, report: AgentReport, after: Aftermath, stage: str) -> AgentReport:
        """What of its replies landed: aider tells nothing, and always exits with 0."""
        return review(report, after, stage)

    def container(self, job: AgentJob, stage: Volume) -> ContainerSpec:
        """The stage's container; `stage` is the volume of its home and what it is given."""
        settings = list(GIT_SETTINGS.items())
        git = {f"GIT_CONFIG_KEY_{n}": name for n, (name, _) in enumerate(settings)}
        git |= {f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(settings)}
        return ContainerSpec(
            image=self._image.id,
            owner=job.owner.as_role("agent"),
            limits=job.limits,
            mounts=(
                job.workspace.at(WORKSPACE, read_only=False),
                stage.at(STAGE, read_only=False),
            ),
            env={
                "OLLAMA_API_BASE": job.access.url,
                "OLLAMA_API_KEY": job.access.token,
                "HOME": STAGE,
                "USER": "aider",
                "ORCH_REFUSED": f"{STAGE}/{REFUSED}",
                "ORCH_READ_ONLY": ":".join(job.read_only),
                "GIT_CONFIG_COUNT": str(len(settings)),
                **git,
            },
            network=job.network.id,
            workdir=WORKSPACE,
        )


def stage_files(job: AgentJob) -> dict[str, bytes]:
    """What aider is given: its message, what it is to know of the model, nothing to ignore."""
    model = _model(job.access)
    settings = {
        "name": model,
        "edit_format": "whole",
        "use_repo_map": False,
        "weak_model_name": model,
        "reasoning_tag": REASONING_TAG,
        # Without it, another one for each call: the model would be loaded anew every time.
        "extra_params": {"num_ctx": job.num_ctx},
    }
    # What it would look for on the network otherwise.
    known = {"max_input_tokens": job.num_ctx, "litellm_provider": "ollama_chat", "mode": "chat"}
    return {
        METADATA: json.dumps({model: known}).encode("ascii"),
        MESSAGE: (HEADING + job.prompt).encode("utf-8"),
        MODELS: json.dumps([settings]).encode("ascii"),
        "ignore": b"",
    }


def _model(access: ModelAccess) -> str:
    """In the dialect of Ollama, which the gateway speaks for whatever model."""
    return f"ollama_chat/{access.model}"


def _without_fences(path: str, text: str) -> str:
    lines = text.split("\n")
    if any(line.startswith(FENCE) for line in lines):
        if not path.lower().endswith((".md", ".markdown")):
            raise TaskInvalid(
                f"{path}: has a line that begins with {FENCE}, which no reply to aider can hold; "
                "indent it, or use the builtin agent"
            )
        lines = ["~~~" + line.lstrip("`") if line.startswith(FENCE) else line for line in lines]
    return "\n".join(lines)


def _chat(container: Container) -> str:
    """Its own account of the stage, from the head and the tail."""
    try:
        chat = container.get(f"{STAGE}/{CHAT}", MAX_CHAT_READ).decode("utf-8", "replace")
    except UnsafeOutput:
        return ""
    if len(chat) <= MAX_CHAT:
        return chat
    half = MAX_CHAT // 2
    return f"{chat[:half]}\n[... {len(chat) - 2 * half} characters left out ...]\n{chat[-half:]}"


def _refused(container: Container) -> list[Dropped]:
    """What `start` refused to let aider write; never read from output, which replies stand in."""
    try:
        lines = container.get(f"{STAGE}/{REFUSED}", MAX_REFUSED).decode("ascii").splitlines()
    except UnsafeOutput:
        return []
    found = [json.loads(line) for line in lines[:MAX_DROPPED]]
    return [Dropped(path=path[:300], reason=reason) for path, reason in found]


def _ended(ending: Ending, duration_s: float, stage: str) -> Failure:
    if ending is Ending.TIMEOUT:
        return Failure(
            failure_class=FailureClass.TIMEOUT,
            sentence=f"the model was not done within the stage's {duration_s:.0f} s",
            stage=stage,
        )
    return Failure(
        failure_class=FailureClass.AGENT_ERROR,
        sentence=f"aider was ended by force ({ending})",
        reason=str(ending),
        stage=stage,
    )
