"""The holdout with one column altered: what a submission predicts again on, to see if it uses it.

Pure, and the same for every submission, so that each altered holdout is laid into a volume once.
"""

from __future__ import annotations

import csv
import hashlib
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.records.schema import AlterationKind

SET = "1"
OTHER = "0"
"""What a column is set to that holds SET throughout."""


@dataclass(frozen=True)
class Altered:
    """A CSV file's bytes with a column altered; `note` says how, in words that name the column.

    `touched` are the places of the rows whose value is another one, `share` is what they are of
    all; None where nothing was put in its place.
    """

    kind: AlterationKind
    content: bytes
    note: str
    touched: tuple[int, ...] = ()
    share: float | None = None


def altered(content: bytes, column: str) -> list[Altered]:
    """A CSV file of ours with `column` set throughout, shuffled, and dropped; all else as it was.

    A column that the file does not hold is added at the end, and there is nothing to drop.
    """
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    added = column not in header
    if added:
        header, rows = [*header, column], [[*row, OTHER] for row in rows]
    place = header.index(column)
    values = [row[place] for row in rows]
    value = OTHER if all(_equal(held, SET) for held in values) else SET
    shuffled, how = _shuffled(values, value, column)
    what = f"{column} added and" if added else column

    def put(kind: AlterationKind, now: Sequence[str], how: str) -> Altered:
        touched = tuple(
            n for n, (old, new) in enumerate(zip(values, now, strict=True)) if not _equal(old, new)
        )
        content = _with(header, rows, place, now)
        return Altered(kind, content, f"{what} {how}", touched, len(touched) / len(rows))

    made = [
        put("set", [value] * len(rows), f"set to {value}"),
        put("shuffled", shuffled, how),
    ]
    if not added:
        made.append(Altered("dropped", _without(header, rows, place), f"{column} dropped"))
    return made


def _shuffled(values: Sequence[str], value: str, column: str) -> tuple[list[str], str]:
    """The values in another order, and how. Of one value throughout half are set first: a program
    that scales a column by its own spread sees no difference in a column that has none."""
    # By the column alone: each submission is asked the same.
    draw = random.Random(hashlib.sha256(column.encode()).digest())  # noqa: S311
    shuffled = list(values)
    how = "shuffled"
    if len(set(values)) == 1:
        shuffled[: max(1, len(values) // 2)] = [value] * max(1, len(values) // 2)
        how = f"set to {value} in a random half of the rows"
    draw.shuffle(shuffled)
    return shuffled, how


def _equal(held: str, value: str) -> bool:
    try:
        return held == value or float(held) == float(value)
    except ValueError:
        return False


def _with(header: list[str], rows: list[list[str]], place: int, values: Sequence[str]) -> bytes:
    changed = (
        [*row[:place], value, *row[place + 1 :]] for row, value in zip(rows, values, strict=True)
    )
    return _written([header, *changed])


def _without(header: list[str], rows: list[list[str]], place: int) -> bytes:
    return _written([[*row[:place], *row[place + 1 :]] for row in (header, *rows)])


def _written(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()
