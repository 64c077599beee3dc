"""Whose an object of the engine is: labels decide, names are for people."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

TRIAL = "orch.trial"
RUN = "orch.run"
ROLE = "orch.role"
CONTENT = "orch.content"
"""On a cache volume and on its mark: hash of what the content was made from."""
COMPLETES = "orch.completes"
"""On a mark: the cache volume that it declares complete."""

SIZE = "orch.bytes"
"""On a mark: what its cache volume holds, where that was measured."""


@dataclass(frozen=True)
class Owner:
    """The trial, run and role that every container, network and volume of ours carries.

    `trial` is empty for what outlives trials (caches).
    """

    trial: str
    run: str = ""
    role: str = ""

    def as_role(self, role: str) -> Owner:
        return replace(self, role=role)

    def labels(self) -> dict[str, str]:
        return {TRIAL: self.trial, RUN: self.run, ROLE: self.role}

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Owner:
        return cls(labels.get(TRIAL, ""), labels.get(RUN, ""), labels.get(ROLE, ""))


def new_name(role: str) -> str:
    """A name nothing else has, e.g. `orch-predict-1f0c2a9b7e`."""
    slug = re.sub(r"[^a-z0-9]+", "-", role.lower()).strip("-")[:24].strip("-")
    return f"orch-{slug or 'step'}-{secrets.token_hex(5)}"


def mark_of(volume: str) -> str:
    """Name of the empty volume whose existence says that a cache volume is complete."""
    return f"{volume}.complete"
