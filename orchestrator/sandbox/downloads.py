"""What an environment would download, from the resolver's lock in its second format. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure
from orchestrator.sandbox.limits import MIB, EnvironmentRules
from orchestrator.sandbox.resolution import SOURCE

NAMED = 5
"""Of the largest, in a sentence."""


@dataclass(frozen=True)
class Download:
    """One package's file for this platform. `size` in bytes, 0 where the index tells none."""

    package: str
    version: str
    size: int

    def __str__(self) -> str:
        return f"{self.package} {self.version} {mib(self.size)}"


def downloads(pylock: str) -> list[Download]:
    """What uv's pylock.toml lists: it holds the one file a package that fits the platform."""
    found = []
    for package in tomllib.loads(pylock).get("packages", []):
        files = package.get("wheels") or [package.get("sdist", {})]
        size = max((int(file.get("size", 0)) for file in files), default=0)
        found.append(Download(package["name"], package.get("version", ""), size))
    return found


def too_large(wanted: list[Download], rules: EnvironmentRules) -> Failure | None:
    """The failure that names the sum, the limit and the largest, or None."""
    total = sum(each.size for each in wanted)
    if total <= rules.download_mb * MIB:
        return None
    sentence = (
        f"the declared dependencies would download {mib(total)} in {len(wanted)} packages; "
        f"the task allows {rules.download_mb} MiB; the largest: {largest(wanted)}"
    )
    return Failure(
        failure_class=FailureClass.DISK_FULL,
        sentence=sentence,
        reason="environment too large",
        evidence=[Evidence(source=SOURCE, excerpt="\n".join(map(str, _by_size(wanted)[:50])))],
    )


def too_large_unpacked(wanted: list[Download], rules: EnvironmentRules) -> Failure:
    """The failure of an installation that was stopped at its cap."""
    return Failure(
        failure_class=FailureClass.DISK_FULL,
        sentence=f"installing the declared dependencies wrote more than {rules.disk_mb} MiB, which "
        f"the task allows; the largest: {largest(wanted)}",
        reason="environment too large",
    )


def largest(wanted: list[Download]) -> str:
    return ", ".join(str(each) for each in _by_size(wanted)[:NAMED])


def mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB" if size >= 10 * MIB else f"{size / MIB:.1f} MiB"


def _by_size(wanted: list[Download]) -> list[Download]:
    return sorted(wanted, key=lambda each: (-each.size, each.package))
