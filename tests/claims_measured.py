"""How often the rules that read decisions are right: `python tests/claims_measured.py`.

Prints the table of docs/probes.md. `tuned` is what the rules were made on; `heldout` was written
before them and `fresh` after them, both never used to better them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.scoring.said import claims

CLAIMS = Path(__file__).parent / "claims"
PARTS = ("tuned", "heldout", "fresh")
TOPICS = ("plan", "availability", "metric", "imbalance")
VAGUE = frozenset({"unclear", "unmentioned"})


@dataclass(frozen=True)
class Answer:
    """One claim of one document: as labelled by hand, as read by the rules."""

    document: str
    topic: str
    label: str
    read: str


@dataclass
class Figures:
    """Of the definite answers that were read, and of those that were labelled."""

    right: int = 0
    read: int = 0
    labelled: int = 0
    agreed: int = 0
    all: int = 0

    def add(self, answer: Answer) -> None:
        self.all += 1
        self.agreed += answer.label == answer.read
        self.read += answer.read not in VAGUE
        self.labelled += answer.label not in VAGUE
        self.right += answer.label == answer.read and answer.read not in VAGUE

    def cells(self) -> str:
        return (
            f"{self.right}/{self.read} = {self.right / self.read:.2f} | "
            f"{self.right}/{self.labelled} = {self.right / self.labelled:.2f} | "
            f"{self.agreed}/{self.all}"
        )


def documents(part: str) -> Iterator[tuple[str, str, dict]]:
    """(name, text, labels) of each document of a part."""
    labels = tomllib.loads((CLAIMS / part / "labels.toml").read_text(encoding="utf-8"))
    for name, label in labels.items():
        yield name, (CLAIMS / part / f"{name}.md").read_text(encoding="utf-8"), label


def answers(part: str) -> Iterator[Answer]:
    for name, text, label in documents(part):
        for claim in claims(text, label["columns"], "DECISIONS.md"):
            of = label["columns"][claim.column] if claim.column else label
            yield Answer(name, claim.topic, of[claim.topic], claim.answer)


def table() -> list[str]:
    """Rows of the table in the docs, one for each part and topic."""
    figures = {(part, topic): Figures() for topic in TOPICS for part in PARTS}
    for part in PARTS:
        for answer in answers(part):
            figures[part, answer.topic].add(answer)
    names = {"tuned": "tuned on", "heldout": "held out", "fresh": "written after"}
    return [
        f"| {topic} | {names[part]} | {figures[part, topic].cells()} |"
        for topic in TOPICS
        for part in PARTS
    ]


if __name__ == "__main__":
    print("\n".join(table()))
    for part in PARTS:
        for answer in answers(part):
            if answer.label != answer.read:
                print(part, answer)
