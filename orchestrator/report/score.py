"""One scoring for a terminal. Model text is printed inert."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from orchestrator.records.schema import ScoreRecord
from orchestrator.report import spread
from orchestrator.report.imports import import_lines
from orchestrator.report.inert import inert
from orchestrator.report.said_done import score_lines
from orchestrator.report.terminal import console, print_lines
from orchestrator.report.units import duration


def print_score(record: ScoreRecord, to: Console | None = None) -> None:
    """Print one scoring on stdout, or on the given console."""
    to = to or console()
    to.print(Text(f"score {record.score:.3f}", style="bold"))
    if record.failure:
        failure = record.failure
        to.print(Text(f"{failure.failure_class.value} ({failure.attribution.value})", style="red"))
        print_lines([inert(failure.sentence), f"({failure.mend})"], to)
        places = ((e.source, e.line, e.excerpt) for e in failure.evidence)
        print_lines(
            [
                inert(f"{source}, line {line}: {excerpt}" if line else f"{source}: {excerpt}")
                for source, line, excerpt in places
            ],
            to,
            indent=4,
        )
    print_lines(import_lines(record.missing_imports), to)
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
        print_lines(lines, to)
    if record.spread:
        print_lines([spread.words(record.spread)], to)
    print_lines(score_lines(record), to)
    print_lines([inert(note) for note in record.normalisations], to)
    for step in record.steps:
        peak = "" if step.peak_memory_bytes is None else f", {step.peak_memory_bytes >> 20} MiB"
        print_lines(
            [f"{inert(step.name, 60)}: {step.ending.value}, {duration(step.duration_s)}{peak}"], to
        )
