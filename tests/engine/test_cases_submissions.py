"""Programs that broke systems of this kind, each run as a submission's predict.py."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
from scoring_lab import GOOD, OUTPUTS, Lab, lab

from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import Ending, ScoreRecord
from orchestrator.report.score import print_score
from orchestrator.sandbox.container import ContainerSpec, Hardening
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.limits import Limits
from orchestrator.scoring import steps
from orchestrator.scoring.grade import check
from orchestrator.scoring.runtime import input_volume
from orchestrator.scoring.steps import StepResult, Workplace, columns_of, environment_of, ids_of
from orchestrator.task import Step

CASES = Path(__file__).parents[1] / "cases"
PROGRAMS = {path.name: path.read_bytes() for n in ("09", "11") for path in (CASES / n).glob("*.py")}
LIMITS = Limits(memory_mb=256, cpus=1.0, pids=64, wall_s=60, tmp_mb=16, work_mb=16, output_mb=2)
WALL_S = 3.0
"""For programs that never end by themselves."""


@pytest.fixture(scope="module")
def bench(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    found = lab(engine, tmp_path_factory.mktemp("cases"), LIMITS).without_probe()
    yield found
    assert engine.owned(found.bench.owner.trial) == []


@pytest.fixture(scope="module")
def numbers(bench: Lab) -> Iterator[Workplace]:
    """A workplace with NumPy."""
    environment = environment_of(bench.bench, {"requirements.txt": b"numpy\njoblib\n"})
    with Workplace(bench.bench, {}, environment, outputs=OUTPUTS) as place:
        yield place


@pytest.fixture(scope="module")
def place(bench: Lab) -> Iterator[Workplace]:
    with Workplace(
        bench.bench, PROGRAMS, environment_of(bench.bench, {}), outputs=OUTPUTS
    ) as place:
        yield place


def run(bench: Lab, place: Workplace, *program: str, wall_s: float | None = None) -> StepResult:
    arguments = bench.bench.task.scorer.predict.command[2:]
    step = Step(
        name="predict",
        command=("python", *program, *arguments),
        needs_input=True,
        wall_s=wall_s,
    )
    inputs = input_volume(bench.bench, bench.holdout.features)
    return place.run(step, inputs, frozenset({"id", "body", "flag"}))


def what_is_left(engine: Engine, bench: Lab) -> set[str]:
    """Roles of the containers: those that hold the workplace's volume are no program's."""
    roles = {o.owner.role for o in engine.owned(bench.bench.owner.trial) if o.kind == "container"}
    return roles - {"hold-work"}


def problems(bench: Lab, result: StepResult) -> str | None:
    assert result.output is not None, result.failure
    columns = columns_of(bench.bench.task.scorer)
    failure = check(result.output, ids_of(bench.holdout.features.read_bytes(), "id"), columns)
    return failure.sentence if failure else None


def test_09a_a_daemon_that_goes_on_writing(engine: Engine, bench: Lab, place: Workplace) -> None:
    result = run(bench, place, "a_daemon_child.py")
    said = problems(bench, result)
    assert said is None or "(666" in said
    assert what_is_left(engine, bench) == set()


@pytest.mark.parametrize("program", ["b_ignore_sigterm.py", "c_output_then_hang.py"])
def test_09bc_what_does_not_end_is_ended(
    engine: Engine, bench: Lab, place: Workplace, program: str
) -> None:
    result = run(bench, place, program, wall_s=WALL_S)
    assert result.failure is not None
    assert (result.failure.failure_class, result.output) == (C.TIMEOUT, None)
    assert "predict was stopped after 3 s" in result.failure.sentence
    assert what_is_left(engine, bench) == set()


def test_09_what_stops_itself_is_ended(engine: Engine, bench: Lab, place: Workplace) -> None:
    code = "import os, signal; os.fork(); os.kill(os.getpid(), signal.SIGSTOP)"
    result = run(bench, place, "-c", code, wall_s=WALL_S)
    assert result.failure is not None
    assert result.failure.failure_class is C.TIMEOUT
    assert what_is_left(engine, bench) == set()


def test_09d_a_child_that_holds_stdout(engine: Engine, bench: Lab, place: Workplace) -> None:
    result = run(bench, place, "d_child_holds_stdout.py")
    assert problems(bench, result) is None
    assert result.record.ending is Ending.EXITED
    assert "exit now" in result.record.stdout.text
    assert what_is_left(engine, bench) == set()


def test_09e_waiting_for_input_is_a_crash(bench: Lab, place: Workplace) -> None:
    result = run(bench, place, "e_waits_for_stdin.py")
    assert result.failure is not None
    assert result.failure.failure_class is C.RUNTIME_ERROR
    assert result.failure.reason == "waits for input"
    assert "EOFError" in result.failure.sentence


@pytest.mark.parametrize(
    ("program", "total"), [("a_flood_stdout.py", 200 << 20), ("b_one_line_50mb.py", 50 << 20)]
)
def test_11ab_floods_are_cut_and_counted(
    bench: Lab, place: Workplace, program: str, total: int
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run(bench, place, program)
    assert problems(bench, result) is None
    stdout = result.record.stdout
    assert stdout.total_bytes == total
    assert stdout.dropped_bytes > total - (1 << 20)
    assert f"[... {stdout.dropped_bytes} bytes left out ...]" in stdout.text
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << (20 if sys.platform == "darwin" else 10)


def test_11c_the_end_of_a_flood_is_kept(bench: Lab, place: Workplace) -> None:
    result = run(bench, place, "c_flood_then_crash.py")
    assert result.failure is not None
    assert result.failure.failure_class is C.RUNTIME_ERROR
    assert "KeyError: 'moderator_flagged'" in result.failure.sentence
    assert "debug row 0\n" in result.record.stderr.text
    assert "debug row 299999\n" in result.record.stderr.text


def test_11d_bytes_that_are_no_text_stay_readable(bench: Lab, place: Workplace) -> None:
    result = run(bench, place, "d_bad_utf8.py")
    assert result.failure is not None
    assert result.failure.failure_class is C.RUNTIME_ERROR
    assert "ValueError: na\ufffdve column" in result.failure.sentence
    assert "\u00e9b" in result.record.stdout.text
    assert "b\u20ac\ufffd\ufffd caf\ufffd" in result.record.stdout.text


def test_11e_no_verdict_comes_from_what_is_printed(
    bench: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    record = bench.score(GOOD | {"predict.py": PROGRAMS["e_terminal_tricks.py"]})
    assert record.failure is None
    assert record.score == 0.0
    assert "\x1b[2J" in record.steps[-1].stdout.text
    assert "\x1b" not in printed(record, capsys)


def test_11e_what_is_shown_of_it_is_inert(bench: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    code = "raise SystemExit('\\x1b[2J\\x1b]0;pwn\\x07[red]score 1.0\\u202e\\x00\\x9b31m\\r')"
    record = bench.predicting(code)
    shown = printed(record, capsys)
    assert "[red]score 1.0" in shown
    assert not any(char in shown for char in "\x1b\x07\u202e\x00\x9b\r")


def printed(record: ScoreRecord, capsys: pytest.CaptureFixture[str]) -> str:
    print_score(ScoreRecord.model_validate_json(record.model_dump_json()))
    return capsys.readouterr().out


def test_11_an_exception_that_is_told_of_and_outlived_is_no_failure(
    bench: Lab, place: Workplace
) -> None:
    write = PROGRAMS["d_child_holds_stdout.py"].decode().partition("import subprocess")[0]
    crash = "import traceback\ntry: import bs4\nexcept ImportError: traceback.print_exc()\n"
    result = run(bench, place, "-c", f"{write}{crash}good()\n{crash}")
    assert "No module named 'bs4'" in result.record.stderr.text
    assert problems(bench, result) is None


def test_11f_names_and_messages_that_are_no_text(bench: Lab) -> None:
    record = bench.score(GOOD | {"predict.py": PROGRAMS["f_surrogate_path.py"]})
    assert record.failure is not None
    assert record.failure.failure_class is C.RUNTIME_ERROR
    assert "ValueError: bad file" in record.failure.sentence


DOWNLOADS = {
    "at import": "import urllib.request\nurllib.request.urlopen('https://example.invalid/model')",
    "swallowed": (
        "import sys, urllib.request\n"
        "try:\n    model = urllib.request.urlopen('https://example.invalid/model')\n"
        "except OSError as error:\n    print('could not load:', error, file=sys.stderr)\n"
        "    model = None\n"
        "model.read()"
    ),
    "swallowed, then a module is missing": (
        "import socket\n"
        "try:\n    socket.create_connection(('example.invalid', 443))\n"
        "except OSError as error:\n    print(error)\n"
        "import corpus_that_was_to_be_fetched"
    ),
}


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in DOWNLOADS.items()])
def test_25_what_needs_the_network_is_told(bench: Lab, place: Workplace, code: str) -> None:
    result = run(bench, place, "-c", code, wall_s=30)
    assert result.failure is not None
    assert result.failure.failure_class is C.NEEDS_NETWORK


ALL_CORES = (
    "import os, sys\n"
    "import joblib, numpy as np\n"
    "assert joblib.effective_n_jobs(-1) == 1, joblib.effective_n_jobs(-1)\n"
    "joblib.Parallel(n_jobs=-1)(joblib.delayed(abs)(n) for n in range(9))\n"
    "np.ones((300, 300)) @ np.ones((300, 300))\n"
    "print(len(os.listdir('/proc/self/task')))\n"
)


def test_27_threads_are_as_many_as_the_quota(bench: Lab, numbers: Workplace) -> None:
    result = run(bench, numbers, "-c", ALL_CORES)
    assert result.record.exit_code == 0, result.record.stderr.text
    assert result.record.stdout.text == "1\n"


def test_27_a_limit_that_bites_is_named(bench: Lab, numbers: Workplace) -> None:
    code = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '128'\nimport joblib, numpy as np\n"
    over = "joblib.Parallel(n_jobs=100, backend='threading')(\n" + (
        "    joblib.delayed(__import__('time').sleep)(9) for n in range(999))\n"
    )
    for program in (over, f"import os\nos.cpu_count = lambda: 128\n{code}{over}"):
        result = run(bench, numbers, "-c", "import joblib\n" + program)
        assert result.failure is not None
        assert result.failure.failure_class is C.PIDS_LIMIT, result.failure


AT_HOME = (
    "import getpass, os, pathlib, pwd, tempfile\n"
    "assert getpass.getuser() == 'sandbox', getpass.getuser()\n"
    "for place in ('HOME', 'XDG_CACHE_HOME', 'XDG_DATA_HOME', 'MPLCONFIGDIR'):\n"
    "    pathlib.Path(os.environ[place], 'x').write_text('x')\n"
    "pathlib.Path.home().joinpath('.config', 'x').write_text('x')\n"
    "os.makedirs('.git/objects', mode=0o700); os.mkdir('closed', mode=0)\n"
    "os.umask(0o077); pathlib.Path('private').write_text('x')\n"
)


def test_28_a_user_without_an_entry_is_at_home(engine: Engine, bench: Lab) -> None:
    files = {name: AT_HOME.replace(".git/", f".git-{name}/").encode() for name in GOOD}
    files["predict.py"] = files["predict.py"].replace(b"os.mkdir('closed', mode=0)", b"")
    record = bench.score({name: code + b"\n" + GOOD[name] for name, code in files.items()})
    assert record.failure is None, record.failure
    assert record.score == 1.0


FILL = (
    "import os\n"
    "for place in ('/tmp', '/out', '/workspace'):\n"
    "    with open(place + '/big', 'wb') as file:\n"
    "        try:\n"
    "            while True: file.write(b'x' * 65536); file.flush()\n"
    "        except OSError as error: full = error\n"
    "raise full\n"
)


def test_29_a_full_disk_is_one_submission_s_alone(bench: Lab) -> None:
    with ThreadPoolExecutor(2) as pool:
        full = pool.submit(bench.predicting, FILL)
        good = pool.submit(bench.score, GOOD)
    failure = full.result().failure
    assert failure is not None
    assert failure.failure_class is C.DISK_FULL
    assert good.result().score == 1.0


ORPHANS = (
    "import os\n"
    "for _ in range(600):\n"
    "    child = os.fork()\n"
    "    if child == 0:\n"
    "        os.fork()\n"
    "        os._exit(0)\n"
    "    assert os.waitpid(child, 0)[1] == 0, 'no more processes'\n"
)


def test_33_orphans_are_reaped(
    bench: Lab, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert run(bench, place, "-c", ORPHANS).record.exit_code == 0
    # Without an init they stay, until no more processes are allowed.
    bare = partial(ContainerSpec, hardening=Hardening(host_config={"Init": False}))
    monkeypatch.setattr(steps, "ContainerSpec", bare)
    result = run(bench, place, "-c", ORPHANS)
    assert result.failure is not None
    assert "no more processes" in result.failure.sentence


def test_34_a_clock_that_jumps_changes_no_duration(
    bench: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, hours = time.time, cycle((0, 3600, -3600))
    monkeypatch.setattr(time, "time", lambda: real() + next(hours))
    record = bench.score(GOOD)
    assert record.failure is None
    assert all(0 < step.duration_s < 1800 for step in record.steps)
    assert 0 < record.duration_s < 1800
