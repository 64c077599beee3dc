"""A trial's summary for a terminal, from 80 columns on. Model text is printed inert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from rich.console import Console
from rich.text import Text

from orchestrator.records.failures import FailureClass
from orchestrator.report import commits, leaks, spread
from orchestrator.report.imports import import_lines
from orchestrator.report.inert import inert
from orchestrator.report.repairs import run_lines
from orchestrator.report.summary import ModelView, Outcome, RunView, TrialSummary
from orchestrator.report.tables import (
    behaviour_table,
    column_table,
    not_counted,
    ordinal,
    runs_table,
    scores_table,
)
from orchestrator.report.terminal import console, print_lines
from orchestrator.report.units import count

WIDE = 110
"""From this many columns on, tables carry what narrower ones leave to the lines below."""
FEW_RUNS = 10
"""Below so many valid runs a model the report warns of reading much into its mean."""


def print_summary(summary: TrialSummary) -> None:
    """Print the report of one trial on stdout."""
    render(summary, console())


def render(summary: TrialSummary, console: Console) -> None:
    """Print the report of one trial on the console given."""
    wide = console.width >= WIDE
    _print_head(summary, console)
    console.print(scores_table(summary, wide))
    console.print()
    console.print(behaviour_table(summary, wide))
    console.print()
    console.print(runs_table(summary, wide))
    if any(model.said_done for model in summary.models):
        console.print(Text("\nPredictions that change with a column altered"))
        console.print(column_table(summary, wide, leaks.CHANGES, leaks.changes))
        console.print(Text("\nWhat is said of it and what is done"))
        console.print(column_table(summary, wide, leaks.SAID_DONE, leaks.said_done, leaks.total))
    _print_repairs(summary, console)
    _print_failures(summary, console)
    _print_remarks(summary, console)


def _print_head(summary: TrialSummary, console: Console) -> None:
    settings = summary.settings
    temperature = "model's own" if settings.temperature is None else f"{settings.temperature:g}"
    facts = [
        f"task {summary.task}",
        f"agent {settings.agent}",
        f"{settings.runs} {'run' if settings.runs == 1 else 'runs'} a model",
        f"seed {settings.seed}",
        f"num_ctx {settings.num_ctx}",
        f"temperature {temperature}",
        f"repair turns {settings.repair_turns}",
    ]
    if settings.think is not None:
        facts.append(f"think {settings.think}")
    facts += [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in settings.budget
        if value is not None
    ]
    facts += [f"scored {settings.repeat} times"] if settings.repeat > 1 else []
    facts += [f"runtime {settings.runtime}"] if settings.runtime else []
    if settings.scale != 1.0:
        facts.append(f"data scale {settings.scale:g}")
    console.print(Text(f"Trial {inert(summary.trial_id)}", style="bold"))
    console.print(Text(inert(", ".join(facts)), style="dim"))
    if summary.complete:
        console.print(Text(f"{summary.planned} of {summary.planned} runs at their end"))
    else:
        so_far = f"{summary.finished} of {summary.planned} runs so far"
        console.print(Text(so_far, style="bold yellow"))
    console.print()


def _print_repairs(summary: TrialSummary, console: Console) -> None:
    lines = [
        line
        for model in summary.models
        for run in model.runs
        for line in run_lines(run.repair_turns, f"{inert(model.model, 120)} {ordinal(run).plain}")
    ]
    if lines:
        console.print(Text("\nRepair turns, by the score before and after", style="bold"))
        print_lines(lines, console)


def _print_failures(summary: TrialSummary, console: Console) -> None:
    runs = [run for model in summary.models for run in model.runs]
    failed = [run for run in runs if run.outcome is Outcome.FAILED]
    void = [run for run in runs if run.outcome in (Outcome.HARNESS, Outcome.TASK)]
    if failed:
        console.print(Text("\nFailed, counted as 0", style="bold"))
        _print_grouped(failed, console)
    if void:
        console.print(Text("\nNot counted: no fault of the model", style="bold"))
        _print_grouped(void, console)
    for run in [*failed, *void][:1]:
        more = inert(f"in detail: orch explain {summary.trial_id}/{run.run_id}", 200)
        console.print(Text(f"\n{more}", style="dim"))
    open_runs = [
        f"{inert(model.model, 120)} {_ordinals(model.runs, outcome)} {outcome.value}"
        for model in summary.models
        for outcome in Outcome
        if not outcome.at_end and not_counted(model)[outcome]
    ]
    if open_runs:
        console.print(Text("\nNot counted: not at their end", style="bold"))
        print_lines(open_runs, console)


def _ordinals(runs: Iterable[RunView], outcome: Outcome) -> str:
    return ", ".join(ordinal(run).plain for run in runs if run.outcome is outcome)


def _print_grouped(runs: Sequence[RunView], console: Console) -> None:
    """One entry for all runs of a model that failed in the same words."""
    groups: dict[tuple[str, str, str], list[RunView]] = {}
    for run in runs:
        if run.failure:
            key = (run.model, run.failure.failure_class.value, run.failure.sentence)
            groups.setdefault(key, []).append(run)
    for (model, failure_class, sentence), members in groups.items():
        failure = members[0].failure
        if failure is None:
            continue
        head = Text("  ")
        head.append(inert(model, 120))
        head.append(" " + ", ".join(ordinal(run).plain for run in members))
        head.append(f"  {failure_class}", style="bold")
        head.append(f" ({failure.attribution.value})")
        if failure.stage:
            head.append(f" in {inert(failure.stage, 60)}")
        console.print(head)
        print_lines([inert(sentence), f"({failure.mend})"], console, indent=4)
        if failure.failure_class is FailureClass.UNDECLARED_DEPENDENCY:
            missing = [found for run in members for found in run.missing_imports]
            print_lines(import_lines(missing), console, indent=4)


def _print_remarks(summary: TrialSummary, console: Console) -> None:
    said = (each.remarks(summary) for each in (spread, leaks, commits))
    remarks = [*chain.from_iterable(said), *_notes(summary)]
    most = max((model.valid for model in summary.models), default=0)
    if 0 < most < FEW_RUNS:
        remarks.append(
            f"Few runs: n is at most {most}. Means of so few runs can differ by chance alone; "
            "look at the single runs before calling one model better."
        )
    if remarks:
        console.print()
    print_lines(remarks, console, indent=0)


def _notes(summary: TrialSummary) -> list[str]:
    return [
        f"{inert(model.model, 120)}: {inert(note)}"
        for model in summary.models
        for note in (model.loaded, _reasoning(model), *model.notes)
        if note
    ]


def _reasoning(model: ModelView) -> str:
    usage = model.usage
    if not usage.reasoning_tokens:
        return ""
    return (
        f"about {count(usage.reasoning_tokens)} of {count(usage.reply_tokens)} tokens written "
        "were reasoning (estimated by its share of the characters)"
    )
