"""What a submission can't see or reach while it is scored; each also with its barrier lifted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scoring_lab import GOOD, KEY_MARK, PREDICT, TRAIN, lab

from orchestrator.records.failures import FailureClass as C
from orchestrator.scoring.runtime import content_volume

SEARCH = f"""
import os, sys
mark = bytes.fromhex("{KEY_MARK.encode().hex()}")
found = []
for folder, folders, names in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys")]
    for name in names:
        path = os.path.join(folder, name)
        if name == "key.csv":
            found.append(path)
        try:
            if os.path.isfile(path) and mark in open(path, "rb").read():
                found.append(path)
        except OSError:
            pass
for name in ("environ", "cmdline", "mountinfo"):
    if mark in open("/proc/self/" + name, "rb").read():
        found.append("/proc/self/" + name)
if found:
    sys.exit("FOUND " + " ".join(found))
"""

HOLDOUT = """
import os, sys
inside = os.listdir("/in")
if inside:
    sys.exit("SEEN " + " ".join(inside))
"""


@pytest.fixture
def bench(engine, tmp_path):
    return lab(engine, tmp_path).without_probe()


def both(code: str) -> dict[str, bytes]:
    """The good submission with `code` before its training and before its predicting."""
    return {"train.py": (code + TRAIN).encode(), "predict.py": (code + PREDICT).encode()}


def test_the_key_is_nowhere_in_the_containers(bench):
    record = bench.score(both(SEARCH))
    assert record.failure is None, record.failure
    assert record.score == 1.0


def test_a_key_that_were_there_would_be_found(engine, bench):
    leaky = content_volume(
        engine,
        bench.bench.tools.id,
        "data",
        {"train.csv": bench.holdout.key.with_name("train.csv"), "key.csv": bench.holdout.key},
    )
    record = replace(bench, bench=replace(bench.bench, data=leaky)).score(both(SEARCH))
    assert record.failure.failure_class is C.RUNTIME_ERROR
    assert "FOUND /data/key.csv" in record.failure.sentence
    engine.remove_volume(leaky.name)


def test_the_holdout_is_not_there_while_training(bench):
    record = bench.score(GOOD | {"train.py": (HOLDOUT + TRAIN).encode()})
    assert record.failure is None, record.failure


def test_while_predicting_it_is(bench):
    record = bench.predicting(HOLDOUT)
    assert "SEEN features.csv" in record.failure.sentence


def test_a_step_runs_as_told(bench):
    code = (
        "import os, tempfile\n"
        "assert os.getuid() == 10001, os.getuid()\n"
        "assert os.getcwd() == '/workspace'\n"
        "home = os.path.expanduser('~')\n"
        "open(home + '/x', 'w').close(); open(os.environ['MPLCONFIGDIR'] + '/x', 'w').close()\n"
        "tempfile.mkstemp()\n"
        "for place in ('/data/x', '/in/x', '/env/x', '/x', '/opt/x'):\n"
        "    try:\n"
        "        open(place, 'w')\n"
        "    except OSError:\n"
        "        continue\n"
        "    raise SystemExit('WROTE ' + place)\n"
    )
    record = bench.predicting(code + PREDICT)
    assert record.failure is None, record.failure


def test_what_a_step_leaves_is_seen_by_the_next_and_by_nobody_else(bench):
    first = bench.score(GOOD)
    assert first.score == 1.0
    # The model of the first score would do here, if anything of it were left.
    second = bench.score({"train.py": b"", "predict.py": PREDICT.encode()})
    assert "words.json" in second.failure.sentence
