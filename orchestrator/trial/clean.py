"""`orch clean`: remove by label what no living trial owns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

from pydantic import BaseModel

from orchestrator.config import Settings
from orchestrator.sandbox.engine import Engine, Owned
from orchestrator.trial.lease import known, living

MODELS_ROLE = "ollama-models"


class Fate(StrEnum):
    """What cleaning does with an object of ours."""

    LEFT_OVER = "left-over"
    CACHE = "cache"
    MODELS = "models"
    IN_USE = "in use"
    FOREIGN = "of a trial recorded elsewhere"


class Item(BaseModel):
    kind: str
    name: str
    trial: str
    role: str
    fate: Fate
    removed: bool = False
    problem: str = ""


class Cleaned(BaseModel):
    """What `orch clean` found and did."""

    dry_run: bool
    items: list[Item]

    def lines(self) -> list[str]:
        """What happened, a line an object, for people."""
        if not self.items:
            return ["nothing of ours on the engine"]
        return [self._line(item) for item in self.items]

    def _line(self, item: Item) -> str:
        if item.problem:
            done = f"kept: {item.problem}"
        elif item.removed:
            done = "would be removed" if self.dry_run else "removed"
        else:
            done = "kept"
        whose = f" of {item.trial}" if item.trial else ""
        return f"{item.kind:9} {item.name:44} {item.role}{whose} ({item.fate}): {done}"


def fate_of(item: Owned, alive: Collection[str], ours: Collection[str], *, busy: bool) -> Fate:
    """Decide by label alone: trials hold a lease while they live, caches belong to no trial.

    Of a cache the engine can't tell who will mount it next: while any trial may live (`busy`),
    all are in use.
    """
    if not item.owner.trial and busy:
        return Fate.IN_USE
    if item.owner.role == MODELS_ROLE:
        return Fate.MODELS
    if not item.owner.trial:
        return Fate.CACHE
    if item.owner.trial in alive:
        return Fate.IN_USE
    return Fate.LEFT_OVER if item.owner.trial in ours else Fate.FOREIGN


def may_be_busy(owned: Iterable[Owned], alive: Collection[str], ours: Collection[str]) -> bool:
    """Whether a trial lives, or one of another home may: it has containers."""
    return bool(alive) or any(
        item.kind == "container" and item.owner.trial and item.owner.trial not in ours
        for item in owned
    )


def clean_engine(
    settings: Settings,
    *,
    dry_run: bool = False,
    also: Iterable[Fate] = (),
    keep_caches: bool = False,
) -> Cleaned:
    """Remove left-overs, and caches unless told to keep them; `also` adds models or foreign ones.

    A trial of another home folder on the same engine can't be seen to live: its objects are
    FOREIGN and stay unless asked for. Raises EngineUnavailable.
    """
    engine = Engine.connect()
    alive, ours = living(settings.runs_dir), known(settings.runs_dir)
    doomed = {Fate.LEFT_OVER, *also} | (set() if keep_caches else {Fate.CACHE})
    owned = engine.owned()
    busy = bool(alive) if Fate.FOREIGN in doomed else may_be_busy(owned, alive, ours)
    fates = {item.id: fate_of(item, alive, ours, busy=busy) for item in owned}
    going = [item for item in owned if fates[item.id] in doomed]
    problems: dict[str, str] = {}
    if not dry_run:
        problems = {item.id: reason for item, reason in engine.remove(going).kept}
    return Cleaned(
        dry_run=dry_run,
        items=[
            Item(
                kind=item.kind,
                name=item.name,
                trial=item.owner.trial,
                role=item.owner.role,
                fate=fates[item.id],
                removed=item in going and item.id not in problems,
                problem=problems.get(item.id, ""),
            )
            for item in owned
        ],
    )


def left_overs(engine: Engine, settings: Settings) -> list[Owned]:
    """Objects of our trials that no living process owns."""
    alive, ours = living(settings.runs_dir), known(settings.runs_dir)
    return [
        item for item in engine.owned() if fate_of(item, alive, ours, busy=True) is Fate.LEFT_OVER
    ]
