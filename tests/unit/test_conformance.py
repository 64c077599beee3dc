"""What `orch agents check` makes of stages that went well or ill, without an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from orchestrator.agents.base import AgentReport
from orchestrator.agents.native import BuiltinAgent
from orchestrator.agents.registry import AGENTS
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Captured, FileChange
from orchestrator.trial.checks import Check, Status
from orchestrator.trial.conformance import AFTER_DEADLINE_S, DEADLINE_S, FILES, TRIALS, Outcome

REPORT = AgentReport([], [], Captured(text="", total_bytes=0))
NOTHING = Outcome(REPORT, [], {}, None, "", 3.0, [])
LANDED = replace(NOTHING, content={path: text.encode() for path, text in FILES.items()})
HALF = FileChange(path="half.txt", change="added", size=3)


def failing(failure_class: FailureClass) -> Outcome:
    return replace(NOTHING, failure_class=failure_class, sentence="as it is")


GOOD = {
    "writes files": LANDED,
    "says when nothing came": failing(FailureClass.NO_EDITS),
    "says what was cut": failing(FailureClass.TRUNCATED_REPLY),
    "survives a missing model": failing(FailureClass.MODEL_UNAVAILABLE),
    "survives a cut stream": failing(FailureClass.MODEL_SERVER_ERROR),
    "honours its deadline": failing(FailureClass.TIMEOUT),
}


class StagesGo:
    """A place where each stage leaves what is given."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.agent = BuiltinAgent(cast("Any", None), cast("Any", None))

    def say(self, reply: str) -> None:
        pass

    def stage(self, _model: str, _wall_s: float = 0.0) -> Outcome:
        return self.outcome


def found(what: str, outcome: Outcome) -> Check:
    judged = dict(TRIALS)[what]
    return judged(cast("Any", StagesGo(outcome)), what)


def test_all_that_must_hold_is_tried() -> None:
    assert [what for what, _ in TRIALS] == list(GOOD)
    assert list(AGENTS) == ["builtin", "aider"]


@pytest.mark.parametrize("what", GOOD)
def test_a_stage_that_went_as_it_must_is_ok(what: str) -> None:
    assert found(what, GOOD[what]).status is Status.OK


@pytest.mark.parametrize("what", GOOD)
def test_a_container_left_behind_fails_every_check(what: str) -> None:
    check = found(what, replace(GOOD[what], left=["orch-agent-1"]))
    assert check.status is Status.FAIL
    assert "orch-agent-1" in check.found


@pytest.mark.parametrize("what", [what for what in GOOD if what != "writes files"])
def test_a_failure_that_is_not_told_fails(what: str) -> None:
    assert "no failure" in found(what, LANDED).found
    assert "agent-error: as it is" in found(what, failing(FailureClass.AGENT_ERROR)).found


@pytest.mark.parametrize(
    ("what", "outcome", "told"),
    [
        ("writes files", NOTHING, "notes.md is not as the reply has it"),
        ("writes files", failing(FailureClass.NO_EDITS), "no-edits: as it is"),
        ("writes files", replace(LANDED, content=LANDED.content | {"x": b""}), "left x beside"),
        (
            "survives a cut stream",
            replace(GOOD["survives a cut stream"], changes=[HALF]),
            "half.txt was written",
        ),
        (
            "honours its deadline",
            replace(GOOD["honours its deadline"], duration_s=DEADLINE_S + AFTER_DEADLINE_S + 1),
            "it took 51 s of 20",
        ),
    ],
)
def test_what_else_can_be_wrong(what: str, outcome: Outcome, told: str) -> None:
    check = found(what, outcome)
    assert check.status is Status.FAIL
    assert told in check.found
