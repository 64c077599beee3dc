"""Imports that nothing declared provides, in words."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.records.schema import MissingImport
from orchestrator.report.inert import inert

SHOWN = 8


def import_lines(found: Iterable[MissingImport]) -> list[str]:
    """One line for those a program can't do without, one for those it can; none where none are."""
    once = {(each.module, each.optional): each for each in found}
    groups = (
        ("imported and provided by nothing declared", False),
        ("the same, but the code goes on without", True),
    )
    lines = []
    for words, optional in groups:
        named = [_named(each) for each in once.values() if each.optional is optional]
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        if named:
            lines.append(f"{words}: {', '.join(named[:SHOWN])}{more}")
    return lines


def _named(each: MissingImport) -> str:
    differs = each.package != each.module.partition(".")[0]
    package = f"package {inert(each.package, 60)}; " if differs else ""
    return f"{inert(each.module, 60)} ({package}{inert(each.path, 80)}, line {each.line})"
