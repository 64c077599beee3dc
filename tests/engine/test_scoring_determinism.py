"""Submissions that seed nothing score the same twice; lift the seeding and they do not."""

from __future__ import annotations

import pytest
from scoring_lab import lab

from orchestrator.sandbox.limits import Limits
from orchestrator.scoring import steps
from orchestrator.scoring.runtime import submission_env

TRAIN = """
import csv, random, sys
import joblib, numpy as np
from sklearn.ensemble import RandomForestClassifier
rows = list(csv.DictReader(open(sys.argv[2], newline="")))
x = np.random.default_rng().normal(size=(len(rows), 4)) + np.random.rand()
y = [int(row["label"]) for row in rows]
words = {word for row in rows for word in row["body"].split()}
joblib.dump((RandomForestClassifier(20, n_jobs=2).fit(x, y), list(words)), "model.joblib")
"""
PREDICT = """
import csv, random, sys
import joblib, numpy as np
model, words = joblib.load("model.joblib")
with open(sys.argv[4], "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(["id", "label"])
    for row in csv.DictReader(open(sys.argv[2], newline="")):
        score = model.predict_proba(np.random.default_rng().normal(size=(1, 4)))[0, 1]
        score += random.random() + np.random.rand() + len(words[0])
        writer.writerow([row["id"], int(score * 997 % 1 < 0.5)])
"""
FILES = {
    "train.py": TRAIN.encode(),
    "predict.py": PREDICT.encode(),
    "requirements.txt": b"scikit-learn\n",
}


@pytest.fixture(scope="module")
def bench(engine, tmp_path_factory):
    limits = Limits(memory_mb=1024, cpus=2.0, pids=64, wall_s=120, output_mb=2)
    return lab(engine, tmp_path_factory.mktemp("determinism"), limits).without_probe()


def hash_of(bench) -> str:
    record = bench.score(FILES)
    assert record.failure is None, record.failure
    return record.predictions_sha256


def test_unseeded_submissions_score_the_same_until_the_seed_is_lifted(bench, monkeypatch):
    first = hash_of(bench)
    assert hash_of(bench) == first
    monkeypatch.setattr(
        steps, "submission_env", lambda *given: submission_env(*given) | {"ORCH_SEED": ""}
    )
    assert hash_of(bench) != first
