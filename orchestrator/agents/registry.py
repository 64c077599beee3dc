"""The agents there are, by name: the one place that lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.agents.aider.agent import AiderAgent
from orchestrator.agents.native import BuiltinAgent
from orchestrator.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from orchestrator.agents.base import Agent
    from orchestrator.sandbox.engine import Engine
    from orchestrator.sandbox.image import Image

AgentClass = type[BuiltinAgent] | type[AiderAgent]
AGENTS: dict[str, AgentClass] = {one.name: one for one in (BuiltinAgent, AiderAgent)}


def image_of(name: str) -> str:
    """Name of the image that the agent runs in. Raises UsageError for an agent there is not."""
    return _class(name).image


def make(name: str, engine: Engine, image: Image) -> Agent:
    """The agent, to work in `image`. Raises UsageError for an agent there is not."""
    return _class(name)(engine, image)


def _class(name: str) -> AgentClass:
    if name in AGENTS:
        return AGENTS[name]
    hint = did_you_mean(name, AGENTS, f"there are: {', '.join(AGENTS)}")
    raise UsageError(f"there is no agent {name!r}; {hint}")
