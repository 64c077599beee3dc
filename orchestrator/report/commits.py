"""What agents committed, in words."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.records.schema import Commit
from orchestrator.report.inert import inert
from orchestrator.report.summary import TrialSummary

SHOWN = 5
LONGEST = 60
"""Characters of a subject."""


def remarks(summary: TrialSummary) -> Iterator[str]:
    """A sentence for each run whose agent was asked to commit: how many, and the last subjects."""
    for model in summary.models:
        for run in model.runs:
            if run.commits is not None:
                yield f"{run.run_id}: {_words(run.commits)}."


def _words(commits: list[Commit]) -> str:
    if not commits:
        return "no commit"
    subjects = [repr(inert(one.subject, LONGEST)) for one in commits[:SHOWN]]
    left = f" and {len(commits) - SHOWN} before" if len(commits) > SHOWN else ""
    number = "1 commit" if len(commits) == 1 else f"{len(commits)} commits, the last first"
    return f"{number}: {', '.join(subjects)}{left}"
