"""Scripted models: a task's `scripted/NAME/script.toml`, rendered in the agent's dialect."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.agents.base import Agent
from orchestrator.errors import ModelUnknown, TaskInvalid, did_you_mean
from orchestrator.models.reference import ModelKind, ModelReference
from orchestrator.task import Task

Replies = dict[str, dict[str, dict[int, str | list[str]]]]
"""Model name → stage → turn → reply to each call, or a list of replies, one to a call."""


class ScriptedReply(BaseModel):
    """What the scripted model answers in one stage and turn; `files` maps there → task folder.

    `call`: to which call of that turn, from 0. Where the turn has one reply only, every call gets
    it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    turn: int = Field(ge=0)
    call: int = Field(0, ge=0)
    say: str = ""
    files: dict[str, str] = {}


class Script(BaseModel):
    """A stage or turn that is not listed gets an empty reply."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str
    reply: tuple[ScriptedReply, ...] = ()


def check_scripted(task: Task, references: Iterable[ModelReference]) -> None:
    """Raises ModelUnknown for a scripted model that the task does not ship."""
    known = task.scripted_models()
    for reference in references:
        if reference.kind is ModelKind.SCRIPTED and reference.name not in known:
            hint = did_you_mean(reference.name, known, f"it has: {', '.join(known) or 'none'}")
            raise ModelUnknown(f"{task.name} has no scripted model {reference.name!r}; {hint}")


def render_scripts(task: Task, references: Iterable[ModelReference], agent: Agent) -> Replies:
    """The replies of all scripted models among `references`. Raises TaskInvalid."""
    return {
        reference.name: _rendered(task, reference.name, agent)
        for reference in references
        if reference.kind is ModelKind.SCRIPTED
    }


def load_script(task: Task, name: str) -> Script:
    """Raises TaskInvalid naming file and field."""
    file = task.folder / "scripted" / name / "script.toml"
    try:
        return Script.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as exc:
        raise TaskInvalid(f"{file}: not valid TOML: {exc}") from None
    except ValidationError as exc:
        error = exc.errors()[0]
        where = ".".join(str(part) for part in error["loc"])
        raise TaskInvalid(f"{file}: {where}: {error['msg']}") from None


def _rendered(task: Task, name: str, agent: Agent) -> dict[str, dict[int, str | list[str]]]:
    turns: dict[tuple[str, int], dict[int, str]] = {}
    for reply in load_script(task, name).reply:
        files = {path: _text(task, name, source) for path, source in reply.files.items()}
        text = agent.render_scripted(reply.say, files)
        turns.setdefault((reply.stage, reply.turn), {})[reply.call] = text
    stages: dict[str, dict[int, str | list[str]]] = {}
    for (stage, turn), calls in turns.items():
        each = [calls.get(number, "") for number in range(max(calls) + 1)]
        stages.setdefault(stage, {})[turn] = each if len(each) > 1 else each[0]
    return stages


def _text(task: Task, name: str, source: str) -> str:
    path = Path(task.folder, source)
    if not path.resolve().is_relative_to(task.folder) or not path.is_file():
        script = task.folder / "scripted" / name / "script.toml"
        raise TaskInvalid(f"{script}: files names {source!r}, which is not in the task folder")
    return path.read_text(encoding="utf-8")
