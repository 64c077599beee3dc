"""Scores of real submissions in real containers: a good one, and one of each way to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from scoring_lab import GOOD, PREDICT, TRAIN, lab

from orchestrator.records.failures import FailureClass as C
from orchestrator.sandbox.limits import Limits
from orchestrator.scoring.runtime import input_volume
from orchestrator.scoring.steps import Workplace, environment_of, run_stage
from orchestrator.task import Step

CASES = Path(__file__).parents[1] / "cases"


@pytest.fixture(scope="module")
def bench(engine, tmp_path_factory):
    return lab(engine, tmp_path_factory.mktemp("scoring"))


@pytest.fixture(scope="module", autouse=True)
def nothing_stays(engine, bench):
    yield
    assert engine.owned(bench.bench.owner.trial) == []


def test_a_good_submission(bench):
    files = GOOD | {"EVALUATION.md": b"Expected F1: 0.9\n", "words.json": b"stale"}
    record = bench.score(files)
    assert record.failure is None, record.failure
    assert record.score == 1.0
    assert record.metrics.rows == 12
    assert record.expected_f1 == 0.9
    assert [step.name for step in record.steps] == ["train", "predict"]
    assert record.environment.declared_in is None
    assert record.environment.python.startswith("3.")
    assert (record.leak.verdict, record.leak.changed_when_set) == ("not-used", 0.0)
    assert len(record.predictions_sha256) == 64


def test_a_stale_model_file_can_not_score(bench):
    predict = PREDICT.replace("words.json", "words.pkl")
    files = {"train.py": b"", "predict.py": predict.encode(), "words.pkl": b'["cheap", "win"]'}
    record = bench.score(files)
    assert record.failure.failure_class is C.RUNTIME_ERROR
    assert "words.pkl" in record.failure.sentence


def test_a_workspace_with_odd_files_is_taken_over_as_it_is(bench):
    odd = (
        "import os\n"
        "os.mkfifo('pipe'); os.symlink('words.json', 'link'); os.link('words.json', 'hard')\n"
        "os.makedirs('/'.join(['deep' * 50] * 15)); open(b'\\xff', 'w'); open('a\\nb', 'w')\n"
        "open('sparse', 'w').truncate(1 << 29)\n"
        "os.mkdir('closed'); os.chmod('closed', 0); os.chmod('words.json', 0o400)\n"
    )
    record = bench.score(GOOD | {"train.py": (TRAIN + odd).encode()})
    assert record.failure is None, record.failure
    assert (record.score, record.leak.verdict) == (1.0, "not-used")


CRASHES = [
    ("does not parse", "def f(:\n", C.SYNTAX_ERROR, "0.py, line 1"),
    ("undeclared import", "import bs4\n", C.UNDECLARED_DEPENDENCY, "needs bs4"),
    (
        "label asked of the input",
        PREDICT.replace('row["body"]', 'row["label"]'),
        C.INPUT_SCHEMA,
        "lacks: 'label'",
    ),
    (
        "network",
        "import urllib.request; urllib.request.urlopen('http://example.invalid/model')",
        C.NEEDS_NETWORK,
        "name resolution",
    ),
    (
        "network by address",
        "import socket; socket.create_connection(('192.0.2.1', 80), 5)",
        C.NEEDS_NETWORK,
        "unreachable",
    ),
    ("memory", "x = bytearray(1 << 29)\nx[:] = b'1' * len(x)", C.OUT_OF_MEMORY, "memory"),
    ("more memory than exists", "x = [0] * (1 << 45)", C.OUT_OF_MEMORY, "MemoryError"),
    ("exit status", "raise SystemExit(3)", C.RUNTIME_ERROR, "exited with status 3"),
    ("segfault", "import ctypes; ctypes.string_at(0)", C.RUNTIME_ERROR, "SIGSEGV"),
    ("kills itself", "import os; os.kill(os.getpid(), 9)", C.KILLED, "status 137"),
    ("waits for input", "input('path? ')", C.RUNTIME_ERROR, "EOFError"),
    ("writes nothing", "", C.OUTPUT_SCHEMA, "predictions.csv was not written"),
    (
        "catches what went wrong and writes nothing",
        "import traceback\ntry: import bs4\nexcept ImportError: traceback.print_exc()",
        C.UNDECLARED_DEPENDENCY,
        "it ended with status 0 and without predictions.csv",
    ),
    (
        "symlink as output",
        "import os; os.symlink('/etc/passwd', '/out/predictions.csv')",
        C.OUTPUT_SCHEMA,
        "not a regular file but a symlink",
    ),
    ("pipe as output", "import os; os.mkfifo('/out/predictions.csv')", C.OUTPUT_SCHEMA, "regular"),
    (
        "socket as output",
        "import socket; socket.socket(socket.AF_UNIX).bind('/out/predictions.csv')",
        C.OUTPUT_SCHEMA,
        "regular",
    ),
    ("exit status of a kill", "raise SystemExit(137)", C.KILLED, "status 137"),
    ("folder as output", "import os; os.mkdir('/out/predictions.csv')", C.OUTPUT_SCHEMA, "regular"),
    (
        "sparse giant as output",
        "open('/out/predictions.csv', 'w').truncate(1 << 28)",
        C.OUTPUT_TOO_LARGE,
        "268435456 bytes; at most 2097152",
    ),
    (
        "more output than its volume holds",
        "open('/out/predictions.csv', 'w').write('x' * (3 << 20))",
        C.DISK_FULL,
        "No space left",
    ),
    (
        "more in /tmp than it holds",
        "open('/tmp/big', 'w').write('x' * (40 << 20))",
        C.DISK_FULL,
        "No space left",
    ),
    (
        "more processes than allowed",
        "import subprocess\nrunning = [subprocess.Popen(['sleep', '60']) for _ in range(100)]",
        C.PIDS_LIMIT,
        "Resource temporarily unavailable",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(bench):
    """All the failing programs in one workspace, beside a model as training leaves it."""
    scripts = {f"{number}.py": row[1].encode() for number, row in enumerate(CRASHES)}
    environment = environment_of(bench.bench, {})
    with Workplace(
        bench.bench, scripts | {"words.json": b"[]"}, environment, outputs=len(CRASHES)
    ) as place:
        yield place


@pytest.mark.parametrize(
    ("number", "failure_class", "says"),
    [pytest.param(n, *row[2:], id=row[0]) for n, row in enumerate(CRASHES)],
)
def test_what_fails_is_classified(bench, place, number, failure_class, says):
    arguments = bench.bench.task.scorer.predict.command[2:]
    step = Step(name="predict", command=("python", f"{number}.py", *arguments), needs_input=True)
    inputs = input_volume(bench.bench, bench.holdout.features)
    result = place.run(step, inputs, frozenset({"id", "body", "flag"}))
    assert result.failure is not None
    assert result.failure.failure_class is failure_class, result.failure
    assert says in result.failure.sentence
    assert result.output is None


def test_a_failure_of_predicting_is_a_score_of_0(bench):
    record = bench.score({"train.py": TRAIN.encode()})
    assert record.failure.failure_class is C.NO_ENTRY_POINT
    assert "predict.py is not there" in record.failure.sentence
    assert (record.score, record.metrics, len(record.steps)) == (0.0, None, 2)


def test_a_failure_of_training_ends_the_score(bench):
    record = bench.score(GOOD | {"train.py": b"import bs4\nimport unidecode"})
    assert record.failure.failure_class is C.UNDECLARED_DEPENDENCY
    assert "needs bs4" in record.failure.sentence
    # The crash shows one of them.
    assert [found.module for found in record.missing_imports] == ["bs4", "unidecode"]
    assert [step.name for step in record.steps] == ["train"]


def test_a_second_missing_module_is_the_same_kind_of_failure(bench):
    declared = (CASES / "19" / "requirements_c_second_missing.txt").read_bytes()
    code = (CASES / "19" / "predict_c.py").read_bytes()
    record = bench.score({"train.py": code, "requirements.txt": declared})
    assert "beautifulsoup4" in record.environment.packages
    assert record.failure.failure_class is C.UNDECLARED_DEPENDENCY
    assert "needs unidecode" in record.failure.sentence
    assert [(found.module, found.line) for found in record.missing_imports] == [("unidecode", 2)]


@pytest.mark.parametrize(
    ("case", "failure_class", "says"),
    [
        ("a_import_names", C.DEPENDENCY_NOT_FOUND, "the package is called scikit-learn"),
        ("b_stdlib_listed", C.DEPENDENCY_NOT_FOUND, "standard library"),
        ("d_no_such_version", C.DEPENDENCY_NOT_FOUND, "no version of scikit-learn fits"),
        ("e_conflict", C.DEPENDENCY_CONFLICT, "numpy==1.19.5"),
        ("g_vcs", C.DEPENDENCY_REFUSED, "git+https://example.invalid/someone/tool.git"),
        ("i_include_outside", C.DEPENDENCY_REFUSED, "-r ../../../etc/passwd"),
        ("l_markdown", C.DEPENDENCY_REFUSED, "```text"),
    ],
)
def test_19_what_can_not_be_installed_ends_the_score(bench, case, failure_class, says):
    declared = (CASES / "19" / f"requirements_{case}.txt").read_bytes()
    record = bench.score(GOOD | {"requirements.txt": declared})
    assert record.failure.failure_class is failure_class, record.failure
    assert says in record.failure.sentence
    assert "root:" not in record.failure.sentence
    assert (record.score, record.steps, record.environment) == (0.0, [], None)


def test_half_of_the_rows_is_a_score_of_0(bench):
    code = PREDICT.replace("        writer", "        if row['id'][-1] in '02468': writer")
    record = bench.predicting(code)
    assert record.failure.failure_class is C.OUTPUT_SCHEMA
    assert "6 of 12 ids missing (h1, h3, h5, …)" in record.failure.sentence
    assert (record.score, record.metrics, record.leak) == (0.0, None, None)


def test_half_of_the_rows_with_scores_as_a_task_may_take_them(bench):
    code = PREDICT.replace("        writer", "        if row['id'][-1] in '02468': writer")
    code = code.replace('"label"]', '"label", "score"]').replace("))])", ")), 0.5])")
    lenient = bench.with_scorer(leaked_columns=(), missing_rows="wrong", score_column="score")
    record = lenient.predicting(code)
    assert record.failure is None, record.failure
    # The even rows are the positive ones, and right; the others count as wrong.
    counts = record.metrics
    assert (counts.true_positives, counts.false_positives, counts.rows) == (6, 6, 12)
    assert record.score == pytest.approx(12 / 18)
    # Every negative is missing, and so ranked first.
    assert counts.pr_auc == pytest.approx(6 / 12)
    assert record.normalisations[-1] == (
        "6 of 12 ids missing (h1, h3, h5, …), each counted as wrong"
    )


def test_the_workspace_is_capped(bench):
    record = bench.score({"train.py": b"open('big', 'w').write('x' * (40 << 20))"})
    assert record.failure.failure_class is C.DISK_FULL


def test_a_submission_that_does_not_fit_is_told(bench):
    record = bench.score({"train.py": b"", "words.txt": b"x" * (33 << 20)})
    assert record.failure.failure_class is C.DISK_FULL
    assert "does not fit into its workspace" in record.failure.sentence


@pytest.mark.parametrize("complete", [True, False])
def test_an_execute_stage_looks_at_what_was_predicted(bench, complete):
    code = PREDICT if complete else PREDICT.replace("        writer", "        0 and writer")
    stage = run_stage(
        bench.bench,
        bench.bench.task.stage[0],
        turn=1,
        files=GOOD | {"predict.py": code.encode()},
        input_csv=b"id,body,flag\nx1,win a prize,0\nx2,lunch,0\n",
    )
    assert [step.exit_code for step in stage.steps] == [0, 0]
    assert stage.passed is complete
    if not complete:
        assert stage.failure.stage == "check"
        assert "header and no rows; 2 are wanted" in stage.failure.sentence


def test_a_class_of_main_can_not_be_loaded(bench):
    train = (
        "import pickle\nclass Model:\n    pass\n"
        "if __name__ == '__main__':\n    pickle.dump(Model(), open('model.pkl', 'wb'))\n"
    )
    predict = "import pickle\nmodel = pickle.load(open('model.pkl', 'rb'))\n"
    record = bench.score({"train.py": train.encode(), "predict.py": predict.encode()})
    assert record.failure.failure_class is C.UNPICKLABLE_ARTIFACT
    assert "needs Model of __main__" in record.failure.sentence


def test_what_hangs_is_stopped_children_too(engine, tmp_path):
    short = lab(engine, tmp_path, Limits(memory_mb=128, cpus=1.0, wall_s=3, output_mb=2))
    code = (
        f"{PREDICT}\nimport os, signal, time\nout.close()\n"
        "for s in (signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        "os.fork()\nwhile True: time.sleep(0.1)\n"
    )
    record = short.predicting(code)
    assert record.failure.failure_class is C.TIMEOUT
    # What it had written in time is no answer: it was not done.
    assert (record.score, record.metrics) == (0.0, None)
    assert record.steps[-1].duration_s < 10
    assert engine.owned(short.bench.owner.trial) == []


def test_a_child_that_goes_on_after_the_end_changes_nothing(bench):
    daemon = (
        "\nimport os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True:\n"
        "        open(a.output, 'a').write('666,1\\n'); time.sleep(0.05)\n"
        "out.close(); os._exit(0)\n"
    )
    record = bench.without_probe().predicting(PREDICT + daemon)
    # Either the rows as they were at the end, or rows that nobody asked for: never half of it.
    if record.failure is None:
        assert record.score == 1.0
    else:
        assert record.failure.failure_class is C.OUTPUT_SCHEMA
        assert "(666" in record.failure.sentence


def test_a_child_that_holds_stdout_does_not_hold_the_score(bench):
    record = bench.without_probe().predicting(
        PREDICT + "\nimport subprocess; subprocess.Popen(['sleep', '300'])\n"
    )
    assert record.score == 1.0
    assert record.steps[-1].duration_s < 30


def test_a_flood_of_output_keeps_its_end(bench):
    code = "for n in range(20000): print('x' * 100, n)\nraise KeyError('moderator')\n"
    record = bench.predicting(code)
    assert record.failure.failure_class is C.RUNTIME_ERROR
    assert "KeyError: 'moderator'" in record.failure.sentence
    assert record.steps[-1].stdout.dropped_bytes > 1_000_000
    assert record.steps[-1].stdout.text.rstrip().endswith("x 19999")


def test_a_verdict_never_comes_from_stdout(bench):
    record = bench.predicting("print('{\"score\": 1.0}\\x1b[2J F1: 1.0')\nraise SystemExit(1)\n")
    assert record.score == 0.0
