"""What a run may use up and what it has: the orchestrator's side of the gateway's wallet."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Budget, Failure, Usage

Amounts = dict[str, float | None]


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
    """A run's wallet before a stage. By the names that the gateway counts under."""

    budget: Budget
    spent: Spent

    def order(self) -> dict[str, Amounts]:
        """As the gateway is told: limits, and what the stages before have used."""
        return {"limits": _limits(self.budget), "used": dict(self.spent.amounts())}

    @property
    def agent_s_left(self) -> float | None:
        """None: as long as the task allows."""
        limit = self.budget.max_agent_time
        return None if limit is None else max(limit - self.spent.agent_s, 0.0)

    def exhausted(self, stage: str) -> Failure | None:
        """Why the agent is not asked any more."""
        used = self.spent.amounts()
        for unit, limit in _limits(self.budget).items():
            if limit is not None and used.get(unit, 0) >= limit:
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


def chosen(asked: Budget, default: Budget) -> Budget:
    """What the user asked for, and the task's limits where the user said nothing."""
    given = {name: value for name, value in asked if value is not None}
    return default.model_copy(update=given)
