"""A tiny task and a bench to score on, so that a test of scoring takes a second or two."""

from __future__ import annotations

import csv
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.records.schema import ScoreRecord
from orchestrator.sandbox import image
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.scoring.runtime import ScoringBench, content_volume
from orchestrator.scoring.score import Holdout, score_files
from orchestrator.task import Data, ExecuteStageSpec, LimitSets, PredictionsScorer, Step, Task

KEY_MARK = "key-7c41e0f5"
"""The key file holds it, nothing else does: what a search for the key's content looks for."""
OUTPUTS = 30
"""More steps with an output than any test runs in one workplace."""
LIMITS = Limits(memory_mb=256, cpus=1.0, pids=64, wall_s=60, tmp_mb=32, work_mb=32, output_mb=2)

TRAIN = """
import argparse, csv, json
ap = argparse.ArgumentParser(); ap.add_argument("--data"); a = ap.parse_args()
words = {}
for row in csv.DictReader(open(a.data, newline="")):
    for word in row["body"].split():
        words.setdefault(word, [0, 0])[int(row["label"])] += 1
json.dump(sorted(w for w, (n, y) in words.items() if y > n), open("words.json", "w"))
"""
PREDICT = """
import argparse, csv, json
ap = argparse.ArgumentParser()
ap.add_argument("--input"); ap.add_argument("--output"); a = ap.parse_args()
words = set(json.load(open("words.json")))
with open(a.output, "w", newline="") as out:
    writer = csv.writer(out); writer.writerow(["id", "label"])
    for row in csv.DictReader(open(a.input, newline="")):
        writer.writerow([row["id"], int(bool(words & set(row["body"].split())))])
"""
GOOD = {"train.py": TRAIN.encode(), "predict.py": PREDICT.encode()}


@dataclass(frozen=True)
class Lab:
    bench: ScoringBench
    holdout: Holdout

    def score(self, files: Mapping[str, bytes]) -> ScoreRecord:
        return score_files(self.bench, files, "tree", self.holdout)

    def without_probe(self) -> Lab:
        """The same task without a leaked column: each program predicts once."""
        return self.with_scorer(leaked_columns=())

    def with_scorer(self, **options: object) -> Lab:
        scorer = self.bench.task.scorer.model_copy(update=options)
        task = self.bench.task.model_copy(update={"scorer": scorer})
        return replace(self, bench=replace(self.bench, task=task))

    def predicting(self, code: str, **others: str) -> ScoreRecord:
        """The score of the good submission with another predict.py."""
        extra = {name.replace("__", "."): text.encode() for name, text in others.items()}
        return self.score(GOOD | {"predict.py": code.encode()} | extra)


@dataclass(frozen=True)
class Images:
    tools: Image
    builder: Image
    scorer: Image


def images(engine: Engine) -> Images:
    return Images(*(image.ensure(engine, name) for name in ("tools", "builder", "scorer")))


def task(limits: Limits = LIMITS) -> Task:
    train = Step(name="train", command=("python", "train.py", "--data", "{data}/train.csv"))
    predict = Step(
        name="predict",
        command=("python", "predict.py", "--input", "{input}", "--output", "{output}"),
        needs_input=True,
    )
    return Task(
        schema=1,
        name="tiny",
        title="Tiny",
        summary="Twelve messages.",
        data=Data(generator="none.py", seed=1),
        limits=LimitSets(execute=limits),
        stage=(ExecuteStageSpec(kind="execute", name="check", steps=(train, predict)),),
        scorer=PredictionsScorer(
            kind="predictions",
            train=train,
            predict=predict,
            id_column="id",
            label_column="label",
            leaked_columns=("flag",),
            estimate_file="EVALUATION.md",
            decisions_file="DECISIONS.md",
        ),
    )


def lab(engine: Engine, where: Path, limits: Limits = LIMITS) -> Lab:
    """Training data in a volume, holdout and key in `where`."""
    found = images(engine)
    bodies = ["cheap pills now", "lunch at noon", "win a prize", "see you there"]
    train = [["id", "body", "flag", "label"]]
    train += [[f"t{n}", bodies[n % 4], n % 2 ^ 1, n % 2 ^ 1] for n in range(40)]
    features = [["id", "body", "flag"]] + [[f"h{n}", bodies[n % 4], 0] for n in range(12)]
    key = [["id", "label", "note"]] + [[f"h{n}", n % 2 ^ 1, KEY_MARK] for n in range(12)]
    for name, rows in (("train", train), ("features", features), ("key", key)):
        with (where / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    data = {"train.csv": where / "train.csv"}
    bench = ScoringBench(
        engine=engine,
        tools=found.tools,
        builder=found.builder,
        scorer=found.scorer,
        owner=Owner(trial=f"test-{secrets.token_hex(5)}", run="run", role="score"),
        task=task(limits),
        data=content_volume(engine, found.tools.id, "data", data),
        seed=11,
        data_columns=frozenset(train[0]),
    )
    return Lab(bench, Holdout(features=where / "features.csv", key=where / "key.csv"))
