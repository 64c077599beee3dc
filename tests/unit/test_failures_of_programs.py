"""The classifier over what real programs print: run here, or kept from runs with libraries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator.records.failures import TABLE, Attribution
from orchestrator.records.failures import FailureClass as C
from orchestrator.records.reasons import MENDS
from orchestrator.records.schema import Captured, Ending, StepRecord
from orchestrator.scoring.evidence import StepEvidence
from orchestrator.scoring.failures import classify, without_output

KEPT = Path(__file__).parents[1] / "cases" / "tracebacks"
COLUMNS = frozenset({"subject", "body", "flag", "label"})
PACKAGES = frozenset({"numpy", "pandas", "polars", "scikit-learn", "joblib", "nltk", "requests"})


class Program(NamedTuple):
    """A program, the failure that it is, and where in its code."""

    code: str
    failure_class: C
    place: str | None = None
    """`file:line`; None where no line of its own is to blame."""
    reason: str | None = None
    says: str = ""
    others: Mapping[str, str] = {}


LOCK = "import threading; lock = threading.Lock()\n"
POOL = "from concurrent.futures import ProcessPoolExecutor as Pool\n"
FORK = "import multiprocessing as m; m.set_start_method('fork')\n"
RUN_INNER = "import subprocess, sys\nrun = [sys.executable, 'inner.py']\n"
LFS = "'version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a\\nsize 12\\n'"
NO_BS4 = "predict needs bs4 (package beautifulsoup4), which is not declared"

PROGRAMS = {
    # --- several exceptions
    "raised from another": Program(
        "def a():\n  import bs4\ntry: a()\nexcept ImportError as e: raise RuntimeError('x') from e",
        C.UNDECLARED_DEPENDENCY,
        "predict.py:2",
        "bs4",
    ),
    "while another was handled": Program(
        "try:\n  import bs4\nexcept ImportError:\n  1 / 0", C.RUNTIME_ERROR, "predict.py:4"
    ),
    "a group": Program(
        "def f(): import bs4\ndef g(): raise ValueError('two\\nlines')\nfound = []\n"
        "for h in (g, f):\n  try: h()\n  except Exception as e: found.append(e)\n"
        "raise ExceptionGroup('several', found)",
        C.UNDECLARED_DEPENDENCY,
        "predict.py:1",
    ),
    "a group in a group": Program(
        "def f(): raise MemoryError\ntry: f()\nexcept MemoryError as e: found = e\n"
        "raise ExceptionGroup('out', [ValueError(1), ExceptionGroup('in', [found])])",
        C.OUT_OF_MEMORY,
        "predict.py:1",
    ),
    "a group without tracebacks": Program(
        "raise ExceptionGroup('x', [ValueError('one'), ValueError('two')])",
        C.RUNTIME_ERROR,
        "predict.py:1",
        says="ValueError: one",
    ),
    "except*": Program(
        "try:\n  raise ExceptionGroup('x', [ValueError(1), TypeError(2)])\n"
        "except* ValueError as e:\n  raise KeyError('label') from e",
        C.INPUT_SCHEMA,
        "predict.py:4",
    ),
    "a group of tasks": Program(
        "import asyncio\nasync def f(): raise ValueError('lost')\nasync def main():\n"
        "  async with asyncio.TaskGroup() as tasks: tasks.create_task(f())\nasyncio.run(main())",
        C.RUNTIME_ERROR,
        "predict.py:2",
        says="ValueError: lost",
    ),
    "a note": Program(
        "try: {}['label']\nexcept KeyError as e:\n  e.add_note('row 3'); raise",
        C.INPUT_SCHEMA,
        "predict.py:1",
    ),
    # --- other threads and processes
    "a thread that main outlives": Program(
        "import threading\ndef f(): raise ValueError('aside')\nt = threading.Thread(target=f)\n"
        "t.start(); t.join()\nraise TypeError('real')",
        C.RUNTIME_ERROR,
        "predict.py:5",
    ),
    "a thread that outlives main": Program(
        "import threading, time\nend = threading.Event()\ndef f():\n"
        "  threading.main_thread().join(); time.sleep(0.05); raise ValueError('aside')\n"
        "threading.Thread(target=f).start()\nraise TypeError('real')",
        C.RUNTIME_ERROR,
        "predict.py:6",
    ),
    "only a thread": Program(
        "import threading, sys\ndef f(): import bs4\nt = threading.Thread(target=f)\n"
        "t.start(); t.join(); sys.exit(1)",
        C.UNDECLARED_DEPENDENCY,
        "predict.py:2",
    ),
    "a pool's worker": Program(
        f"{FORK}def f(x): return {{}}[x]\nwith m.Pool(1) as p: p.map(f, ['a'])",
        C.RUNTIME_ERROR,
        "predict.py:2",
        says="KeyError: 'a'",
    ),
    "an executor's worker": Program(
        f"{FORK}{POOL}def f(x): import bs4\nwith Pool(1) as p: list(p.map(f, [1]))",
        C.UNDECLARED_DEPENDENCY,
        "predict.py:3",
    ),
    "a worker that dies": Program(
        f"{FORK}{POOL}import os\nwith Pool(1) as p: p.submit(os.abort).result()",
        C.RUNTIME_ERROR,
        "predict.py:4",
        "worker died",
    ),
    "what a worker can't be given": Program(
        f"{FORK}{POOL}with Pool(1) as p: p.submit(lambda: 1).result()", C.UNPICKLABLE_ARTIFACT
    ),
    "a child process": Program(
        f"{FORK}import sys\ndef f(): raise ValueError('in the child')\n"
        "p = m.Process(target=f); p.start(); p.join(); sys.exit(p.exitcode)",
        C.RUNTIME_ERROR,
        "predict.py:3",
    ),
    "a program that it starts": Program(
        f"{RUN_INNER}subprocess.run(run, check=True)",
        C.UNDECLARED_DEPENDENCY,
        "inner.py:1",
        others={"inner.py": "import bs4"},
    ),
    "a program that it starts, quoted": Program(
        f"{RUN_INNER}r = subprocess.run(run, capture_output=True, text=True)\n"
        "raise RuntimeError('inner failed:\\n' + r.stderr)",
        C.UNDECLARED_DEPENDENCY,
        "inner.py:1",
        others={"inner.py": "import bs4"},
    ),
    # --- in passing
    "ignored in __del__": Program(
        "class A:\n  def __del__(self):\n    try: 1 / 0\n    except Exception as e:\n"
        "      raise KeyError('label') from e\na = A()\nraise TypeError('real')",
        C.RUNTIME_ERROR,
        "predict.py:7",
    ),
    "atexit": Program(
        "import atexit\ndef f(): import bs4\natexit.register(f)\nraise TypeError('real')",
        C.RUNTIME_ERROR,
        "predict.py:4",
    ),
    "a task that nobody waited for": Program(
        "import asyncio\nasync def f(): raise ValueError('lost')\nasync def main():\n"
        "  t = asyncio.create_task(f())\n  await asyncio.sleep(0.01)\n  raise TypeError('real')\n"
        "asyncio.run(main())",
        C.RUNTIME_ERROR,
        "predict.py:6",
    ),
    "a hook that fails": Program(
        "import sys\ndef f(*a): 1 / 0\nsys.excepthook = f\nimport bs4",
        C.UNDECLARED_DEPENDENCY,
        "predict.py:4",
    ),
    "logging that fails": Program(
        "import logging, sys\nlogging.error('%d', 'x')\nsys.exit('no model')",
        C.RUNTIME_ERROR,
        says="no model",
    ),
    "a warning at the end": Program(
        "from multiprocessing import shared_memory\n"
        "s = shared_memory.SharedMemory(create=True, size=10)\n{}['label']",
        C.INPUT_SCHEMA,
        "predict.py:3",
    ),
    "after half a line": Program(
        "import sys; sys.stderr.write('\\r 50%')\n{}['label']", C.INPUT_SCHEMA, "predict.py:2"
    ),
    # --- caught, told of, ended
    "logged": Program(
        "import logging, sys\ntry: 1 / 0\nexcept Exception:\n  logging.exception('x'); sys.exit(1)",
        C.RUNTIME_ERROR,
        "predict.py:2",
    ),
    "printed, and another status": Program(
        "import traceback, sys\ntry: import bs4\nexcept ImportError as e:\n"
        "  traceback.print_exc(); print('failed:', e, file=sys.stderr); sys.exit(2)",
        C.UNDECLARED_DEPENDENCY,
        "predict.py:2",
    ),
    "told in a line": Program(
        "import sys\ntry: import bs4\nexcept ImportError as e: print('Error:', e); sys.exit(1)",
        C.UNDECLARED_DEPENDENCY,
        None,
        "bs4",
        NO_BS4,
    ),
    "told in a line, and no output": Program(
        "try: import bs4\nexcept ImportError as e: print('Error:', e)",
        C.UNDECLARED_DEPENDENCY,
        None,
        "bs4",
        "it ended with status 0 and without predictions.csv",
    ),
    "printed, and no output": Program(
        "import traceback\ntry: {}['label']\nexcept KeyError: traceback.print_exc()",
        C.INPUT_SCHEMA,
        "predict.py:2",
        says="it ended with status 0",
    ),
    "no output": Program("print('done')", C.OUTPUT_SCHEMA, says="predictions.csv was not written"),
    # --- endings
    "sys.exit(0) without output": Program("import sys; sys.exit(0)", C.OUTPUT_SCHEMA),
    "sys.exit(2)": Program("import sys; sys.exit(2)", C.RUNTIME_ERROR, None, "exit status 2"),
    "sys.exit('words')": Program("import sys; sys.exit('no model')", C.RUNTIME_ERROR, says="no mo"),
    "argparse": Program(
        "import argparse; a = argparse.ArgumentParser(); a.add_argument('--in', required=True)\n"
        "a.parse_args()",
        C.RUNTIME_ERROR,
        None,
        "arguments",
        "required: --in",
    ),
    "sys.exit(137)": Program("import sys; sys.exit(137)", C.KILLED, None, "exit status 137"),
    "killed by itself": Program(
        "import os; os.kill(os.getpid(), 9)", C.KILLED, None, "exit status 137"
    ),
    "SIGTERM": Program("import os; os.kill(os.getpid(), 15)", C.KILLED, None, "SIGTERM"),
    "a fault in compiled code": Program(
        "import ctypes\ndef f(): ctypes.string_at(0)\nf()",
        C.RUNTIME_ERROR,
        "predict.py:2",
        "SIGSEGV",
        "crashed below Python, by SIGSEGV: Segmentation fault",
    ),
    "a fault after an exception that it outlived": Program(
        "import ctypes, traceback\ntry: import bs4\nexcept ImportError: traceback.print_exc()\n"
        "ctypes.string_at(0)",
        C.RUNTIME_ERROR,
        "predict.py:4",
        "SIGSEGV",
    ),
    "abort": Program("import os; os.abort()", C.RUNTIME_ERROR, "predict.py:1", "SIGABRT"),
    # --- saved objects
    "a class of __main__": Program(
        f"{RUN_INNER}import pickle\nsubprocess.run(run, check=True)\npickle.load(open('m', 'rb'))",
        C.UNPICKLABLE_ARTIFACT,
        "predict.py:5",
        others={
            "inner.py": "import pickle\nclass Stats: pass\npickle.dump(Stats(), open('m', 'wb'))"
        },
    ),
    "a lambda": Program("import pickle\npickle.dumps(lambda: 1)", C.UNPICKLABLE_ARTIFACT),
    "a local function": Program(
        "import pickle\ndef f():\n  def g(): pass\n  return g\npickle.dumps(f())",
        C.UNPICKLABLE_ARTIFACT,
    ),
    "a lock": Program(f"{LOCK}import pickle\npickle.dumps(lock)", C.UNPICKLABLE_ARTIFACT),
    "a git-lfs pointer": Program(
        f"import pickle\npickle.loads({LFS}.encode())", C.RUNTIME_ERROR, None, "git-lfs pointer"
    ),
    "an empty file": Program(
        "import pickle\npickle.loads(b'')", C.RUNTIME_ERROR, None, "empty file"
    ),
    # --- modules
    "relative": Program("from .a import x", C.RUNTIME_ERROR, None, "relative import"),
    "in another folder": Program(
        "import text", C.RUNTIME_ERROR, None, "own module not found", others={"lib/text.py": ""}
    ),
    "without the name": Program(
        "from a import x", C.RUNTIME_ERROR, None, "own name not found", others={"a.py": ""}
    ),
    "without the attribute": Program(
        "import a\na.f()", C.RUNTIME_ERROR, None, "own name not found", others={"a.py": ""}
    ),
    "in a circle": Program(
        "import a",
        C.RUNTIME_ERROR,
        "b.py:1",
        "circular import",
        others={"a.py": "from b import y\nx = 1", "b.py": "from a import x\ny = 1"},
    ),
    "a name of the standard library": Program(
        "import queue\nqueue.Queue()",
        C.RUNTIME_ERROR,
        None,
        "shadows a module",
        others={"queue.py": "x = 1"},
    ),
    "not there any more": Program(
        "from collections import Mapping", C.RUNTIME_ERROR, None, "version skew"
    ),
    "an argument it does not take": Program(
        "class A:\n  def __init__(self): pass\nA(sparse=1)",
        C.RUNTIME_ERROR,
        None,
        "unexpected argument",
    ),
    # --- does not parse
    "a bracket": Program("def f(\n  return 1\n", C.SYNTAX_ERROR, "predict.py:1"),
    "indentation, imported": Program(
        "import a", C.SYNTAX_ERROR, "a.py:2", others={"a.py": "def f():\nreturn 1"}
    ),
    "tabs": Program("if 1:\n\tx = 1\n        y = 2", C.SYNTAX_ERROR, "predict.py:3"),
    "an f-string": Program("x = 1\nprint(f'{a b}')", C.SYNTAX_ERROR),
    "a future version": Program("match = 1\nfoo! = 2", C.SYNTAX_ERROR, "predict.py:2"),
    "bytes that are no text": Program("x = 'caf\udce9'", C.SYNTAX_ERROR),
    "a zero byte": Program("x = 1\n\0", C.SYNTAX_ERROR),
    "a fence": Program("```python\nx = 1\n```", C.SYNTAX_ERROR, "predict.py:1"),
    "text that it runs": Program("exec('1 +')", C.RUNTIME_ERROR, None, "syntax of other code"),
    # --- limits and places
    "memory": Program("x = bytearray(10**15)", C.OUT_OF_MEMORY, "predict.py:1"),
    "depth": Program("def f(): f()\nf()", C.RUNTIME_ERROR, "predict.py:1", "recursion"),
    "disk": Program("open('/dev/full', 'w').write('x' * 10**6)", C.DISK_FULL),
    "the size of a file": Program(
        "import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "open('x', 'w').write('a' * 10**6)",
        C.OUTPUT_TOO_LARGE,
        "predict.py:3",
    ),
    "the size of a file, by signal": Program(
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\nopen('x', 'w').write('a' * 10**6)",
        C.OUTPUT_TOO_LARGE,
        None,
        "SIGXFSZ",
    ),
    "open files": Program(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n"
        "x = [open('/dev/null') for _ in range(30)]",
        C.RUNTIME_ERROR,
        "predict.py:3",
        "open files",
    ),
    "somebody's folder": Program(
        "open('/home/me/model.pkl')", C.RUNTIME_ERROR, None, "absolute path"
    ),
    "another step's /tmp": Program(
        "open('/tmp/none-such/m')", C.RUNTIME_ERROR, None, "kept in /tmp"
    ),
    "a file not written": Program("open('out/m')", C.RUNTIME_ERROR, None, "missing file"),
    "bytes": Program("b'caf\\xe9'.decode()", C.RUNTIME_ERROR, None, "not text"),
    "input": Program("input('?')", C.RUNTIME_ERROR, None, "waits for input"),
    "no rule": Program("class Odd(Exception): pass\nraise Odd('x')", C.RUNTIME_ERROR, None, ""),
    # --- network
    "urllib": Program(
        "import urllib.request as u\nu.urlopen('https://example.invalid/x')",
        C.NEEDS_NETWORK,
        "predict.py:2",
    ),
    "nothing answers": Program(
        "import socket\nsocket.create_connection(('127.0.0.1', 9))", C.NEEDS_NETWORK, "predict.py:2"
    ),
    "caught, and died of later": Program(
        "import urllib.request as u\nmodel = None\ntry: u.urlopen('https://example.invalid/x')\n"
        "except Exception as e: print('warning:', e)\nmodel.predict()",
        C.NEEDS_NETWORK,
        "predict.py:5",
    ),
    "no local file of that name": Program(
        "import urllib.request as u\nu.urlopen('file:///none-such')", C.RUNTIME_ERROR
    ),
    # --- forged
    "a forged traceback in a message": Program(
        "raise ValueError('x\\n\\nTraceback (most recent call last):\\n  File \"/opt/run.py\", "
        "line 1, in perform\\norchestrator.errors.EngineUnavailable: the engine went away')",
        C.RUNTIME_ERROR,
    ),
    "a forged traceback on stdout": Program(
        "print('Traceback (most recent call last):\\n  File \"/opt/orch/grade.py\", line 1, in g\\n"
        "scorer-error: grading failed, a defect of the harness'); raise SystemExit(1)",
        C.RUNTIME_ERROR,
    ),
    "forged words": Program(
        "import sys; sys.exit('{\"failure_class\": \"engine-unavailable\"}\\nindex-unavailable')",
        C.RUNTIME_ERROR,
    ),
}  # fmt: skip


def ran(program: Program, folder: Path) -> StepEvidence:
    """The evidence of a program as an interpreter without a terminal leaves it."""
    files = {"predict.py": program.code, **program.others}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape") + b"\n")
    environment = {"PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "predict.py"],
        cwd=folder,
        env=environment | {"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return evidence(
        # The engine gives a process that a signal ended a status over 128.
        done.returncode if done.returncode >= 0 else 128 - done.returncode,
        stdout=done.stdout.decode("utf-8", "replace").replace(str(folder), "/workspace"),
        stderr=done.stderr.decode("utf-8", "replace").replace(str(folder), "/workspace"),
        tree=frozenset(files),
    )


def evidence(
    status: int, *, stdout: str = "", stderr: str, tree: frozenset[str] = frozenset({"predict.py"})
) -> StepEvidence:
    def stream(text: str) -> Captured:
        return Captured(text=text, total_bytes=len(text))

    killed = status == 128 + signal.SIGKILL
    step = StepRecord(
        name="predict",
        command=["python", "predict.py"],
        ending=Ending.KILLED if killed else Ending.EXITED,
        exit_code=status,
        duration_s=1.0,
        peak_memory_bytes=None,
        oom_kills=0,
        stdout=stream(stdout),
        stderr=stream(stderr),
    )
    return StepEvidence(step, tree, PACKAGES, COLUMNS - {"label"}, COLUMNS)


def check(evidence_: StepEvidence, program: Program) -> None:
    ended_well = evidence_.step.exit_code == 0
    found = without_output(evidence_, "predictions.csv") if ended_well else classify(evidence_)
    assert found.failure_class is program.failure_class, (found, evidence_.stderr)
    assert TABLE[found.failure_class].attribution is Attribution.MODEL
    assert program.says in found.sentence
    if program.reason is not None:
        assert found.reason == program.reason
    if found.failure_class is C.RUNTIME_ERROR and found.reason:
        assert found.reason in MENDS or found.reason.startswith(("exit status", "SIG"))
    if program.place is not None:
        assert f"{found.evidence[-1].source}:{found.evidence[-1].line}" == program.place
    said = f"{evidence_.stderr}\n{evidence_.stdout}"
    assert found.evidence or not said.strip()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    check(ran(PROGRAMS[name], tmp_path), PROGRAMS[name])


KEPT_FAILURES = {
    "better": (C.INPUT_SCHEMA, "label", "predict.py:2"),
    "click": (C.RUNTIME_ERROR, "arguments", None),
    "joblib": (C.RUNTIME_ERROR, "", "predict.py:5"),
    "joblib-die": (C.RUNTIME_ERROR, "worker died", "predict.py:6"),
    "joblib-unpicklable": (C.UNPICKLABLE_ARTIFACT, "", "predict.py:6"),
    "lfs-csv": (C.INPUT_SCHEMA, "label", "predict.py:1"),
    "lfs-joblib": (C.RUNTIME_ERROR, "git-lfs pointer", "predict.py:1"),
    "loguru": (C.UNDECLARED_DEPENDENCY, "bs4x", "predict.py:4"),
    "net-aiohttp": (C.NEEDS_NETWORK, "", "predict.py:3"),
    "net-hf": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "net-httpx": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "net-nltk": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "net-nltk-punkt": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "net-pip": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "net-requests": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "net-sklearn": (C.NEEDS_NETWORK, "", "predict.py:1"),
    "np-float": (C.RUNTIME_ERROR, "version skew", "predict.py:1"),
    "np-memory": (C.OUT_OF_MEMORY, "", "predict.py:1"),
    "pd-append": (C.RUNTIME_ERROR, "version skew", "predict.py:1"),
    "pd-col": (C.INPUT_SCHEMA, "label", "predict.py:1"),
    "pd-cols": (C.INPUT_SCHEMA, "label, sender", "predict.py:1"),
    "pd-html": (C.UNDECLARED_DEPENDENCY, "lxml", "predict.py:1"),
    "pd-iteritems": (C.RUNTIME_ERROR, "version skew", "predict.py:1"),
    "pd-parquet": (C.UNDECLARED_DEPENDENCY, "pyarrow", "predict.py:1"),
    "pd-plot": (C.UNDECLARED_DEPENDENCY, "matplotlib", "predict.py:1"),
    "pickle-main-joblib": (C.UNPICKLABLE_ARTIFACT, "", "predict.py:3"),
    "pl-col": (C.INPUT_SCHEMA, "label", "predict.py:1"),
    "pl-select": (C.INPUT_SCHEMA, "label", "predict.py:1"),
    "python-3.13-colours": (C.INPUT_SCHEMA, "label", "predict.py:2"),
    "rich": (C.UNDECLARED_DEPENDENCY, "bs4x", "predict.py:2"),
    "rich-from": (C.UNDECLARED_DEPENDENCY, "bs4x", "predict.py:2"),
    "sk-gridsearch": (C.RUNTIME_ERROR, "", None),
    "sk-importname": (C.RUNTIME_ERROR, "version skew", "predict.py:1"),
    "sk-names": (C.INPUT_SCHEMA, "label", "predict.py:4"),
    "sk-notfitted": (C.RUNTIME_ERROR, "not fitted", "predict.py:1"),
    "sk-sixmod": (C.RUNTIME_ERROR, "version skew", "predict.py:1"),
    "sk-sparse": (C.RUNTIME_ERROR, "unexpected argument", "predict.py:1"),
    "tqdm": (C.RUNTIME_ERROR, "", "predict.py:3"),
    "typer": (C.RUNTIME_ERROR, "arguments", None),
    "typer-crash": (C.UNDECLARED_DEPENDENCY, "bs4x", "predict.py:5"),
}
"""Of joblib 1.6, NumPy 2.4, pandas 3.1, Polars 2.1, scikit-learn 1.5, NLTK 3.10 and others."""


@pytest.mark.parametrize("name", sorted(path.stem for path in KEPT.glob("*.txt")))
def test_kept_output_of_programs_with_libraries(name: str) -> None:
    failure_class, reason, place = KEPT_FAILURES[name]
    text = (KEPT / f"{name}.txt").read_text(encoding="utf-8")
    status = 2 if reason == "arguments" else 1
    check(evidence(status, stderr=text), Program("", failure_class, place, reason))
