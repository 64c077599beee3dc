"""Why a run came out as it did, for a terminal. Model text is printed inert."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from orchestrator.report.explain import Explanation, Place, Problem
from orchestrator.report.imports import import_lines
from orchestrator.report.inert import inert
from orchestrator.report.repairs import run_lines
from orchestrator.report.summary import Outcome
from orchestrator.report.tables import STYLE
from orchestrator.report.terminal import console, print_lines
from orchestrator.report.units import score

MAX_EXCERPT = 20
"""Lines of evidence that is no line of a file: a resolver's words, a traceback of ours."""
TAB = 4
MAX_INDENT = 40
"""Columns of a line's own indentation that are shown."""


def print_explanation(found: Explanation, to: Console | None = None) -> None:
    """Print it on stdout, or on the given console."""
    to = to or console()
    to.print(Text(inert(f"{found.trial_id}/{found.run_id}"), style="bold"))
    to.print(Text(f"{inert(found.model, 120)}: {_outcome(found)}", style=STYLE[found.outcome]))
    print_lines(_standing(found), to)
    if found.decided is not None:
        to.print()
        _print_problem(found.decided, to)
    if found.missing_imports:
        to.print()
        print_lines(import_lines(found.missing_imports), to, indent=0)
    if found.landing:
        to.print(Text("\nBetween replies, disk and prompts", style="bold"))
        print_lines([inert(line, 300) for line in found.landing], to)
    if found.on_the_way:
        to.print(Text("\nOn the way", style="bold"))
    shown = [found.decided] if found.decided else []
    for number, problem in enumerate(found.on_the_way):
        if number:
            to.print()
        _print_problem(problem, to, indent=2, known=any(_same(problem, one) for one in shown))
        shown.append(problem)


def _outcome(found: Explanation) -> str:
    match found.outcome:
        case Outcome.SCORED:
            words = f"scored {score(found.score)}"
            return words if found.decided else f"{words}; nothing failed in its scoring"
        case Outcome.RUNNING:
            return f"running{_past(found)}"
        case Outcome.INTERRUPTED:
            return f"interrupted{_past(found)}"
        case Outcome.NOT_STARTED:
            return "not started"
        case Outcome.FAILED | Outcome.HARNESS | Outcome.TASK:
            return "failed" if found.counts else "ended without a result"


def _past(found: Explanation) -> str:
    return f", past {inert(found.last_stage, 60)}" if found.last_stage else ""


def _standing(found: Explanation) -> Iterator[str]:
    """What repair turns did, whether the run counts, and whether it is worth doing again."""
    yield from run_lines(found.repairs, "repair of")
    if not found.outcome.at_end:
        yield "in no denominator: it has not come to its end"
        return
    if not found.counts:
        yield "in no denominator: it says nothing of the model"
    elif found.outcome is Outcome.FAILED:
        yield "counts as 0 in the means of its model"
    if found.retry:
        yield "done again, it may come out otherwise"
    elif found.decided is not None:
        yield "a retry makes no sense before that is mended"


def _same(one: Problem, other: Problem) -> bool:
    """Whether two failures were told of in the same words and places."""
    return (one.sentence, one.places) == (other.sentence, other.places)


def _print_problem(problem: Problem, to: Console, indent: int = 0, known: bool = False) -> None:
    """`known`: one like it was shown above."""
    head = Text(" " * indent)
    head.append(problem.failure_class.value, style="bold")
    head.append(f" ({problem.attribution.value}){_where(problem)}")
    if indent:
        head.append(", repaired later" if problem.repaired else ", not repaired")
    to.print(head)
    if known:
        print_lines(["as above"], to, indent=indent + 2)
        return
    lines = [f"{problem.meaning}: {inert(problem.sentence)}", f"to mend it: {problem.mend}"]
    print_lines(lines, to, indent=indent + 2)
    for place in problem.places:
        _print_place(place, to, indent + 2)


def _where(problem: Problem) -> str:
    if not problem.stage:
        return ""
    turn = f", repair turn {problem.turn}" if problem.turn else ""
    return f" in {inert(problem.stage, 60)}{turn}"


def _print_place(place: Place, to: Console, indent: int) -> None:
    line = f", line {place.line}" if place.line else ""
    print_lines([f"{inert(place.source, 120)}{line}"], to, indent=indent)
    if not place.around:
        excerpt = place.excerpt.splitlines()
        print_lines((code(line) for line in excerpt[:MAX_EXCERPT]), to, indent=indent + 4)
        return
    width = len(str(place.around[-1].number))
    for each in place.around:
        mark = ">" if each.number == place.line else " "
        text = Text(f"{mark} {each.number:{width}}  {code(each.text)}", no_wrap=True)
        text.overflow = "ellipsis"
        to.print(Padding(text, (0, 0, 0, indent + 2), expand=False))


def code(text: str) -> str:
    """A line of code on one line, inert, with its own indentation."""
    shown = text.expandtabs(TAB)
    indent = min(len(shown) - len(shown.lstrip(" ")), MAX_INDENT)
    return " " * indent + inert(shown)
