"""What is read of a submission's decisions: measured on documents with hand labels, and hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims_measured import PARTS, TOPICS, documents, table

from orchestrator.scoring import prose
from orchestrator.scoring.prose import sentences
from orchestrator.scoring.said import QUOTED, claims

DOCS = Path(__file__).parents[2] / "docs" / "probes.md"
COLUMN = "moderator_flagged"


def read(text: str, column: str = COLUMN) -> dict[str, str]:
    return {claim.topic: claim.answer for claim in claims(text, [column], "D.md")}


def test_the_documented_figures_are_the_measured_ones() -> None:
    documented = [row for row in DOCS.read_text().splitlines() if row.startswith(
        tuple(f"| {topic} |" for topic in TOPICS)
    ) and " = " in row]  # fmt: skip
    assert documented == table()


def test_the_documents_are_many_and_all_labelled() -> None:
    counted = {part: list(documents(part)) for part in PARTS}
    assert sum(len(found) for found in counted.values()) >= 40
    assert len(counted["heldout"]) >= 20
    for part, found in counted.items():
        files = {path.stem for path in (DOCS.parents[1] / "tests/claims" / part).glob("*.md")}
        assert {name for name, _, _ in found} == files
        for _, _, label in found:
            assert label.keys() == {"metric", "imbalance", "columns"}
            for column in label["columns"].values():
                assert column["plan"] in {"used", "excluded", "unclear", "unmentioned"}
                known = {"available", "unavailable", "unclear", "unmentioned"}
                assert column["availability"] in known


def test_each_answer_has_the_sentences_that_give_it() -> None:
    text = "# D\n\nWe use the text.\n\n`moderator_flagged` is *not* used.\nF1 decides.\n"
    plan, _, metric, imbalance = claims(text, [COLUMN], "D.md")
    (told,) = plan.evidence
    assert (told.source, told.line) == ("D.md", 5)
    assert told.excerpt == "`moderator_flagged` is *not* used."
    assert [one.line for one in metric.evidence] == [6]
    assert (imbalance.answer, imbalance.evidence) == ("unmentioned", [])


def test_of_a_contradiction_both_sides_are_quoted() -> None:
    text = "We use moderator_flagged. " * 20 + "\n\nmoderator_flagged is dropped.\n"
    plan = claims(text, [COLUMN], "D.md")[0]
    assert plan.answer == "unclear"
    assert len(plan.evidence) == QUOTED - 2
    assert {"is dropped" in one.excerpt for one in plan.evidence} == {True, False}


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("We drop paid_late.", "paid_late"),
        ("We drop paid late.", "paid_late"),
        ("We drop Paid-Late.", "paid_late"),
        ("We drop paid\\_late.", "paid_late"),
        ("We drop C++.", "C++"),
        ("We drop Größe.", "Größe"),
    ],
)
def test_columns_by_any_name(text: str, column: str) -> None:
    assert read(text, column)["plan"] == "excluded"
    assert read("We drop the rest.", column)["plan"] == "unmentioned"
    assert read("We drop xpaid_later.", column)["plan"] == "unmentioned"


SAID = {
    "excluded": (
        "moderator_flagged should not be used, as it is set after delivery.",
        "All columns but moderator_flagged are used.",
        "Everything except for moderator_flagged is used.",
        "I refrained from using moderator_flagged.",
        "moderator_flagged is highly predictive, but deliberately excluded.",
        "The model never sees moderator_flagged.",
        "Why not moderator_flagged? It is tempting.",
        "## Features we are not using\n- moderator_flagged",
        "- moderator_flagged: no (a leak)",
        "<p>We do <b>not</b> use <code>moderator_flagged</code>.</p>",
        "Moderator\u2011flagged is dropped.",
        "We do not use the moderator flag.",
    ),
    "used": (
        "We use not only the text but also moderator_flagged.",
        "There is no reason to exclude moderator_flagged.",
        "The model takes moderator_flagged as input.",
        "We should include moderator_flagged.",
        "**Features:** text, moderator_flagged",
        "moderator_flagged: yes, as a number",
    ),
    "unclear": (
        "moderator_flagged correlates with the label.",
        "We might use moderator_flagged.",
        "One model is trained with moderator_flagged and one without.",
        "## Columns\nmoderator_flagged is 1 for most spam.",
        "- moderator_flagged: no missing values",
        "moderator_flagged verwenden wir nicht.",
    ),
}


@pytest.mark.parametrize("answer", SAID)
def test_what_a_sentence_says_of_a_column(answer: str) -> None:
    assert [text for text in SAID[answer] if read(text)["plan"] != answer] == []


@pytest.mark.parametrize("column", ["", "_", " "])
def test_a_column_without_a_name_is_never_mentioned(column: str) -> None:
    assert read("We drop it all. _ ", column)["plan"] == "unmentioned"


HOSTILE = {
    "marks": "*" * 300_000,
    "stops": "." * 300_000 + "x",
    "a rule that is none": "-" * 300_000 + "x",
    "cells": "|" * 300_000,
    "comments that never end": "<!--" * 80_000,
    "comments": "<!---->" * 40_000,
    "one letter a line": "a\n" * 150_000,
    "mentions": f"{COLUMN} " * 15_000,
    "mentions without an end to the negations": f"{COLUMN} not " * 15_000,
    "a long heading above many lines": f"# {'x_y ' * 50_000}\n" + "a.\n\n" * 50_000,
    "a wide head above many rows": f"{'used|' * 20_000}\n{'-|' * 20_000}\n" + "a|b|c\n" * 20_000,
    "verbs that wait for their particle": "leave " * 50_000,
    "nested quotes": ">" * 300_000,
    "bold without an end": "**a" * 100_000,
    "spaces": " " * 300_000 + "x",
    "metrics": "f1 " * 100_000,
    "hedges": "moderator_flagged potential except because " * 7_000,
    "dots after a name": f"{COLUMN}:{'.' * 580} " * 500,
    "connectives": f"{COLUMN} and " + "so but is really " * 18_000,
    "controls": "\x00\x1b[31m\u202e" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_read_to_an_end(name: str) -> None:
    text = HOSTILE[name]
    for claim in claims(text, [COLUMN, "other"], "D.md"):
        assert len(claim.evidence) <= QUOTED
        for told in claim.evidence:
            assert len(told.excerpt) <= prose.MAX_SENTENCE
            assert told.excerpt.isprintable()


def test_what_can_not_be_seen_can_not_speak() -> None:
    assert read("<!-- We use moderator_flagged. -->\nText only.")["plan"] == "unmentioned"
    assert read("We drop moder\u200bator_fla\x00gged.")["plan"] == "excluded"
    assert read("x" * prose.MAX_CHARS + "\n\nWe drop moderator_flagged.")["plan"] == "unmentioned"


def test_sentences_know_their_places() -> None:
    text = (
        "# Top\nOne, e.g. this. Two\ngoes on. 3.5 three!\n\n"
        "**Lead:** we drop:\n- a\n  still a\n1. b\n\n"
        "Under\n=====\n| x | y |\n|---|---|\n| p | q |\n~~~\ncode. more\n~~~\n"
    )
    found = [(s.shown, s.line, s.heading, s.lead, s.code) for s in sentences(text)]
    assert found == [
        ("Top", 1, "top", "", False),
        ("One, e.g. this.", 2, "top", "", False),
        ("Two goes on.", 2, "top", "", False),
        ("3.5 three!", 3, "top", "", False),
        ("**Lead:** we drop:", 5, "lead", "", False),
        ("a still a", 6, "lead", "**lead:** we drop:".replace("*", ""), False),
        ("b", 8, "lead", "lead: we drop:", False),
        ("Under", 10, "under", "", False),
        ("p | q", 14, "under", "", False),
        ("code. more", 16, "under", "", True),
    ]
