"""What a run may use up, and what it has: kept for one stage, told what the stages before used."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

UNITS = {
    "calls": "calls",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "agent_s": "seconds of the agent",
    "cost": "US dollars",
}
"""What is counted, and what people call it."""

Amounts = Mapping[str, float | None]


class Wallet:
    """`limits` and `used` by the names of UNITS; what has no limit is None or left out. `price` has
    `input`, `output` and perhaps `cached_input`, US dollars a million tokens; without it calls cost
    nothing.

    A call is let through while every amount is below its limit, so that the last one may end
    beyond it. The stage's own time counts from now.
    """

    def __init__(
        self,
        limits: Amounts | None = None,
        used: Amounts | None = None,
        price: Amounts | None = None,
    ) -> None:
        self._limits = {unit: amount for unit, amount in (limits or {}).items() if amount}
        self._used: dict[str, float] = {unit: (used or {}).get(unit) or 0 for unit in UNITS}
        unknown = set(self._limits) - set(UNITS)
        if unknown:
            raise ValueError(f"the wallet does not count {', '.join(sorted(unknown))}")
        self._price = price or {}
        self._opened = time.monotonic()

    def spend(self, **amounts: float) -> None:
        for unit, amount in amounts.items():
            self._used[unit] += amount

    def pay(self, tokens_in: int, tokens_out: int, cached: int) -> None:
        """A call has ended. `cached` of the tokens in may be charged for otherwise."""
        full = self._price.get("input") or 0
        less = self._price.get("cached_input")
        cost = (tokens_in - cached) * full + cached * (full if less is None else less)
        cost += tokens_out * (self._price.get("output") or 0)
        self.spend(tokens_in=tokens_in, tokens_out=tokens_out, cost=cost / 1e6)

    def used(self) -> dict[str, float]:
        here = time.monotonic() - self._opened
        return self._used | {"agent_s": self._used["agent_s"] + here}

    def left(self) -> dict[str, float | None]:
        """None where there is no limit."""
        used = self.used()
        return {
            unit: max(self._limits[unit] - used[unit], 0) if unit in self._limits else None
            for unit in UNITS
        }

    def exhausted(self) -> str | None:
        """Which limit was reached, as a sentence."""
        used = self.used()
        for unit, limit in self._limits.items():
            if used[unit] >= limit:
                return f"the run has used {used[unit]:g} of its {limit:g} {UNITS[unit]}"
        return None

    def told(self) -> dict[str, Any]:
        """For the agent that asks."""
        limits = {unit: self._limits.get(unit) for unit in UNITS}
        return {"limits": limits, "used": self.used(), "left": self.left()}
