"""The failure table is whole, agrees with what is promised of it, and is what the docs show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.records.failures import TABLE, Attribution, FailureClass
from orchestrator.records.reasons import MENDS
from orchestrator.records.schema import Failure

DOCS = Path(__file__).parents[2] / "docs" / "failures.md"
PROMISED = {
    Attribution.MODEL: """
        no-edits truncated-reply unsafe-path edit-did-not-apply runaway-generation
        reasoning-exhausted artifact-missing no-entry-point syntax-error undeclared-dependency
        dependency-not-found dependency-conflict dependency-refused unpicklable-artifact
        input-schema output-schema runtime-error needs-network timeout out-of-memory
        output-too-large disk-full pids-limit killed budget-exhausted
    """,
    Attribution.TASK: "dependency-unavailable limits-too-tight",
    Attribution.HARNESS: """
        edit-dropped context-overflow context-truncated model-unavailable model-server-error
        agent-error engine-unavailable image-missing index-unavailable host-disk-full scorer-error
        replay-differs
    """,
    Attribution.UNKNOWN: "unknown",
}


def test_each_class_has_a_row_and_its_attribution() -> None:
    promised = {name: who for who, names in PROMISED.items() for name in names.split()}
    assert set(TABLE) == set(FailureClass)
    assert {found.value: row.attribution for found, row in TABLE.items()} == promised


@pytest.mark.parametrize("failure_class", FailureClass)
def test_what_a_row_says_goes_together(failure_class: FailureClass) -> None:
    row = TABLE[failure_class]
    harness = row.attribution is Attribution.HARNESS
    # What is nobody's result is in no denominator, and the trial's exit code says so.
    assert row.exit_code == (0 if row.valid else 1)
    assert row.valid or row.attribution in (Attribution.HARNESS, Attribution.TASK)
    assert not (harness and row.valid)
    assert not row.may_retry or harness
    for sentence in (row.meaning, row.mend):
        assert sentence and not sentence.endswith(".")
        assert len(sentence) <= 90


def test_a_finer_reason_has_its_own_mend() -> None:
    def failure(reason: str) -> Failure:
        return Failure(failure_class=FailureClass.RUNTIME_ERROR, sentence="x", reason=reason)

    assert failure("absolute path").mend == MENDS["absolute path"]
    assert failure("exit status 3").mend == TABLE[FailureClass.RUNTIME_ERROR].mend


def test_the_docs_show_the_table() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    assert shown == {
        found.value: [
            row.attribution.value,
            "yes" if row.valid else "no",
            "yes" if row.may_retry else "no",
            str(row.exit_code),
            row.meaning,
            row.mend,
        ]
        for found, row in TABLE.items()
    }


def test_the_docs_show_the_finer_reasons() -> None:
    listed = DOCS.read_text(encoding="utf-8").partition("## Finer reasons")[2]
    assert dict(re.findall(r"^\| ([a-z][^|]*?) \| ([^|]*?) \|$", listed, re.MULTILINE)) == {
        "reason": "what would mend it",
        **MENDS,
    }
