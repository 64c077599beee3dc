"""What one score costs beside the engine operations that it needs, and what grading costs.

A submission that does next to nothing is scored, and right before or after, the order turned about,
the engine is asked for the same by its bare API: two capped volumes and the container that keeps
them, the files laid in, for training and for predicting a fresh container each, its command, the
kernel's counters, its end and removal, and the output read. Figures are medians over such pairs.
Environment, data and holdout are there before anything is measured. `make bench` runs it.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shown import machine, table

from orchestrator.records.schema import Failure
from orchestrator.sandbox import archive, image
from orchestrator.sandbox.container import ContainerSpec, Mount, config
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.exec import COUNTERS, READER_USER
from orchestrator.sandbox.labels import Owner, new_name
from orchestrator.sandbox.limits import SANDBOX_UID, Limits
from orchestrator.sandbox.volume import HELPER_LIMITS
from orchestrator.scoring.grade import Verdict, grade
from orchestrator.scoring.runtime import (
    DATA,
    INPUT,
    OUTPUT,
    OUTPUT_NAME,
    WORKSPACE,
    ScoringBench,
    content_volume,
    input_volume,
    submission_env,
)
from orchestrator.scoring.score import Holdout, score_files
from orchestrator.scoring.steps import columns_of, environment_of, filled
from orchestrator.task import Data, ExecuteStageSpec, LimitSets, PredictionsScorer, Step, Task

ROWS = 50_000
RATIO = 1.5
GRADING_S = 1.0
FILES = {
    "train.py": b"open('model.txt', 'w').write('spam')\n",
    "predict.py": (
        b"import sys\n"
        b"lines = open(sys.argv[2]).read().splitlines()[1:]\n"
        b"rows = (line.split(',') for line in lines)\n"
        b"out = (f'{id},{int(body == \"spam\")}' for id, body in rows)\n"
        b"open(sys.argv[4], 'w').write('\\n'.join(['id,label', *out]) + '\\n')\n"
    ),
}
TRAIN = Step(name="train", command=("python", "train.py", "--data", "{data}/train.csv"))
PREDICT = Step(
    name="predict",
    command=("python", "predict.py", "--input", "{input}", "--output", "{output}"),
    needs_input=True,
)
COMMANDS = tuple(tuple(map(filled, step.command)) for step in (TRAIN, PREDICT))


@dataclass(frozen=True)
class Lab:
    bench: ScoringBench
    holdout: Holdout
    environment: Mount
    inputs: Mount

    @property
    def engine(self) -> Engine:
        return self.bench.engine


def task() -> Task:
    return Task(
        schema=1,
        name="bench",
        title="Bench",
        summary="As many rows as the spam task's holdout has.",
        data=Data(generator="none.py", seed=1),
        limits=LimitSets(execute=Limits(memory_mb=512, wall_s=60)),
        stage=(ExecuteStageSpec(kind="execute", name="check", steps=(TRAIN, PREDICT)),),
        scorer=PredictionsScorer(
            kind="predictions",
            train=TRAIN,
            predict=PREDICT,
            id_column="id",
            label_column="label",
            score_column="score",
        ),
    )


def lab(engine: Engine, where: Path) -> Lab:
    draw = random.Random(1)
    spam = [draw.random() < 0.2 for _ in range(ROWS)]
    ids = [f"m{number:06d}" for number in range(ROWS)]
    _write(where / "features.csv", [("id", "body"), *_said(ids, spam)])
    _write(
        where / "key.csv", [("id", "label"), *((i, int(s)) for i, s in zip(ids, spam, strict=True))]
    )
    tools, builder, scorer = (image.ensure(engine, n) for n in ("tools", "builder", "scorer"))
    bench = ScoringBench(
        engine=engine,
        tools=tools,
        builder=builder,
        scorer=scorer,
        owner=Owner(f"bench-{secrets.token_hex(4)}", role="score"),
        task=task(),
        data=content_volume(engine, tools.id, "data", {"train.csv": b"id,body,label\nt1,spam,1\n"}),
        seed=1,
    )
    environment = environment_of(bench, FILES)
    assert not isinstance(environment, Failure), environment.sentence
    inputs = input_volume(bench, where / "features.csv")
    holdout = Holdout(where / "features.csv", where / "key.csv")
    return Lab(bench, holdout, environment.mount, inputs.at(INPUT))


def _said(ids: Sequence[str], spam: Sequence[bool]) -> Iterator[tuple[str, str]]:
    for one, is_spam in zip(ids, spam, strict=True):
        yield one, "spam" if is_spam else "ham"


def _write(file: Path, rows: Sequence[tuple[object, ...]]) -> None:
    with file.open("w", newline="") as opened:
        csv.writer(opened, lineterminator="\n").writerows(rows)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def scored(lab: Lab) -> None:
    """By the product: a whole score."""
    record = score_files(lab.bench, FILES, "bench", lab.holdout)
    assert record.failure is None, record.failure.sentence
    assert record.score == 1.0


def bare(lab: Lab) -> None:
    """By the engine's API alone: what a score asks of it, one call after the other."""
    api: Any = lab.engine.api
    limits = lab.bench.limits
    with _volume(api, limits.work_mb) as work, _volume(api, limits.output_mb) as out:
        held = (Mount(work, "/work", read_only=False), Mount(out, "/out", read_only=False))
        holder = ContainerSpec(lab.bench.tools.id, lab.bench.owner, HELPER_LIMITS, mounts=held)
        with _container(api, holder) as keeper:
            with archive.packed(FILES, uid=SANDBOX_UID) as tar:
                api.put_archive(keeper, "/work", tar)
            data = lab.bench.data.at(DATA)
            mounts = (Mount(work, WORKSPACE, read_only=False), data, lab.environment)
            further = (lab.inputs, Mount(out, OUTPUT, read_only=False))
            for command, more in zip(COMMANDS, ((), further), strict=True):
                spec = ContainerSpec(
                    lab.bench.scorer.id,
                    lab.bench.owner,
                    limits,
                    mounts=(*mounts, *more),
                    env=submission_env(limits, seed=1),
                    workdir=WORKSPACE,
                )
                with _container(api, spec) as step:
                    assert _command(api, step, command, spec) == 0
                    _command(api, step, COUNTERS, spec, READER_USER)
                    api.inspect_container(step)
            chunks, stat = api.get_archive(keeper, f"/out/{OUTPUT_NAME}")
            assert stat["size"] < sum(len(chunk) for chunk in chunks)


