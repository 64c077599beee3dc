"""The tables of a trial's report, from 80 columns on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from orchestrator.report.inert import inert
from orchestrator.report.repairs import summed
from orchestrator.report.said_done import DONE_WORDS
from orchestrator.report.summary import ModelView, Outcome, RunView, TrialSummary
from orchestrator.report.units import cost, count, duration, score

STYLE = {
    Outcome.SCORED: "green",
    Outcome.FAILED: "red",
    Outcome.HARNESS: "magenta",
    Outcome.TASK: "magenta",
    Outcome.RUNNING: "cyan",
    Outcome.INTERRUPTED: "yellow",
    Outcome.NOT_STARTED: "dim",
}


class Name:
    """A model's name, broken after a separator where its column is too narrow for it."""

    def __init__(self, name: str, style: str = "") -> None:
        self.style = style
        self.pieces = re.findall(r"[^/:-]*[/:-]|[^/:-]+", inert(name, 120))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [""]
        for piece in self.pieces:
            if lines[-1] and len(lines[-1]) + len(piece) > options.max_width:
                lines.append("")
            lines[-1] += piece
        yield Text("\n".join(lines), style=self.style, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        lengths = [len(piece) for piece in self.pieces]
        return Measurement(max(lengths, default=0), sum(lengths)).with_maximum(options.max_width)


def _table(wide: bool) -> Table:
    # The box itself puts one space between columns.
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1 if wide else 0, 0, 0),
        header_style="bold",
    )


def _number(table: Table, *headers: str) -> None:
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)


def not_counted(model: ModelView) -> dict[Outcome, list[str]]:
    return {
        Outcome.HARNESS: model.harness,
        Outcome.TASK: model.task_faults,
        Outcome.RUNNING: model.running,
        Outcome.INTERRUPTED: model.interrupted,
        Outcome.NOT_STARTED: model.not_started,
    }


def scores_table(summary: TrialSummary, wide: bool) -> Table:
    measure = summary.measure
    table = _table(wide)
    table.add_column("model", overflow="fold")
    _number(table, "planned", "valid", "scored", "failed")
    extra = [
        outcome
        for outcome in (o for o in Outcome if not o.valid)
        if wide and any(not_counted(model)[outcome] for model in summary.models)
    ]
    _number(table, *(outcome.value.replace(" ", "\n") for outcome in extra))
    _number(table, f"mean {measure},\nfailed = 0", f"mean {measure},\nscored", "best")
    for model in summary.models:
        means = (model.mean_with_failures, model.mean_scored)
        table.add_row(
            Name(model.model),
            *(str(n) for n in (model.planned, model.valid, model.scored, model.failed)),
            *(str(len(not_counted(model)[outcome])) for outcome in extra),
            *("-" if mean is None else f"{mean.value:.3f} n={mean.n}" for mean in means),
            score(model.best),
        )
    return table


def behaviour_table(summary: TrialSummary, wide: bool) -> Table:
    table = _table(wide)
    table.add_column("model", overflow="fold")
    table.add_column("repair turns")
    table.add_column("leak")
    _number(table, "calls", "tokens\nread", "tokens\nwritten", "model\ntime", "wall\ntime")
    priced = any(model.usage.cost is not None for model in summary.models)
    _number(table, *(["cost"] if priced else []))
    for model in summary.models:
        usage = model.usage
        table.add_row(
            Name(model.model),
            summed(model.repairs, model.repair_gain),
            _leak(model),
            count(usage.calls),
            count(usage.prompt_tokens),
            count(usage.reply_tokens),
            duration(usage.model_s),
            duration(model.duration_s),
            *([cost(usage.cost)] if priced else []),
        )
    return table


def _leak(model: ModelView) -> str:
    words: dict[str, int] = {}
    for verdict, n in model.leak.items():
        words[DONE_WORDS[verdict]] = words.get(DONE_WORDS[verdict], 0) + n
    return ", ".join(f"{word} {n}/{model.valid}" for word, n in words.items()) or "-"


def runs_table(summary: TrialSummary, wide: bool) -> Table:
    """All runs below the name of their model, in one table so that columns can be compared."""
    headers = ["run", "result", summary.measure, "own est.", "leak", "repair"]
    headers += ["stages", "read", "written", "time"] if wide else ["time"]
    table = _table(wide)
    for header in headers:
        text = header in ("result", "leak", "repair", "stages")
        table.add_column(header, justify="left" if text else "right")
    for model in summary.models:
        table.add_row("", Name(model.model, style="bold"))
        for run in model.runs:
            table.add_row(*_run_row(run, wide))
    return table


def column_table(
    summary: TrialSummary,
    wide: bool,
    headers: Sequence[str],
    rows: Callable[[RunView], Iterable[Sequence[str]]],
    total: Callable[[ModelView], str] = lambda _: "",
) -> Table:
    """Rows of each column in each valid run, below the name of its model and what it sums up to."""
    table = _table(wide)
    for header in headers:
        table.add_column(header, justify="right" if header == "run" else "left")
    for model in summary.models:
        if model.said_done:
            last = Text(total(model), style="bold")
            table.add_row("", Name(model.model, style="bold"), *[""] * (len(headers) - 3), last)
        for run in model.runs:
            for row in rows(run) if run.outcome.valid else ():
                table.add_row(ordinal(run), *map(Text, row))
    return table


def _run_row(run: RunView, wide: bool) -> list[Text]:
    result = run.outcome.value
    if run.failure and run.outcome in (Outcome.FAILED, Outcome.HARNESS, Outcome.TASK):
        result = run.failure.failure_class.value
    elif run.outcome is Outcome.RUNNING and run.stages:
        result = f"running, past {run.stages[-1].name}"
    elif run.outcome is Outcome.SCORED and run.failure:
        result = f"scored, {run.failure.failure_class.value}"
    begun = bool(run.stages) or run.duration_s > 0
    cells = [
        ordinal(run),
        Text(inert(result, 60), style=STYLE[run.outcome]),
        Text(score(run.score)),
        Text(score(run.expected_f1)),
        Text(DONE_WORDS[run.leak.verdict] if run.leak else "-"),
        Text(", ".join(run.repairs) or "-"),
    ]
    if wide:
        failed = sum(stage.failure is not None for stage in run.stages)
        stages = f"{len(run.stages)}, {failed} failed" if failed else str(len(run.stages))
        cells.append(Text(stages if begun else "-"))
        cells += [
            Text(count(tokens) if begun else "-")
            for tokens in (run.usage.prompt_tokens, run.usage.reply_tokens)
        ]
    return [*cells, Text(duration(run.duration_s) if begun else "-")]


def ordinal(run: RunView) -> Text:
    return Text(f"{run.index + 1:02d}")
