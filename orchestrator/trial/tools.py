"""The images that a trial needs, made ready before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from orchestrator.records.schema import ImageRecord
from orchestrator.sandbox import image
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image


@dataclass(frozen=True)
class Images:
    tools: Image
    builder: Image
    scorer: Image
    agent: Image
    """The one of the trial's agent, by that agent's name for it."""
    gateway: Image

    def records(self) -> list[ImageRecord]:
        found: list[Image] = [getattr(self, field.name) for field in fields(self)]
        return [
            ImageRecord(
                name=one.name,
                id=one.id,
                inputs_sha256=one.inputs_sha256,
                repo_digest=one.repo_digest,
            )
            for one in found
        ]


def trial_images(engine: Engine, agent: str, say: Callable[[str], None]) -> Images:
    """All images of a trial whose agent has the image `agent`, built where missing.

    Raises ImageBuildFailed, NotEnoughSpace.
    """
    names = {field.name: field.name for field in fields(Images)} | {"agent": agent}
    return Images(**{name: image.ensure(engine, of, say=say) for name, of in names.items()})


def all_images(engine: Engine, say: Callable[[str], None]) -> Iterator[Image]:
    """Every image that images.toml names, bases first, as each becomes ready."""
    for name in image.names():
        yield image.ensure(engine, name, say=say)