@contextmanager
def _volume(api: Any, size_mb: int) -> Iterator[str]:
    options = f"size={size_mb}m,uid={SANDBOX_UID},gid={SANDBOX_UID},mode=0755"
    drive = {"type": "tmpfs", "device": "tmpfs", "o": options}
    name = str(api.create_volume(new_name("bench"), driver_opts=drive)["Name"])
    try:
        yield name
    finally:
        api.remove_volume(name)


@contextmanager
def _container(api: Any, spec: ContainerSpec) -> Iterator[str]:
    made = str(api.create_container_from_config(config(spec), new_name("bench"))["Id"])
    try:
        api.start(made)
        yield made
    finally:
        api.remove_container(made, force=True, v=True)


def _command(
    api: Any, container: str, argv: Sequence[str], spec: ContainerSpec, user: str | None = None
) -> int:
    made = api.exec_create(
        container, list(argv), user=user or spec.user, workdir=spec.workdir
    )["Id"]  # fmt: skip
    api.exec_start(made)
    return int(api.exec_inspect(made)["ExitCode"])


def graded(lab: Lab, with_scores: bool) -> float:
    """Seconds of grading the whole holdout, once the libraries are there."""
    content = io.StringIO()
    draw = random.Random(2)
    columns = ["id", "label", "score"] if with_scores else ["id", "label"]
    writer = csv.writer(content)
    writer.writerow(columns)
    for number in range(ROWS):
        share = draw.random()
        writer.writerow([f"m{number:06d}", int(share > 0.5), share][: len(columns)])
    output = content.getvalue().encode()
    wanted = columns_of(lab.bench.task.scorer)
    began = time.perf_counter()
    verdict = grade(output, lab.holdout.key, wanted)
    took = time.perf_counter() - began
    assert isinstance(verdict, Verdict), verdict.sentence
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, choices=range(2, 201), metavar="2-200")
    rounds = parser.parse_args().rounds
    engine = Engine.connect()
    with tempfile.TemporaryDirectory() as folder:
        place = lab(engine, Path(folder))
        scored(place)
        bare(place)
        pairs: list[tuple[float, float]] = []
        for number in range(rounds):
            if number % 2:
                whole, floor = timed(lambda: scored(place)), timed(lambda: bare(place))
            else:
                floor, whole = timed(lambda: bare(place)), timed(lambda: scored(place))
            pairs.append((whole, floor))
        labels = statistics.median(graded(place, with_scores=False) for _ in range(5))
        scores = statistics.median(graded(place, with_scores=True) for _ in range(5))
    whole = statistics.median(whole for whole, _ in pairs)
    floor = statistics.median(floor for _, floor in pairs)
    ratio = statistics.median(whole / floor for whole, floor in pairs)
    beside = f"engine alone {floor:.2f} s, ratio {ratio:.2f}"
    rows = [
        ("one score", f"{whole:.2f} s", beside, f"≤ {RATIO} ×", ratio <= RATIO),
        *(
            (f"grading {ROWS:,} {what}", f"{took:.2f} s", "", f"≤ {GRADING_S} s", took <= GRADING_S)
            for what, took in (("labels", labels), ("labels and scores", scores))
        ),
    ]
    judged = [(*row[:-1], "PASS" if row[-1] else "over") for row in rows]
    print(table(("", "", "beside", "bound", ""), judged))
    print(f"\n{machine(engine)}")
    return int(not all(row[-1] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
