"""What a submission says of itself in its document of decisions, with the sentences that say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.records.schema import Claim, Evidence
from orchestrator.scoring import said_columns, said_measures
from orchestrator.scoring.prose import Sentence, sentences
from orchestrator.scoring.said_columns import SAID, Finding

QUOTED = 4
"""Sentences at most for a claim; of a contradiction one of each side is among them."""


def claims(document: str, columns: Iterable[str], source: str) -> list[Claim]:
    """Plan and availability of each column, then the metric, then uneven classes. Never fails."""
    found = sentences(document)
    made: list[Claim] = []
    for column in columns:
        name = said_columns.column_pattern(column)
        about = list(said_columns.relevant(found, name))
        plans = said_columns.plans(about, name)
        known = said_columns.availability(about)
        for topic, findings, yes, no in (
            ("plan", plans, "used", "excluded"),
            ("availability", known, "available", "unavailable"),
        ):
            answer = _answer(findings, yes, no)
            quoted = [finding.sentence for finding in _telling(findings)]
            made.append(_claim(topic, answer, quoted, source, column))
    for topic, (answer, told) in (
        ("metric", said_measures.metric(found)),
        ("imbalance", said_measures.imbalance(found)),
    ):
        made.append(_claim(topic, answer, told, source))
    return made


def _answer(findings: Sequence[Finding], yes: str, no: str) -> str:
    """Firm statements decide, what is only hinted at where there are none; both ways is unclear."""
    if not findings:
        return "unmentioned"
    firm = [finding for finding in findings if finding.stance != "open"]
    heaviest = max((finding.weight for finding in firm), default=0)
    if heaviest < SAID and any(f.stance == "open" and f.weight == SAID for f in findings):
        return "unclear"
    stances = {finding.stance for finding in firm if finding.weight == heaviest}
    if len(stances) != 1:
        return "unclear"
    return yes if stances == {"yes"} else no


def _telling(findings: Sequence[Finding]) -> list[Finding]:
    """The heaviest first, and of each stance one before the second of any."""
    ordered = sorted(findings, key=lambda f: (-f.weight, f.stance == "open"))
    firsts: dict[str, Finding] = {}
    for finding in ordered:
        firsts.setdefault(finding.stance, finding)
    return [*firsts.values(), *(f for f in ordered if f is not firsts[f.stance])]


def _claim(
    topic: str,
    answer: str,
    told: Iterable[Sentence],
    source: str,
    column: str | None = None,
) -> Claim:
    once = {(sentence.line, sentence.shown): sentence for sentence in told}
    evidence = [
        Evidence(source=source, line=sentence.line, excerpt=sentence.shown)
        for sentence in list(once.values())[:QUOTED]
    ]
    return Claim.model_validate(
        {"topic": topic, "column": column, "answer": answer, "evidence": evidence}
    )
