"""What of a run's replies did not land, what landed that nobody meant, and what its prompts left
out, in words."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.records.schema import AgentStage, PromptCut, RunRecord

SHOWN = 12
"""Lines of one stage."""


def landing_lines(record: RunRecord) -> list[str]:
    """A line for each thing, in the order of the stages; none where all went as it should."""
    lines: list[str] = []
    for stage in record.stages:
        if not isinstance(stage, AgentStage):
            continue
        turn = f", repair turn {stage.turn}" if stage.turn else ""
        found = [f"{stage.name}{turn}: {words}" for words in _of_stage(stage)]
        more = len(found) - SHOWN
        lines += found[:SHOWN] + ([f"{stage.name}{turn}: and {more} more"] if more > 0 else [])
    return lines


def _of_stage(stage: AgentStage) -> Iterator[str]:
    for item in stage.dropped:
        yield f"{item.path} did not land: {item.reason}"
    for path in stage.junk:
        yield f"a file named {path!r} that nobody meant"
    for path in stage.data_touched:
        yield f"{path}, which is data, was altered"
    yield from stage.notes
    for cut in stage.prompt.cuts if stage.prompt else ():
        yield _cut(cut)


def _cut(cut: PromptCut) -> str:
    what = cut.name if cut.what == "file" else cut.what
    if not cut.kept:
        return f"its prompt named {what} without its text ({cut.size:,} long)"
    return f"its prompt showed {cut.kept:,} of {cut.size:,} characters of {what}"
