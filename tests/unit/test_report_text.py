"""The report as a person sees it; what a model wrote must not steer the terminal."""

from __future__ import annotations

import io
import re

import pytest
from report_samples import agent_stage, failure, finished, mixed_trial, score, trial
from rich.console import Console

from orchestrator.records.schema import (
    AgentStage,
    Budget,
    Commit,
    Evidence,
    MissingImport,
    RunRecord,
    RunSpec,
    Spread,
    TrialRecord,
    Usage,
)
from orchestrator.report.inert import inert
from orchestrator.report.score import print_score
from orchestrator.report.summary import summarise
from orchestrator.report.text import render
from orchestrator.report.units import cost, count, duration

HOSTILE = {
    "colour": ("a\x1b[31mred\x1b[0m b", "ared b"),
    "cursor": ("a\x1b[2J\x1b[1;1Hb", "ab"),
    "8-bit control sequence": ("a\x9b31mb", "ab"),
    "title": ("a\x1b]0;title\x07b", "ab"),
    "link": ("\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"),
    "8-bit string": ("a\x9d0;title\x9cb", "ab"),
    "clipboard": ("a\x1b]52;c;aGk=\x07b", "ab"),
    "device control": ("a\x1bPq#0\x1b\\b", "ab"),
    "unended title": ("a\x1b]0;title", "a0;title"),
    "reset": ("a\x1bcb", "ab"),
    "an escape in an escape": ("a\x1b\x1b[0m[31mb", "a\\x1b[31mb"),
    "an escape cut by a null": ("a\x1b\x00[31mb", "a\\x1b\\x00[31mb"),
    "bell and backspace": ("a\x07\x08\x08b", "a\\x07\\x08\\x08b"),
    "carriage return": ("real\rfake", "real fake"),
    "lines": ("a\n\n  b\tc", "a b c"),
    "line separator": ("a\u2028b\x85c", "a b c"),
    "direction override": ("a\u202egpj.exe", "a\\u202egpj.exe"),
    "direction isolate": ("\u2066a\u2069", "\\u2066a\\u2069"),
    "right-to-left mark": ("a\u200fb", "a\\u200fb"),
    "zero width": ("a\u200bb\ufeffc", "a\\u200bb\\ufeffc"),
    "invisible tags": ("a\U000e0041b", "a\\U000e0041b"),
    "lone surrogate": ("a\udcffb", "a\\udcffb"),
    "markup": ("[red]a[/red] :boom:", "[red]a[/red] :boom:"),
    "other scripts": ("naïve 模型 🙂", "naïve 模型 🙂"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_inert(name: str) -> None:
    text, shown = HOSTILE[name]
    assert inert(text) == shown


def test_inert_has_a_limit_and_says_so() -> None:
    assert inert("x" * 400) == "x" * 400
    assert inert("x" * 401) == "x" * 394 + " [...]"
    assert len(inert("\x00" * 10_000)) == 400
    assert inert("\x1b[0m" * 100_000 + "end").endswith("[...]")


def shown(record: TrialRecord, runs: list[RunRecord], width: int = 120, **options: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, **options)  # type: ignore[arg-type]
    render(summarise(record, runs), console)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_every_figure_is_readable_at_every_width(width: int) -> None:
    text = shown(*mixed_trial(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\u2026" not in text  # rich's mark for a cell that was cut
    for wanted in (
        "5 of 9 runs so far",
        "0.800 n=2",
        "0.000 n=2",
        "undeclared-dependency (model) in check",
        "engine-unavailable (harness)",
        "imports lightgbm",
        "scripted/careful 03 interrupted",
        "qwen3-coder:30b-a3b 02 running",
        "qwen3-coder:30b-a3b 03 not started",
        "1 rescued",
        "Leak: scripted/careful used moderator_flagged",
        "1 of 2 probed runs",
        "n is at most 2",
    ):
        assert wanted in " ".join(text.split()), wanted


def test_a_wide_table_counts_what_is_in_no_denominator() -> None:
    row = next(
        line for line in shown(*mixed_trial()).splitlines() if line.startswith("qwen3-coder")
    )
    # planned, valid, scored, failed, harness, running, interrupted, not started
    assert row.split()[1:9] == ["3", "0", "0", "0", "1", "1", "0", "1"]


def test_equal_failures_are_said_once() -> None:
    text = shown(*mixed_trial())
    assert text.count("which requirements.txt does not declare") == 1
    assert "scripted/undeclared-import 01, 02" in text


def test_a_whole_trial_says_so_and_large_ones_get_no_warning() -> None:
    record = trial(["m"], 10)
    runs = [finished(spec, score=score(0.8)) for spec in record.plan]
    text = shown(record, runs)
    assert "10 of 10 runs at their end" in text
    assert "so far" not in text
    assert "Few runs" not in text
    assert "Few runs" in shown(trial(["m"], 9), runs[:9])


def test_a_trial_that_has_only_been_planned_renders() -> None:
    text = shown(trial(["m"], 2), [])
    assert "0 of 2 runs so far" in text
    assert "m 01, 02 not started" in text


def hostile_trial() -> tuple[TrialRecord, list[RunRecord]]:
    nasty = "\x1b]0;owned\x07\x1b[31m[bold red]x[/bold red] [/] \x9b2J\u202e[link=http://x]y"
    spec = RunSpec(run_id="m-01", model=f"m{nasty}", index=0, seed=1)
    record = trial([f"m{nasty}"], 1, [spec])
    record.models[0].notes.append(nasty)
    failed = failure("runtime-error", nasty, stage=nasty)
    return record, [finished(spec, failure=failed, stages=[agent_stage(nasty)])]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("terminal", [True, False])
def test_no_text_of_a_model_reaches_the_terminal_as_anything_but_text(
    width: int, terminal: bool
) -> None:
    text = shown(*hostile_trial(), width=width, force_terminal=terminal)
    ours = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert all(char == "\n" or char.isprintable() for char in ours)
    assert "[bold red]x[/bold red]" in "".join(ours.split("\n")).replace("  ", " ")
    assert "owned" not in ours
    if not terminal:
        assert "\x1b" not in text


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    colour = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38)(?:;\d+)*m")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colour.search(shown(*mixed_trial(), force_terminal=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(shown(*mixed_trial(), force_terminal=True))


def test_a_score_alone_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    print_score(score(0.801, expected=0.95, leak="used"))
    text = " ".join(capsys.readouterr().out.split())
    for wanted in (
        "score 0.801",
        "precision 0.800",
        "flagged 20.0% of 50 rows",
        "own estimate 0.950: +0.149 off",
        "leaked column moderator_flagged: used",
    ):
        assert wanted in text


def test_repeated_scorings_are_told_in_the_score_and_in_the_report() -> None:
    steady = Spread(scores=[0.8] * 2, predictions_sha256=["a"] * 2, failures=[None] * 2, distinct=1)
    loose = Spread(
        scores=[0.8, 0.0, 0.9],
        predictions_sha256=["a", None, "b"],
        failures=[None, "runtime-error", None],
        distinct=3,
    )
    record = score(0.8).model_copy(update={"spread": loose})
    stream = io.StringIO()
    print_score(record, Console(file=stream, width=120))
    text = "3 scorings: 3 different results, score 0.000 to 0.900, mean 0.567, 1 of them failed"
    assert text in stream.getvalue()
    made = trial(["scripted/careful"], 3)
    made.settings.repeat, made.settings.runtime = 3, "runsc"
    spreads = (steady, loose, None)
    records = [
        finished(spec, score=score(0.8).model_copy(update={"spread": spread}))
        for spec, spread in zip(made.plan, spreads, strict=True)
    ]
    summary = summarise(made, records)
    stream = io.StringIO()
    render(summary, Console(file=stream, width=120))
    shown = " ".join(stream.getvalue().split())
    assert "scored 3 times, runtime runsc" in shown
    assert f"scripted-careful-02: {text}." in shown
    assert "1 of 2 submissions that were trained and scored 3 times came out the same" in shown
    assert [run.spread for run in summary.models[0].runs] == list(spreads)


def test_commits_are_told_by_number_and_subject() -> None:
    made = trial(["scripted/careful"], 3)
    kept = [Commit(id=f"{n:040x}", subject=f"Step {n}\x1b[2J") for n in range(7)]
    stages = [[], kept, None]
    records = [
        finished(spec, stages=[agent_stage("a").model_copy(update={"commits": commits})])
        for spec, commits in zip(made.plan, stages, strict=True)
    ]
    stream = io.StringIO()
    render(summarise(made, records), Console(file=stream, width=120))
    shown = " ".join(stream.getvalue().split())
    assert "scripted-careful-01: no commit." in shown
    assert "-02: 7 commits, the last first: 'Step 0', 'Step 1'," in shown
    assert "'Step 4' and 2 before." in shown
    assert "careful-03: " not in shown


def test_a_failed_score_shows_its_evidence_inert() -> None:
    record = score(0.0, failed="syntax-error")
    assert record.failure
    record.failure.evidence.append(
        Evidence(source="train.py", line=3, excerpt="\x1b]0;owned\x07x = [red](")
    )
    stream = io.StringIO()
    print_score(record, Console(file=stream, width=80))
    assert "syntax-error (model)" in stream.getvalue()
    assert "train.py, line 3: x = [red](" in stream.getvalue()


def test_missing_imports_stand_beside_the_crash_that_they_cause() -> None:
    record = trial(["ollama/a"], 1)
    found = score(0.0, failed="undeclared-dependency")
    found.missing_imports = [
        MissingImport(module="bs4", package="beautifulsoup4", path="train.py", line=3)
    ]
    wanted = "provided by nothing declared: bs4 (package beautifulsoup4; train.py, line 3)"
    runs = [finished(record.plan[0], score=found)]
    assert wanted in " ".join(shown(record, runs).split())
    (run,) = summarise(record, runs).models[0].runs
    assert [each.module for each in run.missing_imports] == ["bs4"]
    stream = io.StringIO()
    print_score(found, Console(file=stream, width=200))
    assert wanted in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m 00s"),
     (3599.7, "1h 00m"), (11220, "3h 07m")],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (999_949, "999.9k"), (999_950, "1.00M")],
)
def test_count(number: int, text: str) -> None:
    assert count(number) == text


