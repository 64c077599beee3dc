"""Submissions that seed nothing score the same twice; lift the seeding and they do not."""

from __future__ import annotations

import pytest
from scoring_lab import lab

from orchestrator.sandbox.limits import Limits
from orchestrator.scoring import steps
from orchestrator.scoring.repeats import with_spread
from orchestrator.scoring.runtime import submission_env
from orchestrator.scoring.steps import Workplace, environment_of
from orchestrator.task import Step

TRAIN = """
import csv, os, random, subprocess, sys
import joblib, numpy as np
# A program with start-up files of its own must draw the same as well.
own = os.environ | {"PYTHONPATH": "/workspace"}
drawn = subprocess.run([sys.executable, "draw.py"], env=own, stdout=-1, check=True).stdout
from sklearn.ensemble import RandomForestClassifier
rows = list(csv.DictReader(open(sys.argv[2], newline="")))
x = np.random.default_rng().normal(size=(len(rows), 4)) + np.random.rand()
y = [int(row["label"]) for row in rows]
words = {word for row in rows for word in row["body"].split()}
forest = RandomForestClassifier(20, n_jobs=2).fit(x + float(drawn), y)
joblib.dump((forest, list(words)), "model.joblib")
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
    "draw.py": b"import mine, random; assert mine.ran; print(random.random())",
    "mine.py": b"ran = False",
    "sitecustomize.py": b"import mine; mine.ran = True",
    "usercustomize.py": b"raise SystemExit('shadowed')",
    "orch_seed.py": b"raise SystemExit('shadowed')",
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
    record = with_spread(bench.score(FILES), 5, lambda: bench.score(FILES))
    assert record.failure is None, record.failure
    assert record.spread.predictions_sha256 == [record.predictions_sha256] * 5
    monkeypatch.setattr(
        steps, "submission_env", lambda *given: submission_env(*given) | {"ORCH_SEED": ""}
    )
    assert hash_of(bench) != record.predictions_sha256


STARTS = """
import os, subprocess, sys
def draws(*flags, **env):
    code = "import random; print(random.random())"
    command = (sys.executable, *flags, "-c", code)
    return {subprocess.run(command, env=env, stdout=-1).stdout for _ in range(2)}
same = draws(**os.environ)
assert len(same) == 1
assert draws("-I", **os.environ) == draws("-E", **os.environ) == same
assert len(draws()) == 1
assert len(draws("-S", **os.environ)) == 2
print("as documented")
"""


def test_which_starts_of_the_interpreter_are_seeded(bench):
    with Workplace(bench.bench, {}, environment_of(bench.bench, {}), outputs=0) as place:
        step = Step(name="predict", command=("python", "-c", STARTS))
        record = place.run(step, None, None).record
    assert record.stdout.text == "as documented\n", record.stderr.text
