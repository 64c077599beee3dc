"""The data card: what the written files hold, read back from them and checked against the keys."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

GENERATOR_VERSION = 1
FILES = (
    "agent/train.csv",
    "agent/excerpt.csv",
    "holdout/features.csv",
    "key/labels.csv",
    "key/train_true_labels.csv",
)
MOJIBAKE = re.compile("â€|Â£|Ã[©¶¼«§]")
ENTITY = re.compile(r"&(?:amp|#39|pound|eacute|nbsp);")


def read(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def write(out: Path, seed: int, scale: float) -> dict[str, object]:
    """Verify the files below `out` and write `card.json` there."""
    card: dict[str, object] = {
        "generator_version": GENERATOR_VERSION,
        "seed": seed,
        "scale": scale,
        "train": _train(out),
        "holdout": _holdout(out),
        "sha256": {name: sha256(out / name) for name in FILES},
    }
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _train(out: Path) -> dict[str, object]:
    truth = {row["message_id"]: row for row in read(out / "key/train_true_labels.csv")}
    repeated = {row["duplicate_of"] for row in truth.values()}
    seen: Counter[str] = Counter()
    table: Counter[tuple[str, str]] = Counter()
    bodies: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    first, last = "9", ""
    for row in read(out / "agent/train.csv"):
        key = truth[row["message_id"]]
        seen["rows"] += 1
        seen["recorded spam"] += row["label"] == "1"
        seen["true spam"] += key["label"] == "1"
        seen["flipped"] += key["label"] != row["label"]
        table[row["moderator_flagged"], row["label"]] += 1
        _count_defects(row, seen)
        first, last = min(first, row["received_at"]), max(last, row["received_at"])
        if key["duplicate_of"]:
            copies.append((row["body"], key["duplicate_of"]))
        if row["message_id"] in repeated:
            bodies[row["message_id"]] = row["body"]
    if len(truth) != seen["rows"]:
        raise ValueError("training file and its true labels do not hold the same rows")
    alike = [_likeness(body, bodies[source]) for body, source in copies]
    return {
        "rows": seen["rows"],
        "near_duplicates": len(copies),
        "near_duplicates_identical": sum(body == bodies[source] for body, source in copies),
        "near_duplicates_least_shared_words": round(min(alike), 4),
        "spam_recorded": round(seen["recorded spam"] / seen["rows"], 6),
        "spam_true": round(seen["true spam"] / seen["rows"], 6),
        "labels_flipped": round(seen["flipped"] / seen["rows"], 6),
        "moderator_flagged_phi": round(_phi(table), 6),
        "received": [first, last],
        **_defects(seen),
    }


def _holdout(out: Path) -> dict[str, object]:
    truth = {row["message_id"]: row["label"] for row in read(out / "key/labels.csv")}
    seen: Counter[str] = Counter()
    first, last = "9", ""
    for row in read(out / "holdout/features.csv"):
        seen["rows"] += 1
        seen["spam"] += truth[row["message_id"]] == "1"
        seen["flagged"] += row["moderator_flagged"] == "1"
        _count_defects(row, seen)
        first, last = min(first, row["received_at"]), max(last, row["received_at"])
    if len(truth) != seen["rows"]:
        raise ValueError("holdout and its key do not hold the same rows")
    return {
        "rows": seen["rows"],
        "spam_true": round(seen["spam"] / seen["rows"], 6),
        "moderator_flagged_share": seen["flagged"] / seen["rows"],
        "received": [first, last],
        **_defects(seen),
    }


def _count_defects(row: dict[str, str], seen: Counter[str]) -> None:
    text = f"{row['subject']} {row['body']}"
    seen["mojibake"] += MOJIBAKE.search(text) is not None
    seen["entities"] += ENTITY.search(text) is not None
    seen["no subject"] += not row["subject"]
    seen["no age"] += not row["sender_domain_age_days"]


def _defects(seen: Counter[str]) -> dict[str, float]:
    return {
        "mojibake": round(seen["mojibake"] / seen["rows"], 6),
        "html_entities": round(seen["entities"] / seen["rows"], 6),
        "subject_empty": round(seen["no subject"] / seen["rows"], 6),
        "domain_age_missing": round(seen["no age"] / seen["rows"], 6),
    }


def _phi(table: Counter[tuple[str, str]]) -> float:
    """Phi coefficient of a two by two table."""
    a, b, c, d = (table[key] for key in (("1", "1"), ("1", "0"), ("0", "1"), ("0", "0")))
    return (a * d - b * c) / math.sqrt((a + b) * (c + d) * (a + c) * (b + d))


def _likeness(one: str, other: str) -> float:
    """Words that two texts share, of the words of the longer one."""
    left, right = Counter(one.lower().split()), Counter(other.lower().split())
    return (left & right).total() / max(left.total(), right.total())