def test_reasoning_and_what_was_loaded_are_told_and_limits_with_the_settings() -> None:
    record, runs = mixed_trial()
    record.settings.think = "low"
    record.settings.budget = Budget(max_calls=12, max_cost=1.5)
    model = record.models[0]
    model.server, model.processor, model.load_s = "Ollama 0.33.1", "41%/59% CPU/GPU", 3.21
    model.loaded_bytes, model.vram_bytes, model.context_loaded = 20 << 30, 12 << 30, 32768
    for run in runs:
        for stage in run.stages:
            if isinstance(stage, AgentStage):
                stage.usage = Usage(calls=1, reply_tokens=4000, reasoning_tokens=1000)
    text = " ".join(shown(record, runs).split())
    assert "think low, max calls 12, max cost 1.5" in text
    assert (
        "Ollama 0.33.1, 20.0 GiB in memory, 41%/59% CPU/GPU (12.0 GiB of VRAM), loaded in 3.2 s, "
        "context 32768"
    ) in text
    assert "tokens written were reasoning (estimated by its share of the characters)" in text


def test_cost_is_shown_where_it_is_known() -> None:
    record = trial(["openai/a", "openai/b"], 1)
    runs = [
        finished(
            spec,
            score=score(0.5),
            stages=[agent_stage("explore", usage=Usage(calls=1, cost=spent))],
        )
        for spec, spent in zip(record.plan, (0.0123, None), strict=True)
    ]
    text = shown(record, runs)
    assert "cost" in text
    assert "$0.0123" in text
    assert "cost" not in shown(record, runs[1:])
    assert [cost(one) for one in (None, 0.0, 0.5, 12.345)] == ["-", "$0.00", "$0.5000", "$12.35"]
