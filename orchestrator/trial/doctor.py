"""`orch doctor`: every check of this machine, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.config import Settings
from orchestrator.report.inert import inert
from orchestrator.trial import checks, model_checks
from orchestrator.trial.checks import Check, Status
from orchestrator.trial.facts import Facts
from orchestrator.trial.gather import gather

_STYLE = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


def run_doctor(settings: Settings) -> list[Check]:
    """Look at this machine and judge; what does not answer is a finding, not an exception."""
    return judge(gather(settings))


def judge(facts: Facts) -> list[Check]:
    """All checks, in the order a person would mend them. Pure."""
    found = [
        checks.python(facts.host),
        checks.clock(facts),
        checks.records(facts.host),
        checks.network(facts.host),
        checks.tasks(facts),
    ]
    if facts.engine is None:
        found.append(Check.fail("engine", facts.engine_problem))
    else:
        info = facts.engine.info
        found += [
            checks.engine(info),
            checks.storage(info),
            checks.space(facts.engine),
            checks.cgroup(info),
            checks.runtime(info, facts.runtime),
            checks.cpus(info, facts.needs),
            model_checks.memory(info, facts),
            checks.images(facts.engine, facts.host),
            model_checks.gpu(info, facts),
            checks.left_overs(facts.engine),
        ]
    return [*found, model_checks.ollama(facts), model_checks.ollama_context(facts)]


def failed(found: Iterable[Check]) -> list[Check]:
    """Those that no trial can do without; any makes `orch doctor` exit 2."""
    return [check for check in found if check.status is Status.FAIL]


def render_checks(found: Iterable[Check], console: Console) -> None:
    """One entry a check, with the mend below where there is one."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found:
        text = Text(inert(check.found))
        if check.mend:
            text.append(f"\nmend: {inert(check.mend)}", style="dim")
        table.add_row(Text(check.status.value, style=_STYLE[check.status]), check.name, text)
    console.print(table)
