"""The spam task's generator: what it writes is the same to the byte, and holds what it says."""

import csv
import json
import math
import resource
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

TASK = Path(__file__).parents[2] / "tasks" / "spam"
COLUMNS = [
    "message_id", "received_at", "subject", "body", "sender", "sender_domain_age_days",
    "link_count", "attachment_count", "reply_count", "moderator_flagged", "label",
]  # fmt: skip
TRAIN, DUPLICATES, HOLDOUT = 4160, 160, 1000
Rows = list[dict[str, str]]


def generate(out: Path, *options: str) -> dict:
    command = [sys.executable, str(TASK / "generator.py"), "--out", str(out), *options]
    subprocess.run(command, check=True, capture_output=True)
    return json.loads((out / "card.json").read_text())


def read(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pins(scale: str) -> dict[str, str]:
    return tomllib.loads((TASK / "task.toml").read_text())["data"]["sha256"][scale]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("spam")
    generate(out, "--scale", "0.02")
    return out


@pytest.fixture(scope="module")
def card(data: Path) -> dict:
    return json.loads((data / "card.json").read_text())


@pytest.fixture(scope="module")
def train(data: Path) -> Rows:
    return read(data / "agent/train.csv")


@pytest.fixture(scope="module")
def true(data: Path) -> dict[str, dict[str, str]]:
    return {row["message_id"]: row for row in read(data / "key/train_true_labels.csv")}


@pytest.fixture(scope="module")
def holdout(data: Path) -> Rows:
    return read(data / "holdout/features.csv")


@pytest.fixture(scope="module")
def key(data: Path) -> dict[str, int]:
    return {row["message_id"]: int(row["label"]) for row in read(data / "key/labels.csv")}


def test_the_bytes_are_those_pinned(card: dict) -> None:
    assert card["sha256"] == pins("0.02")


@pytest.mark.soak
def test_the_bytes_of_the_full_set_are_those_pinned(tmp_path: Path) -> None:
    card = generate(tmp_path)
    assert card["sha256"] == pins("1")
    assert (card["train"]["rows"], card["holdout"]["rows"]) == (208_000, 50_000)
    assert card["train"]["near_duplicates"] == 8_000
    assert abs(card["train"]["moderator_flagged_phi"] - 0.97) <= 0.005
    # The largest child so far, in KiB.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1.5 * 2**20


def test_the_default_seed_is_the_tasks(card: dict) -> None:
    assert card["seed"] == tomllib.loads((TASK / "task.toml").read_text())["data"]["seed"]


def test_another_seed_makes_other_messages_of_the_same_make_up(
    tmp_path: Path, data: Path, card: dict
) -> None:
    other = generate(tmp_path, "--scale", "0.02", "--seed", "7")
    assert not set(other["sha256"].values()) & set(card["sha256"].values())
    for exact in ("rows", "near_duplicates", "spam_recorded", "spam_true", "labels_flipped"):
        assert other["train"][exact] == card["train"][exact]
    assert other["train"]["moderator_flagged_phi"] == card["train"]["moderator_flagged_phi"]


@pytest.mark.parametrize("scale", ["0", "2", "-1", "x"])
def test_a_scale_that_makes_no_sense_is_refused(tmp_path: Path, scale: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        generate(tmp_path, "--scale", scale)
    assert refused.value.returncode == 2
    assert b"--scale" in refused.value.stderr
    assert not list(tmp_path.iterdir())


def test_rows_and_columns(train: Rows, holdout: Rows, true: dict, key: dict) -> None:
    assert list(train[0]) == COLUMNS
    assert list(holdout[0]) == COLUMNS[:-1]
    assert (len(train), len(holdout)) == (TRAIN, HOLDOUT)
    assert [row["message_id"] for row in train] == list(true)
    assert [row["message_id"] for row in holdout] == list(key)


def test_ids_are_unique_over_both_files(train: Rows, holdout: Rows) -> None:
    assert len({row["message_id"] for row in train + holdout}) == TRAIN + HOLDOUT


def test_the_holdout_is_later_than_all_of_the_training_file(train: Rows, holdout: Rows) -> None:
    times = [row["received_at"] for row in train]
    later = [row["received_at"] for row in holdout]
    assert max(times) < min(later)
    assert times == sorted(times)
    assert later == sorted(later)


def test_rates_of_the_training_labels(train: Rows, true: dict, card: dict) -> None:
    # Exact by construction, so off by the rounding to whole rows only.
    recorded = sum(row["label"] == "1" for row in train)
    assert recorded == round(0.18 * TRAIN)
    flipped = [row for row in train if row["label"] != true[row["message_id"]]["label"]]
    assert len(flipped) == round(0.03 * TRAIN)
    spam = sum(row["label"] == "1" for row in true.values())
    by_class = Counter(true[row["message_id"]]["label"] for row in flipped)
    assert abs(by_class["1"] / spam - 0.03) <= 1 / spam
    assert abs(by_class["0"] / (TRAIN - spam) - 0.03) <= 1 / spam
    assert card["train"]["spam_recorded"] == round(recorded / TRAIN, 6)
    assert card["train"]["labels_flipped"] == round(len(flipped) / TRAIN, 6)
    assert card["train"]["spam_true"] == round(spam / TRAIN, 6)


def test_flags_follow_the_recorded_label_in_training_only(
    train: Rows, true: dict, holdout: Rows, card: dict
) -> None:
    flags = [int(row["moderator_flagged"]) for row in train]
    recorded = [int(row["label"]) for row in train]
    measured = phi(flags, recorded)
    assert abs(measured - 0.97) <= 0.005
    assert card["train"]["moderator_flagged_phi"] == pytest.approx(measured, abs=1e-6)
    # The recorded label, not the true one: 3 % of flips keep that near 0.87.
    assert phi(flags, [int(true[row["message_id"]]["label"]) for row in train]) < 0.9
    assert {row["moderator_flagged"] for row in holdout} == {"0"}


def test_near_duplicates_differ_a_little_from_their_originals(
    train: Rows, true: dict, card: dict
) -> None:
    by_id = {row["message_id"]: row for row in train}
    copies = [(by_id[i], by_id[t["duplicate_of"]]) for i, t in true.items() if t["duplicate_of"]]
    assert len(copies) == DUPLICATES == card["train"]["near_duplicates"]
    for copy, original in copies:
        assert copy["body"] != original["body"]
        assert copy["subject"] == original["subject"]
        words, others = copy["body"].lower().split(), original["body"].lower().split()
        shared = (Counter(words) & Counter(others)).total()
        assert shared >= max(len(words), len(others)) * 0.6
        assert true[copy["message_id"]]["label"] == true[original["message_id"]]["label"]


def test_spam_in_the_holdout(key: dict, card: dict) -> None:
    assert sum(key.values()) == 0.165 * HOLDOUT
    assert card["holdout"]["spam_true"] == 0.165


@pytest.mark.parametrize(
    ("defect", "share"),
    [
        ("mojibake", 0.049),
        ("html_entities", 0.06),
        ("subject_empty", 0.004),
        ("domain_age_missing", 0.02),
    ],
)
def test_defects_are_as_frequent_as_meant(card: dict, defect: str, share: float) -> None:
    for part, rows in (("train", TRAIN), ("holdout", HOLDOUT)):
        # Drawn row by row: five standard deviations.
        assert abs(card[part][defect] - share) <= 5 * math.sqrt(share * (1 - share) / rows)


def test_defects_say_nothing_about_the_class(train: Rows, true: dict) -> None:
    spoilt = [int("â€" in row["body"] or "Â£" in row["body"]) for row in train]
    labels = [int(true[row["message_id"]]["label"]) for row in train]
    assert abs(phi(spoilt, labels)) < 5 / math.sqrt(TRAIN)


def test_no_column_of_the_holdout_gives_the_label_away(holdout: Rows, key: dict) -> None:
    labels = [key[row["message_id"]] for row in holdout]
    for column in COLUMNS[5:9]:
        values = [int(row[column] or -1) for row in holdout]
        assert best_threshold_f1(values, labels) < 0.6, column
    hours = [int(row["received_at"][11:13]) for row in holdout]
    assert best_threshold_f1(hours, labels) < 0.5
    # Neither does the id nor the place in the file: the classes' mean ranks differ by luck only.
    by_id = sorted(range(HOLDOUT), key=lambda i: holdout[i]["message_id"])
    for order in (by_id, range(HOLDOUT)):
        ranks = [rank for rank, i in enumerate(order) if labels[i]]
        off = sum(ranks) / len(ranks) - (HOLDOUT - 1) / 2
        assert abs(off) < 5 * HOLDOUT / math.sqrt(12 * len(ranks))


def test_the_same_check_finds_a_column_that_does(train: Rows) -> None:
    labels = [int(row["label"]) for row in train]
    assert best_threshold_f1([int(row["moderator_flagged"]) for row in train], labels) > 0.95


def test_both_classes_use_the_same_words(train: Rows, true: dict) -> None:
    words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for row in train:
        words[int(true[row["message_id"]]["label"])].update(set(row["body"].lower().split()))
    spam = sum(row["label"] == "1" for row in true.values())
    frequent = [word for word, n in words[1].items() if n >= spam / 50]
    assert len(frequent) > 100
    assert all(words[0][word] > 0 for word in frequent)


def test_the_excerpt_is_ten_lines_of_the_training_file(data: Path) -> None:
    lines = (data / "agent/train.csv").read_text(encoding="utf-8").splitlines()
    excerpt = (data / "agent/excerpt.csv").read_text(encoding="utf-8").splitlines()
    assert len(excerpt) == 11
    assert excerpt[0] == lines[0]
    assert set(excerpt) <= set(lines)
    assert len(lines) == TRAIN + 1
    assert {line[-1] for line in excerpt[1:]} == {"0", "1"}


def phi(left: list[int], right: list[int]) -> float:
    n, a, b = len(left), sum(left), sum(right)
    both = sum(x & y for x, y in zip(left, right, strict=True))
    return (n * both - a * b) / math.sqrt(a * b * (n - a) * (n - b))


def best_threshold_f1(values: list[int], labels: list[int]) -> float:
    """F1 of the best rule `value >= t` or `value < t`."""
    best = 0.0
    for cut in set(values):
        for above in (True, False):
            guesses = [(value >= cut) is above for value in values]
            hits = sum(guess and label for guess, label in zip(guesses, labels, strict=True))
            best = max(best, 2 * hits / (sum(guesses) + sum(labels)))
    return best
