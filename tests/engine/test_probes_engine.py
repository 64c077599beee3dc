"""Probes of real submissions in real containers: what they find, and what they never cost."""

from __future__ import annotations

import pytest
from scoring_lab import PREDICT, lab

from orchestrator.records.failures import FailureClass as C
from orchestrator.sandbox import volume
from orchestrator.scoring import probes
from orchestrator.scoring.twin import Twin

USES = PREDICT.replace('int(bool(words & set(row["body"].split())))', 'row["flag"]')


@pytest.fixture(scope="module")
def bench(engine, tmp_path_factory):
    return lab(engine, tmp_path_factory.mktemp("probes"))


@pytest.fixture(scope="module", autouse=True)
def nothing_stays(engine, bench):
    yield
    assert engine.owned(bench.bench.owner.trial) == []


def test_use_of_the_column_shows_and_a_crash_without_it_fails_nothing(bench):
    record = bench.predicting(USES)
    assert record.failure is None
    assert (record.score, record.leak.verdict) == (0.0, "used")
    by_kind = {one.kind: one for one in record.leak.alterations}
    assert list(by_kind) == ["set", "shuffled", "dropped", "repeated"]
    assert len(record.leak.alterations) == 5
    assert (by_kind["set"].changed, by_kind["shuffled"].changed) == (1.0, 0.5)
    assert (by_kind["shuffled"].touched, by_kind["shuffled"].changed_touched) == (0.5, 1.0)
    assert by_kind["repeated"].changed == 0.0
    assert by_kind["dropped"].failure.failure_class is C.INPUT_SCHEMA
    assert "lacks: 'flag'" in by_kind["dropped"].failure.sentence
    assert 0 < record.probes_s < record.duration_s
    assert [step.name for step in record.steps] == ["train", "predict"]


def test_a_column_that_is_listed_and_ignored_is_not_used(bench):
    record = bench.predicting(f"COLUMNS = ['flag']\n{PREDICT}", DECISIONS__md="We use flag.")
    assert record.leak.verdict == "declared-not-used"
    # Nothing changed, so nothing had to be repeated.
    assert [one.changed for one in record.leak.alterations] == [0.0, 0.0, 0.0]
    (plan,) = (claim for claim in record.claims if claim.topic == "plan")
    assert (plan.column, plan.answer) == ("flag", "used")


KEEPING = (
    "import os, shutil, sys\n"
    "for kept in ('kept.csv', '/tmp/kept.csv', '/dev/shm/kept.csv'):\n"
    "    if os.path.exists(kept):\n        shutil.copy(kept, sys.argv[4])\n        sys.exit()\n"
    + USES
    + "out.close()\n"
    "for kept in ('kept.csv', '/tmp/kept.csv', '/dev/shm/kept.csv'):\n"
    "    shutil.copy(sys.argv[4], kept)\n"
)


def test_what_one_prediction_keeps_is_not_there_for_another(bench, monkeypatch):
    record = bench.predicting(KEEPING)
    assert record.leak.verdict == "used"
    assert [one.changed for one in record.leak.alterations] == [1.0, 0.5, None, 0.0, 0.0]

    def in_one_workplace(twin, number, step, inputs, columns):
        twin._place._outputs = iter(["output0"])
        return twin._place.run(step, inputs, columns)

    # The answers that were kept would hide it.
    monkeypatch.setattr(Twin, "run", in_one_workplace)
    assert bench.predicting(KEEPING).leak.verdict == "declared-not-used"


def test_a_probe_that_crashes_or_meets_a_limit_leaves_the_score(bench, monkeypatch):
    greedy = "        if row['flag'] == '1': x = bytearray(1 << 29); x[:] = b'1' * len(x)\n"
    hanging = "        if 'flag' not in row: import time; time.sleep(900)\n"
    code = PREDICT.replace("        writer", f"{hanging}{greedy}        writer")
    monkeypatch.setattr(probes, "LEAST_WALL_S", 5.0)
    record = bench.predicting(code)
    assert (record.score, record.failure) == (1.0, None)
    assert record.leak.verdict == "unclear"
    assert [one.failure.failure_class for one in record.leak.alterations] == [
        C.OUT_OF_MEMORY,
        C.OUT_OF_MEMORY,
        C.TIMEOUT,
    ]
    assert "with flag set to 1, out-of-memory" in record.leak.evidence


def test_predictions_that_differ_by_themselves_are_no_use(bench):
    record = bench.predicting(
        PREDICT.replace('int(bool(words & set(row["body"].split())))', "os.urandom(1)[0] & 1")
        .replace("import argparse", "import os, argparse")
    )  # fmt: skip
    assert record.leak.verdict == "unclear"
    assert record.leak.alterations[-1].kind == "repeated"


def test_a_failure_of_ours_while_probing_leaves_the_score(bench, monkeypatch):
    seen = probes.altered

    def losing_the_holder(content, column):
        for owned in bench.bench.engine.owned(bench.bench.owner.trial):
            if owned.owner.role == "hold-twin":
                bench.bench.engine.remove_container(owned.name)
        return seen(content, column)

    monkeypatch.setattr(probes, "altered", losing_the_holder)
    record = bench.predicting(USES.replace('row["flag"]', "1"))
    assert record.failure is None
    assert record.score > 0
    assert record.leak.verdict == "unclear"
    assert {one.failure.failure_class for one in record.leak.alterations} == {C.SCORER_ERROR}


def test_a_workspace_that_takes_too_long_to_copy_leaves_the_score(bench, monkeypatch):
    monkeypatch.setattr(volume, "COPY_S", 0.001)
    record = bench.predicting(PREDICT)
    assert (record.score, record.failure) == (1.0, None)
    assert record.leak.verdict == "unclear"
    assert "took longer than 0.001 s to copy" in record.leak.evidence
