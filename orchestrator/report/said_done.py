"""What submissions say of the columns that they must not use, beside what they do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from orchestrator.records.schema import Alteration, Claim, Evidence, LeakProbe, ScoreRecord
from orchestrator.report.inert import inert

DONE_WORDS = {
    "used": "used",
    "not-used": "not used",
    "declared-not-used": "declared, not used",
    "unclear": "unclear",
}
QUOTE_CHARS = 160


class SaidDone(StrEnum):
    """A plan beside what was done."""

    CONTRADICTS = "contradicts"
    """Said to be left out, and used."""
    AS_SAID = "as said"
    NOT_DONE = "said used, is not"
    UNSAID = "used, not said"
    """Used, and the text does not say so, or says both."""
    NOTHING_SAID = "not used, not said"
    UNKNOWN = "not known"
    """What is done could not be told."""


class Crossing(BaseModel):
    """Said and done of one column in one submission."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str
    said: str
    """`excluded`, `used`, `unclear`, `unmentioned`; `no text` where there is none to read."""
    known: str
    """What it says of whether the column is known when it predicts."""
    done: str
    """Verdict of the probe."""
    outcome: SaidDone
    quotes: list[Evidence]
    """Of what it says; the first is the weightiest."""


def crossings(score: ScoreRecord | None) -> list[Crossing]:
    """Of each column that was probed."""
    return [_crossing(probe, score.claims) for probe in score.leaks] if score else []


def _crossing(probe: LeakProbe, claims: Sequence[Claim]) -> Crossing:
    of = {claim.topic: claim for claim in claims if claim.column == probe.column}
    plan, known = of.get("plan"), of.get("availability")
    said = plan.answer if plan else "no text"
    return Crossing(
        column=probe.column,
        said=said,
        known=known.answer if known else "no text",
        done=probe.verdict,
        outcome=outcome(said, probe.verdict),
        quotes=plan.evidence if plan else [],
    )


def outcome(said: str, done: str) -> SaidDone:
    """What the one makes of the other."""
    if done == "unclear":
        return SaidDone.UNKNOWN
    used = done == "used"
    if said == "excluded":
        return SaidDone.CONTRADICTS if used else SaidDone.AS_SAID
    if said == "used":
        return SaidDone.AS_SAID if used else SaidDone.NOT_DONE
    return SaidDone.UNSAID if used else SaidDone.NOTHING_SAID


def counted(each: Iterable[Crossing]) -> dict[SaidDone, int]:
    """How often each outcome comes, in the order of the outcomes; those that don't are left out."""
    found = [crossing.outcome for crossing in each]
    return {one: found.count(one) for one in SaidDone if one in found}


def quote(crossing: Crossing) -> str:
    """`DECISIONS.md, line 3: "..."`, empty where there is nothing to quote."""
    if not crossing.quotes:
        return ""
    told = crossing.quotes[0]
    where = f"{inert(told.source, 60)}, line {told.line}" if told.line else inert(told.source, 60)
    return f'{where}: "{inert(told.excerpt, QUOTE_CHARS)}"'


def share(changed: float | None) -> str:
    """`0.03%`; what is less than the last place of it is not 0."""
    if changed is None:
        return "-"
    return "< 0.01%" if 0 < changed < 0.0001 else f"{changed:.2%}"


def score_lines(score: ScoreRecord) -> Iterator[str]:
    """Of one scoring: each probe with its figures, what is said beside it, the other claims."""
    for probe, crossing in zip(score.leaks, crossings(score), strict=True):
        column = inert(probe.column, 60)
        yield f"leaked column {column}: {DONE_WORDS[probe.verdict]}"
        if probe.evidence:
            yield f"  {inert(probe.evidence)}"
        # Twice the same in the same words is told once.
        yield from dict.fromkeys(f"    {_went(one)}" for one in probe.alterations)
        if crossing.said != "no text":
            yield (
                f"  said: {crossing.said}; known when it predicts: {crossing.known}; said and "
                f"done: {crossing.outcome.value}"
            )
            if told := quote(crossing):
                yield f"    {told}"
    others = [f"{claim.topic} {claim.answer}" for claim in score.claims if claim.column is None]
    if others:
        yield f"its text on the rest: {', '.join(others)}"


def _went(one: Alteration) -> str:
    what = inert(one.note, 100)
    if one.failure:
        return f"{what}: {one.failure.failure_class.value}: {inert(one.failure.sentence, 200)}"
    return f"{what}: {share(one.changed)} of predictions change"
