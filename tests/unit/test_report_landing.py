"""What did not land is told in words, stage by stage."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from orchestrator.records.schema import (
    AgentStage,
    Dropped,
    PromptCut,
    PromptPlan,
    RunRecord,
    RunSpec,
)
from orchestrator.report.explain import explain
from orchestrator.report.explained import print_explanation
from orchestrator.report.landing import SHOWN, landing_lines

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run(*stages: AgentStage) -> RunRecord:
    spec = RunSpec(run_id="r", model="m", index=0, seed=1)
    return RunRecord(spec=spec, stages=list(stages))


def stage(**more: object) -> AgentStage:
    given = {"name": "implement", "started_at": NOW, "duration_s": 1.0, "tree": "t"}
    return AgentStage.model_validate(given | more)


def test_nothing_to_tell() -> None:
    plan = PromptPlan(tokens=10, room=100, ratio=1.25)
    assert landing_lines(run(stage(), stage(announced=["a.py"], prompt=plan))) == []


def test_all_that_there_may_be_to_tell() -> None:
    cuts = [
        PromptCut(what="file", name="a.py", size=30_000, kept=0),
        PromptCut(what="stdout", size=50_000, kept=12_000),
    ]
    found = landing_lines(
        run(
            stage(dropped=[Dropped(path="../x", reason="unsafe-path: leaves the workspace")]),
            stage(
                turn=1,
                junk=["pip install"],
                data_touched=["excerpt.csv"],
                notes=["a.py came more than once; the last was kept"],
                prompt=PromptPlan(tokens=10, room=100, ratio=1.25, cuts=cuts),
            ),
        )
    )
    assert found == [
        "implement: ../x did not land: unsafe-path: leaves the workspace",
        "implement, repair turn 1: a file named 'pip install' that nobody meant",
        "implement, repair turn 1: excerpt.csv, which is data, was altered",
        "implement, repair turn 1: a.py came more than once; the last was kept",
        "implement, repair turn 1: its prompt named a.py without its text (30,000 long)",
        "implement, repair turn 1: its prompt showed 12,000 of 50,000 characters of stdout",
    ]


def test_orch_explain_tells_it() -> None:
    record = run(stage(notes=["the reply was cut off in b.py; asked once more, b.py came"]))
    found = explain("trial", record, lambda tree, path: None)
    assert found.landing == landing_lines(record)
    to = Console(file=StringIO(), width=100)
    print_explanation(found, to)
    assert "implement: the reply was cut off in b.py" in to.file.getvalue()  # type: ignore[attr-defined]


def test_a_stage_of_many_refusals_is_not_told_whole() -> None:
    dropped = [Dropped(path=f"{n}", reason="elided") for n in range(SHOWN + 3)]
    found = landing_lines(run(stage(dropped=dropped)))
    assert len(found) == SHOWN + 1
    assert found[-1] == "implement: and 3 more"
