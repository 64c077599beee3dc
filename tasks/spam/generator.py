"""Generate the data of the spam task: training file, excerpt, holdout, keys, data card.

    python generator.py --out DIR [--seed N] [--scale F]

The same seed and scale give the same bytes on every Python from 3.11 on and on every CPU (see
messages.py). README.md says what the files hold and why.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import datacard
from messages import DAY, HAM, SPAM, START, Chance, Difficulty, Message, Writer

DEFAULT_SEED = 5
TRAIN_DAYS, HOLDOUT_DAYS = 238, 61
COLUMNS = (
    "message_id", "received_at", "subject", "body", "sender", "sender_domain_age_days",
    "link_count", "attachment_count", "reply_count", "moderator_flagged", "label",
)  # fmt: skip
RECORDED_SPAM, FLIPPED = 0.18, 0.03
HOLDOUT_SPAM = 0.165
DUPLICATES_SPAM = 0.40
FLAG_PHI = 0.97
CALIBRATED = Difficulty()


@dataclass(frozen=True)
class Shape:
    """How many rows of each sort there are at a scale."""

    originals: int
    duplicates: int
    holdout: int

    @classmethod
    def at(cls, scale: float) -> Shape:
        return cls(round(200_000 * scale), round(8_000 * scale), round(50_000 * scale))

    @property
    def train(self) -> int:
        return self.originals + self.duplicates


@dataclass(frozen=True)
class Counts:
    """Exact numbers of the training file, so that its rates do not depend on luck."""

    recorded_spam: int
    flipped_to_ham: int
    flipped_to_spam: int

    @classmethod
    def of(cls, rows: int) -> Counts:
        flips = round(FLIPPED * rows)
        # True share t with t(1 - f) + (1 - t)f = recorded share: flips hit both classes alike.
        true_share = (RECORDED_SPAM - FLIPPED) / (1 - 2 * FLIPPED)
        to_ham = round(flips * true_share)
        return cls(round(RECORDED_SPAM * rows), to_ham, flips - to_ham)

    @property
    def true_spam(self) -> int:
        return self.recorded_spam + self.flipped_to_ham - self.flipped_to_spam


def near_duplicates(
    chance: Chance, originals: list[Message], count: int
) -> list[tuple[Message, int]]:
    """Messages sent again hours or days later with small edits, each with its original's index."""
    spam = round(count * DUPLICATES_SPAM)
    result = []
    for side, wanted in ((SPAM, spam), (HAM, count - spam)):
        of_side = chance.shuffled(i for i, m in enumerate(originals) if m.spam == side)
        sources = of_side[: (wanted * 3 + 3) // 4]
        sources += [chance.pick(sources) for _ in range(wanted - len(sources))]
        result += [(_sent_again(chance, originals[i]), i) for i in sources]
    return result


def _sent_again(chance: Chance, message: Message) -> Message:
    later = 60 + chance.below(3 * DAY)
    if message.at + later >= TRAIN_DAYS * DAY:
        later = -min(later, message.at)
    days = (message.at + later) // DAY - message.at // DAY
    body = message.body
    while body == message.body:
        for _ in range(1 + chance.below(3)):
            body = _edited(chance, body)
    return message._replace(
        at=message.at + later,
        body=body,
        age=None if message.age is None else max(0, message.age + days),
    )


def _edited(chance: Chance, text: str) -> str:
    """One small edit: a word dropped, doubled, moved or shouted, a figure or full stop changed."""
    words = text.split(" ")
    i, kind = chance.below(len(words)), chance.below(6)
    if kind == 0 and len(words) > 6:
        del words[i]
    elif kind == 1:
        words.insert(i, words[i])
    elif kind == 2 and i + 1 < len(words):
        words[i], words[i + 1] = words[i + 1], words[i]
    elif kind == 3:
        words[i] = words[i].upper()
    elif kind == 4:
        words = [w[:-1] + str(chance.below(10)) if w[-1:].isdigit() else w for w in words]
    elif words[-1].endswith("."):
        words[-1] = words[-1].rstrip(".")
    else:
        words[-1] += "!"
    return " ".join(words)


def chosen(chance: Chance, rows: list[int], count: int) -> set[int]:
    """`count` of `rows`, each as likely as any other."""
    return set(chance.shuffled(rows)[:count])


def recorded_labels(chance: Chance, truth: list[int], counts: Counts) -> list[int]:
    """The labels as recorded: the truth, with an exact number of each class flipped."""
    spam = [i for i, label in enumerate(truth) if label == SPAM]
    ham = [i for i, label in enumerate(truth) if label == HAM]
    flips = chosen(chance, spam, counts.flipped_to_ham)
    flips |= chosen(chance, ham, counts.flipped_to_spam)
    return [label ^ (i in flips) for i, label in enumerate(truth)]


def moderator_flags(chance: Chance, recorded: list[int]) -> list[int]:
    """Flags set after arrival, off from the recorded label as often on either side.

    With p the share of spam and m rows off on each side, phi = 1 - m / (rows * p * (1 - p)).
    """
    spam = [i for i, label in enumerate(recorded) if label == SPAM]
    ham = [i for i, label in enumerate(recorded) if label == HAM]
    off = round((1 - FLAG_PHI) * len(spam) * len(ham) / len(recorded))
    wrong = chosen(chance, spam, off) | chosen(chance, ham, off)
    return [label ^ (i in wrong) for i, label in enumerate(recorded)]


def message_id(seed: int, index: int) -> str:
    """Eight hexadecimal digits, different for every index, in no visible order."""
    return f"m{(index * 2_654_435_761 + seed * 40_503) % 2**32:08x}"


def received_at(message: Message) -> str:
    return (START + timedelta(seconds=message.at)).strftime("%Y-%m-%dT%H:%M:%SZ")


def features(identity: str, message: Message, flag: int) -> list[object]:
    """A row in the order of COLUMNS, without the label."""
    return [
        identity, received_at(message), message.subject, message.body, message.sender,
        "" if message.age is None else message.age, message.links, message.attachments,
        message.replies, flag,
    ]  # fmt: skip


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def write_excerpt(train: Path, excerpt: Path) -> None:
    """Header and ten rows of the training file: its first seven ham and three spam."""
    wanted = {"0": 7, "1": 3}
    with train.open(encoding="utf-8") as file:
        lines = [next(file)]
        for line in file:
            label = line.rstrip("\n").rsplit(",", 1)[1]
            if wanted[label]:
                wanted[label] -= 1
                lines.append(line)
            if not any(wanted.values()):
                break
    excerpt.write_text("".join(lines), encoding="utf-8", newline="")


def generate(
    out: Path, seed: int = DEFAULT_SEED, scale: float = 1.0, difficulty: Difficulty = CALIBRATED
) -> dict[str, object]:
    """Write all files below `out` and return the data card, which is also written there."""
    shape = Shape.at(scale)
    writer = Writer(seed, TRAIN_DAYS + HOLDOUT_DAYS, difficulty)
    _write_train(out, seed, shape, writer)
    write_excerpt(out / "agent/train.csv", out / "agent/excerpt.csv")
    _write_holdout(out, seed, shape, writer)
    return datacard.write(out, seed, scale)


def _write_train(out: Path, seed: int, shape: Shape, writer: Writer) -> None:
    counts = Counts.of(shape.train)
    spam = counts.true_spam - round(shape.duplicates * DUPLICATES_SPAM)
    originals = writer.batch(spam, shape.originals - spam, range(TRAIN_DAYS))
    again = near_duplicates(Chance(seed, "duplicates"), originals, shape.duplicates)

    messages = originals + [message for message, _ in again]
    order = sorted(range(len(messages)), key=lambda i: (messages[i].at, i))
    identity = {i: message_id(seed, place) for place, i in enumerate(order)}
    source = {len(originals) + k: identity[i] for k, (_, i) in enumerate(again)}
    truth = [messages[i].spam for i in order]
    recorded = recorded_labels(Chance(seed, "flips"), truth, counts)
    flags = moderator_flags(Chance(seed, "flags"), recorded)
    write_csv(
        out / "agent/train.csv",
        COLUMNS,
        (
            [*features(identity[i], messages[i], flag), label]
            for i, flag, label in zip(order, flags, recorded, strict=True)
        ),
    )
    write_csv(
        out / "key/train_true_labels.csv",
        ("message_id", "label", "duplicate_of"),
        ((identity[i], messages[i].spam, source.get(i, "")) for i in order),
    )


def _write_holdout(out: Path, seed: int, shape: Shape, writer: Writer) -> None:
    spam = round(shape.holdout * HOLDOUT_SPAM)
    days = range(TRAIN_DAYS, TRAIN_DAYS + HOLDOUT_DAYS)
    messages = sorted(writer.batch(spam, shape.holdout - spam, days), key=lambda m: m.at)
    # Ids go on where the training file's end.
    ids = [message_id(seed, shape.train + place) for place in range(len(messages))]
    write_csv(
        out / "holdout/features.csv",
        COLUMNS[:-1],
        (features(identity, message, 0) for identity, message in zip(ids, messages, strict=True)),
    )
    write_csv(
        out / "key/labels.csv",
        ("message_id", "label"),
        ((identity, message.spam) for identity, message in zip(ids, messages, strict=True)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the full set")
    args = parser.parse_args()
    if not 0.002 <= args.scale <= 1:
        parser.error("--scale must lie between 0.002 and 1")
    generate(args.out, args.seed, args.scale)


if __name__ == "__main__":
    main()
