"""What every agent is to the rest of the project: an image, a dialect, a stage to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.records.calls import CallRecord
from orchestrator.records.schema import Captured, Commit, Dropped, Failure, FileChange
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.network import Network
from orchestrator.sandbox.volume import Volume


class ModelAccess(Protocol):
    """The way to the model for one stage and turn; the gateway gives it out."""

    @property
    def url(self) -> str:
        """Base URL as the agent's network sees it; speaks Ollama's API under /api."""

    @property
    def token(self) -> str:
        """Bearer token, good for this stage and turn only."""

    @property
    def model(self) -> str:
        """The one model name that the gateway accepts here."""

    @property
    def stage(self) -> str:
        """Name of the stage."""


@dataclass(frozen=True)
class AgentJob:
    """One stage's work. `limits.wall_s` is the agent's deadline for the whole stage.

    `read_only`: files of the workspace that are data. `room_chars`: so many characters fit into
    the context before the reply; None: not known.
    """

    prompt: str
    workspace: Volume
    network: Network
    access: ModelAccess
    limits: Limits
    owner: Owner
    read_only: tuple[str, ...] = ()
    room_chars: int | None = None
    num_ctx: int = 32768
    """Context in tokens that every call is pinned to."""
    commits: bool = False
    """Whether the agent is to keep its work in a git repository in the workspace."""


@dataclass(frozen=True)
class AgentReport:
    """What an agent says it did; the tree and the gateway's record decide what is true."""

    written: list[str]
    """Workspace-relative paths that it says it wrote."""
    dropped: list[Dropped]
    output: Captured
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)
    """Remarks for people, e.g. that a file came twice and the last was kept."""
    blobs: Mapping[str, str] = field(default_factory=dict)
    """Of files it says it wrote: git's name for the content, as the snapshot must have it."""
    commits: list[Commit] | None = None
    """What it committed in the workspace's own repository by now; None: it was not asked to."""
    history: Mapping[str, str] = field(default_factory=dict)
    """Files of its own that belong into the record: name → text, capped."""


@dataclass(frozen=True)
class Aftermath:
    """What a stage left, by the gateway's record and the snapshot after it."""

    calls: Sequence[CallRecord]
    """In order, without the messages that were asked; of very many the last ones."""
    changes: Sequence[FileChange]
    read: Callable[[str], bytes | None]
    """A regular file of the snapshot; None: there is none of that path."""


class Agent(Protocol):
    """An agent: one image and one class, listed in `registry`. Adding one touches nothing else."""

    name: str
    image: str
    """Name of the folder in images/."""

    def render_scripted(self, say: str, files: Mapping[str, str]) -> str:
        """A reply that says `say` and holds `files` (path → text), in this agent's dialect."""

    def run_stage(self, job: AgentJob) -> AgentReport:
        """Work in a fresh container that is gone when this returns.

        Raises EngineError when the engine fails; all else is in the report.
        """

    def review(self, report: AgentReport, after: Aftermath, stage: str, /) -> AgentReport:
        """Its report of `run_stage`, set right by what is known once the stage is over. Pure."""
