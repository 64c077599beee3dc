"""What a run may use up and what it has: the orchestrator's side of the gateway's wallet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.config import Price
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Budget, Failure, Usage

Amounts = dict[str, float | None]
AGENT_TIME = "agent_s"
"""The unit that no replay takes the same amount of."""


@dataclass(frozen=True)
class Spent:
    """Of one run so far: its calls, and the wall time of its agent in seconds."""

    usage: Usage = field(default_factory=Usage)
    agent_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.usage + other.usage, self.agent_s + other.agent_s)

    def amounts(self) -> dict[str, float]:
        return {
            "calls": self.usage.calls,
            "tokens_in": self.usage.prompt_tokens,
            "tokens_out": self.usage.reply_tokens,
            "agent_s": self.agent_s,
            "cost": self.usage.cost or 0.0,
        }


@dataclass(frozen=True)
class Purse:
    """A run's wallet before a stage. By the names that the gateway counts under.

    `price` of its model None: it is not known, and no cost is counted.
    """

    budget: Budget
    spent: Spent
    price: Price | None = None

    def order(self) -> dict[str, Amounts]:
        """As the gateway is told: limits, what the stages before have used, the price."""
        price = self.price.model_dump(exclude={"as_of"}) if self.price else {}
        return {
            "limits": _limits(self.budget),
            "used": dict(self.spent.amounts()),
            "price": price,
        }

    @property
    def agent_s_left(self) -> float | None:
        """None: as long as the task allows."""
        limit = self.budget.max_agent_time
        return None if limit is None else max(limit - self.spent.agent_s, 0.0)

    def exhausted(self, stage: str) -> Failure | None:
        """Why the agent is not asked any more."""
        used = self.spent.amounts()
        for unit, limit in _limits(self.budget).items():
            if limit is not None and used[unit] >= limit:
                return Failure(
                    failure_class=FailureClass.BUDGET_EXHAUSTED,
                    sentence=f"the run has used {used[unit]:g} of its {limit:g} {_WORDS[unit]}; "
                    "the agent was not asked any more",
                    reason=unit,
                    stage=stage,
                )
        return None


_WORDS = {
    "calls": "calls",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "agent_s": "seconds of the agent",
    "cost": "US dollars",
}


def _limits(budget: Budget) -> Amounts:
    return {
        "calls": budget.max_calls,
        "tokens_in": budget.max_tokens_in,
        "tokens_out": budget.max_tokens_out,
        "agent_s": budget.max_agent_time,
        "cost": budget.max_cost,
    }


def timeless(budget: Budget) -> Budget:
    """For a replay: where the agent's time ended is in the record."""
    return budget.model_copy(update={"max_agent_time": None})


def unpriced(budget: Budget, known: Mapping[str, Price | None]) -> str | None:
    """What to warn of: a limit of the cost and models whose price nobody knows (name → price)."""
    names = [name for name, price in known.items() if price is None]
    if budget.max_cost is None or not names:
        return None
    return f"--max-cost does not limit {', '.join(names)}: no price is known"


def chosen(asked: Budget, default: Budget) -> Budget:
    """What the user asked for, and the task's limits where the user said nothing."""
    given = {name: value for name, value in asked if value is not None}
    return default.model_copy(update=given)
