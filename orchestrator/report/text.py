"""A trial's summary for a terminal, from 80 columns on. Model text is printed inert."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import ScoreRecord
from orchestrator.report import leaks, spread
from orchestrator.report.imports import import_lines
from orchestrator.report.inert import inert
from orchestrator.report.said_done import DONE_WORDS, score_lines
from orchestrator.report.summary import ModelView, Outcome, RunView, TrialSummary

WIDE = 110
"""From this many columns on, tables carry what narrower ones leave to the lines below."""
FEW_RUNS = 10
"""Below so many valid runs a model the report warns of reading much into its mean."""

_STYLE = {
    Outcome.SCORED: "green",
    Outcome.FAILED: "red",
    Outcome.HARNESS: "magenta",
    Outcome.TASK: "magenta",
    Outcome.RUNNING: "cyan",
    Outcome.INTERRUPTED: "yellow",
    Outcome.NOT_STARTED: "dim",
}


class _Stdout(Console):
    """Whoever stopped reading (`| head`) has what they wanted: the exit code stays as it is."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """The terminal, or whatever stdout is; NO_COLOR and COLUMNS are honoured."""
    return _Stdout(highlight=False)


def print_summary(summary: TrialSummary) -> None:
    """Print the report of one trial on stdout."""
    render(summary, console())


def print_score(record: ScoreRecord, to: Console | None = None) -> None:
    """Print one scoring on stdout, or on the given console."""
    to = to or console()
    to.print(Text(f"score {record.score:.3f}", style="bold"))
    if record.failure:
        failure = record.failure
        to.print(Text(f"{failure.failure_class.value} ({failure.attribution.value})", style="red"))
        _print_lines([inert(failure.sentence), f"({failure.mend})"], to)
        places = ((e.source, e.line, e.excerpt) for e in failure.evidence)
        _print_lines(
            [
                inert(f"{source}, line {line}: {excerpt}" if line else f"{source}: {excerpt}")
                for source, line, excerpt in places
            ],
            to,
            indent=4,
        )
    _print_lines(import_lines(record.missing_imports), to)
    if record.metrics:
        m = record.metrics
        lines = [
            f"F1 {m.f1:.3f}, precision {m.precision:.3f}, recall {m.recall:.3f}, "
            f"accuracy {m.accuracy:.3f}",
            f"flagged {m.flagged_rate:.1%} of {m.rows} rows, {m.true_rate:.1%} are truly positive",
        ]
        if m.pr_auc is not None:
            calibration = "" if m.ece is None else f", calibration error {m.ece:.3f}"
            lines.append(f"PR-AUC {m.pr_auc:.3f}{calibration}")
        if record.expected_f1 is not None:
            lines.append(
                f"own estimate {record.expected_f1:.3f}: {record.expected_f1 - m.f1:+.3f} off"
            )
        _print_lines(lines, to)
    if record.spread:
        _print_lines([spread.words(record.spread)], to)
    _print_lines(score_lines(record), to)
    _print_lines([inert(note) for note in record.normalisations], to)
    for step in record.steps:
        peak = "" if step.peak_memory_bytes is None else f", {step.peak_memory_bytes >> 20} MiB"
        _print_lines(
            [f"{inert(step.name, 60)}: {step.ending.value}, {duration(step.duration_s)}{peak}"], to
        )


def render(summary: TrialSummary, console: Console) -> None:
    """Print the report of one trial on the console given."""
    wide = console.width >= WIDE
    _print_head(summary, console)
    console.print(_scores(summary, wide))
    console.print()
    console.print(_behaviour(summary, wide))
    console.print()
    console.print(_runs(summary, wide))
    if any(model.said_done for model in summary.models):
        console.print(Text("\nPredictions that change with a column altered"))
        console.print(_by_column(summary, wide, leaks.CHANGES, leaks.changes))
        console.print(Text("\nWhat is said of it and what is done"))
        console.print(_by_column(summary, wide, leaks.SAID_DONE, leaks.said_done, leaks.total))
    _print_failures(summary, console)
    _print_remarks(summary, console)


def duration(seconds: float) -> str:
    """`4.2s`, `58s`, `12m 05s`, `3h 07m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def count(number: int) -> str:
    """`950`, `12.3k`, `4.56M`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1e6:.2f}M"


def cost(dollars: float | None) -> str:
    """`$1.23`, `$0.0042`; `-` where no price is known."""
    if dollars is None:
        return "-"
    return f"${dollars:.2f}" if dollars >= 1 or dollars == 0 else f"${dollars:.4f}"


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


class _Name:
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


def _not_counted(model: ModelView) -> dict[Outcome, list[str]]:
    return {
        Outcome.HARNESS: model.harness,
        Outcome.TASK: model.task_faults,
        Outcome.RUNNING: model.running,
        Outcome.INTERRUPTED: model.interrupted,
        Outcome.NOT_STARTED: model.not_started,
    }


def _scores(summary: TrialSummary, wide: bool) -> Table:
    measure = summary.measure
    table = _table(wide)
    table.add_column("model", overflow="fold")
    _number(table, "planned", "valid", "scored", "failed")
    extra = [
        outcome
        for outcome in (o for o in Outcome if not o.valid)
        if wide and any(_not_counted(model)[outcome] for model in summary.models)
    ]
    _number(table, *(outcome.value.replace(" ", "\n") for outcome in extra))
    _number(table, f"mean {measure},\nfailed = 0", f"mean {measure},\nscored", "best")
    for model in summary.models:
        means = (model.mean_with_failures, model.mean_scored)
        table.add_row(
            _Name(model.model),
            *(str(n) for n in (model.planned, model.valid, model.scored, model.failed)),
            *(str(len(_not_counted(model)[outcome])) for outcome in extra),
            *("-" if mean is None else f"{mean.value:.3f} n={mean.n}" for mean in means),
            _score(model.best),
        )
    return table


def _behaviour(summary: TrialSummary, wide: bool) -> Table:
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
            _Name(model.model),
            ", ".join(f"{n} {outcome.value}" for outcome, n in model.repairs.items() if n) or "-",
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


def _runs(summary: TrialSummary, wide: bool) -> Table:
    """All runs below the name of their model, in one table so that columns can be compared."""
    headers = ["run", "result", summary.measure, "own est.", "leak", "repair"]
    headers += ["stages", "read", "written", "time"] if wide else ["time"]
    table = _table(wide)
    for header in headers:
        text = header in ("result", "leak", "repair", "stages")
        table.add_column(header, justify="left" if text else "right")
    for model in summary.models:
        table.add_row("", _Name(model.model, style="bold"))
        for run in model.runs:
            table.add_row(*_run_row(run, wide))
    return table


def _by_column(
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
            table.add_row("", _Name(model.model, style="bold"), *[""] * (len(headers) - 3), last)
        for run in model.runs:
            for row in rows(run) if run.outcome.valid else ():
                table.add_row(_ordinal(run), *map(Text, row))
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
        _ordinal(run),
        Text(inert(result, 60), style=_STYLE[run.outcome]),
        Text(_score(run.score)),
        Text(_score(run.expected_f1)),
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


def _ordinal(run: RunView) -> Text:
    return Text(f"{run.index + 1:02d}")


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


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
    open_runs = [
        f"{inert(model.model, 120)} {_ordinals(model.runs, outcome)} {outcome.value}"
        for model in summary.models
        for outcome in (Outcome.RUNNING, Outcome.INTERRUPTED, Outcome.NOT_STARTED)
        if _not_counted(model)[outcome]
    ]
    if open_runs:
        console.print(Text("\nNot counted: not at their end", style="bold"))
        _print_lines(open_runs, console)


def _ordinals(runs: Iterable[RunView], outcome: Outcome) -> str:
    return ", ".join(_ordinal(run).plain for run in runs if run.outcome is outcome)


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
        head.append(" " + ", ".join(_ordinal(run).plain for run in members))
        head.append(f"  {failure_class}", style="bold")
        head.append(f" ({failure.attribution.value})")
        if failure.stage:
            head.append(f" in {inert(failure.stage, 60)}")
        console.print(head)
        _print_lines([inert(sentence), f"({failure.mend})"], console, indent=4)
        if failure.failure_class is FailureClass.UNDECLARED_DEPENDENCY:
            missing = [found for run in members for found in run.missing_imports]
            _print_lines(import_lines(missing), console, indent=4)


def _print_lines(lines: Iterable[str], console: Console, indent: int = 2) -> None:
    """What a line is itself indented by, it is also where it wraps."""
    for line in lines:
        text = line.lstrip()
        inside = indent + len(line) - len(text)
        console.print(Padding(Text(text), (0, 0, 0, inside), expand=False))


def _print_remarks(summary: TrialSummary, console: Console) -> None:
    remarks = [*spread.remarks(summary), *leaks.remarks(summary), *_notes(summary)]
    most = max((model.valid for model in summary.models), default=0)
    if 0 < most < FEW_RUNS:
        remarks.append(
            f"Few runs: n is at most {most}. Means of so few runs can differ by chance alone; "
            "look at the single runs before calling one model better."
        )
    if remarks:
        console.print()
    _print_lines(remarks, console, indent=0)


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
