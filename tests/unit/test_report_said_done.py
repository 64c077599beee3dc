"""What is said beside what is done, in the summary, its JSON and its text."""

from __future__ import annotations

import io
import json

import pytest
from report_samples import failure, finished, score, trial
from rich.console import Console

from orchestrator.records.schema import (
    Alteration,
    Claim,
    Evidence,
    LeakProbe,
    RunRecord,
    ScoreRecord,
    TrialRecord,
)
from orchestrator.report.said_done import SaidDone, outcome, share
from orchestrator.report.score import print_score
from orchestrator.report.summary import summarise
from orchestrator.report.text import render

SENTENCE = "We leave `moderator_flagged` out.\x1b]0;owned\x07 [red]"


@pytest.mark.parametrize(
    ("said", "done", "crossed"),
    [
        ("excluded", "used", SaidDone.CONTRADICTS),
        ("excluded", "not-used", SaidDone.AS_SAID),
        ("excluded", "declared-not-used", SaidDone.AS_SAID),
        ("used", "used", SaidDone.AS_SAID),
        ("used", "not-used", SaidDone.NOT_DONE),
        ("used", "declared-not-used", SaidDone.NOT_DONE),
        ("unclear", "used", SaidDone.UNSAID),
        ("unmentioned", "used", SaidDone.UNSAID),
        ("no text", "used", SaidDone.UNSAID),
        ("unmentioned", "not-used", SaidDone.NOTHING_SAID),
        ("excluded", "unclear", SaidDone.UNKNOWN),
        ("unmentioned", "unclear", SaidDone.UNKNOWN),
    ],
)
def test_said_and_done(said: str, done: str, crossed: SaidDone) -> None:
    assert outcome(said, done) is crossed


def told(plan: str, verdict: str, column: str = "moderator_flagged") -> ScoreRecord:
    evidence = [Evidence(source="DECISIONS.md", line=3, excerpt=SENTENCE)]
    return score(0.5).model_copy(
        update={
            "leaks": [
                LeakProbe(
                    column=column,
                    verdict=verdict,
                    evidence="40.00% of predictions change",
                    alterations=[
                        Alteration(kind="set", note="set to 1", changed=0.4),
                        Alteration(
                            kind="dropped",
                            note="dropped",
                            failure=failure("input-schema", "the input lacks: 'x'"),
                        ),
                    ],
                )
            ],
            "claims": [
                Claim(topic="plan", column=column, answer=plan, evidence=evidence),
                Claim(topic="availability", column=column, answer="unavailable"),
                Claim(topic="metric", answer="f1"),
                Claim(topic="imbalance", answer="noted"),
            ],
        }
    )


def crossed_trial() -> tuple[TrialRecord, list[RunRecord]]:
    record = trial(["qwen3-coder:30b-a3b-instruct", "other"], 3)
    first, second, third, *others = sorted(record.plan, key=lambda spec: spec.model == "other")
    return record, [
        finished(first, score=told("excluded", "used")),
        finished(second, score=told("unclear", "declared-not-used")),
        finished(
            third, score=told("excluded", "used"), failure=failure("engine-unavailable")
        ),
        *(finished(spec, score=score(0.5)) for spec in others),
    ]  # fmt: skip


def test_the_summary_counts_valid_runs_and_survives_json() -> None:
    summary = summarise(*crossed_trial())
    model, other = json.loads(summary.model_dump_json())["models"]
    assert sum(model["said_done"].values()) == model["valid"] == 2
    assert model["said_done"] == {"contradicts": 1, "not used, not said": 1}
    assert other["said_done"] == {}
    crossing = next(c for run in model["runs"] for c in run["said_done"] if c["done"] == "used")
    assert (crossing["said"], crossing["known"]) == ("excluded", "unavailable")
    assert crossing["quotes"][0]["excerpt"] == SENTENCE


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_report_crosses_what_is_said_with_what_is_done(width: int) -> None:
    stream = io.StringIO()
    render(summarise(*crossed_trial()), Console(file=stream, width=width))
    text = stream.getvalue()
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\u2026" not in text
    joined = " ".join(text.split())
    for wanted in (
        "said and done",
        "contradicts 1",
        "says that it leaves out moderator_flagged",
        "moderator_flagged 40.00% - input-schema -",
    ):
        assert wanted in joined
    assert 'DECISIONS.md, line 3: "We leave `moderator_flagged` out. [red]"' in joined
    assert "in 1 of 2 probed runs" in joined
    assert "\x1b" not in text


def test_one_scoring_tells_its_probes_with_their_figures() -> None:
    stream = io.StringIO()
    print_score(told("excluded", "used"), Console(file=stream, width=200))
    text = " ".join(stream.getvalue().split())
    for wanted in (
        "leaked column moderator_flagged: used",
        "set to 1: 40.00% of predictions change",
        "dropped: input-schema: the input lacks: 'x'",
        "said: excluded; known when it predicts: unavailable; said and done: contradicts",
        "its text on the rest: metric f1, imbalance noted",
    ):
        assert wanted in text
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("changed", "told"), [(None, "-"), (0.0, "0.00%"), (0.00002, "< 0.01%"), (1.0, "100.00%")]
)
def test_a_share_that_is_not_0_does_not_read_as_0(changed: float | None, told: str) -> None:
    assert share(changed) == told


def test_a_trial_without_probes_has_no_such_table() -> None:
    record = trial(["m"], 1)
    stream = io.StringIO()
    render(summarise(record, [finished(record.plan[0], score=score(0.5))]), Console(file=stream))
    assert "said and done" not in stream.getvalue()
