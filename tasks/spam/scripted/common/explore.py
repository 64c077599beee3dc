"""Look at the training file: python explore.py --data PATH. Standard library only."""

import argparse
import csv
import math
import re
from collections import Counter, defaultdict

NUMBERS = (
    "sender_domain_age_days",
    "link_count",
    "attachment_count",
    "reply_count",
    "moderator_flagged",
)
WORD = re.compile(r"[a-z]{3,}")
MOJIBAKE = re.compile("Ã.|Â.|â€")
ENTITY = re.compile(r"&#?\w+;")


def correlation(xs, ys):
    n, mx, my = len(xs), sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / n
    vx = sum((x - mx) ** 2 for x in xs) / n
    vy = sum((y - my) ** 2 for y in ys) / n
    return covariance / math.sqrt(vx * vy) if vx and vy else 0.0


def quantiles(values):
    values = sorted(values)
    return [values[int(q * (len(values) - 1))] for q in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    with open(parser.parse_args().data, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = [int(row["label"]) for row in rows]
    print(f"rows {len(rows)}, columns {', '.join(rows[0])}")
    print(f"spam as recorded: {sum(labels) / len(rows):.4f}")
    times = [row["received_at"] for row in rows]
    print(f"received {min(times)} to {max(times)}, sorted: {times == sorted(times)}")
    print(f"distinct message_id: {len({row['message_id'] for row in rows})}")

    print("\nempty cells")
    for name in rows[0]:
        empty = sum(not row[name] for row in rows)
        if empty:
            print(f"  {name}: {empty} ({empty / len(rows):.4f})")

    print("\nspam share by month")
    months = defaultdict(list)
    for row, label in zip(rows, labels, strict=True):
        months[row["received_at"][:7]].append(label)
    for month, group in sorted(months.items()):
        print(f"  {month}: {len(group)} rows, {sum(group) / len(group):.4f}")

    print("\nnumbers: correlation with label; quantiles 0 10 25 50 75 90 100 of ham and of spam")
    for name in NUMBERS:
        pairs = [(int(r[name]), y) for r, y in zip(rows, labels, strict=True) if r[name]]
        print(f"  {name}: {correlation(*zip(*pairs, strict=True)):+.4f}")
        for side in (0, 1):
            print(f"    {('ham ', 'spam')[side]} {quantiles([x for x, y in pairs if y == side])}")

    print("\ntext")
    lengths = [len(row["body"].split()) for row in rows]
    print(f"  words in body: {quantiles(lengths)}")
    texts = [f"{row['subject']} {row['body']}" for row in rows]
    for name, pattern in (("mojibake", MOJIBAKE), ("HTML entities", ENTITY)):
        share = sum(pattern.search(text) is not None for text in texts) / len(rows)
        print(f"  with {name}: {share:.4f}")

    print("\nmessages alike (same sender, subject and first words)")
    first, pairs, apart = {}, 0, 0
    for row, label in zip(rows, labels, strict=True):
        key = row["sender"], row["subject"], row["body"][:12].lower()
        if key in first:
            pairs += 1
            apart += first[key] != label
        first.setdefault(key, label)
    print(f"  repeats: {pairs}, of which with another label than the first: {apart}")

    counts = (Counter(), Counter())
    for text, label in zip(texts, labels, strict=True):
        counts[label].update(set(WORD.findall(text.lower())))
    spam = sum(labels)
    frequent = [word for word, n in (counts[0] + counts[1]).items() if n >= len(rows) / 1000]
    ratio = {
        word: ((counts[1][word] + 1) / spam) / ((counts[0][word] + 1) / (len(rows) - spam))
        for word in frequent
    }
    ordered = sorted(ratio, key=ratio.get)
    print("\nwords most typical of spam: " + " ".join(ordered[:-31:-1]))
    print("words most typical of ham: " + " ".join(ordered[:30]))


if __name__ == "__main__":
    main()
