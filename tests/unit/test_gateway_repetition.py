"""The rule on endless repetition: what it notices, and real texts that it must let pass."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.gateway.server.repetition import (
    LOOK_EVERY,
    MAX_UNIT,
    MIN_CHARS,
    Repetition,
    Watch,
    repetition,
)

ROOT = Path(__file__).parents[2]


def noticed(text: str, size: int = 5) -> tuple[int, Repetition] | None:
    """Characters read until it was noticed, and what; fed in pieces of `size` characters."""
    watch = Watch()
    for start in range(0, len(text), size):
        if found := watch.add(text[start : start + size]):
            return start + size, found
    return None


SENTENCE = "Wait, but maybe I should check the spec again. "
PARAGRAPH = "".join(f"Step {n}: read column {n} and then decide. " for n in range(40))

LOOPS = {
    "one character": "!",
    "a word": "the ",
    "a line": "    return None\n",
    "a sentence": SENTENCE,
    "chinese": "好的，让我再想想。",
    "emoji": "🙂🙃",
    "newlines": "\n",
    "a whole file": "### FILE: a.py\n````\n" + PARAGRAPH + "\n````\n",
    "the longest unit": "".join(chr(0x4E00 + n) for n in range(MAX_UNIT)),
}


@pytest.mark.parametrize("unit", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("before", ["", "import os\n\n\ndef main():\n    pass\n", PARAGRAPH * 3])
def test_an_endless_loop_is_noticed_soon(unit: str, before: str) -> None:
    text = before + unit * (60_000 // len(unit))
    found = noticed(text)
    assert found is not None
    read, what = found
    needed = max(MIN_CHARS, 5 * len(unit))
    assert read <= len(before) + needed + LOOK_EVERY + 5
    assert sorted(what.unit) == sorted(unit)
    assert what.times >= 5
    assert len(what.sentence) < 400


def test_the_unit_is_the_smallest() -> None:
    found = repetition("ab" * 10_000)
    assert found is not None
    assert sorted(found.unit) == ["a", "b"]


def test_a_unit_that_almost_repeats_inside_itself() -> None:
    unit = "x" * 500 + "y" + "x" * 500 + "z"
    found = repetition(unit * 20)
    assert found is not None
    assert len(found.unit) == len(unit)


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_pieces_of_any_size(size: int) -> None:
    assert noticed("so " * 20_000, size) is not None


def csv_rows(dice: random.Random) -> str:
    rows = (f"{n},{dice.random():.4f},0,0,0,,\n" for n in range(4000))
    return "id,value,a,b,c,d,e\n" + "".join(rows)


def harmless() -> dict[str, str]:
    dice = random.Random(5)
    sources = [path for path in sorted(ROOT.rglob("*.py")) if ".venv" not in path.parts]
    tables = "".join(f"| {n:4d} | {'ok':10} | {'-':>8} |\n" for n in range(1500))
    return {
        "python": "".join(path.read_text(encoding="utf-8") for path in sources),
        "documents": (ROOT / "README.md").read_text() + (ROOT / "ARCHITECTURE.md").read_text(),
        "rules": "\n".join(f"# {'-' * 300}\n# part {n}\n{'=' * 200}" for n in range(80)),
        "a long rule": "=" * 4000 + "\nThe end\n" + "-" * 4000,
        "a table": "| id | state | note |\n|---|---|---|\n" + tables,
        "csv": csv_rows(dice),
        "equal rows": "1,0,0,0,0,0,0\n" * 500,
        "zeros": "[" + "0, " * 2500 + "0]",
        "identity matrix": "\n".join(
            "[" + ", ".join("1" if a == b else "0" for b in range(120)) + "]," for a in range(120)
        ),
        "numbered list": "".join(f"{n}. Check the value of the column.\n" for n in range(2000)),
        "json": json.dumps([{"id": n, "on": True, "tags": []} for n in range(2000)], indent=1),
        "hex": dice.randbytes(20_000).hex(),
        "unrolled": "".join(f"    assert f({n}) == {n * n}\n" for n in range(1500)),
        "imports": "from a import b\n" * 400,
        "blank": "\n" * 3000 + "x = 1\n" + " " * 8000 + "y = 2\n",
        "a file four times": ("### FILE: a.py\n" + PARAGRAPH) * 4,
    }


@pytest.mark.parametrize("text", harmless().values(), ids=harmless())
def test_code_tables_lists_and_data_pass(text: str) -> None:
    assert noticed(text, 9) is None


def test_memory_is_bounded() -> None:
    watch = Watch()
    dice = random.Random(3)
    pieces = [dice.randbytes(6).hex() for _ in range(1000)]
    tracemalloc.start()
    for _ in range(300):
        for piece in pieces:
            watch.add(piece[: dice.randint(3, 12)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
