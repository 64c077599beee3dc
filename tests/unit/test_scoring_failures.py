"""The classifier over tracebacks of many shapes. Texts are as programs really print them."""

from __future__ import annotations

import re

import pytest

from orchestrator.records.failures import TABLE, Attribution
from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import Captured, Ending, StepRecord
from orchestrator.scoring import tracebacks
from orchestrator.scoring.evidence import StepEvidence
from orchestrator.scoring.failures import classify, without_output
from orchestrator.scoring.tracebacks import last_crash

TREE = ("train.py", "predict.py", "features.py", "spamlib/__init__.py", "spamlib/text.py")
TRAINING = frozenset({"message_id", "subject", "body", "moderator_flagged", "label"})
INPUT = TRAINING - {"label"}
SITE = "/env/lib/python3.11/site-packages"


def trace(*frames: str, error: str) -> str:
    return "\n".join(("Traceback (most recent call last):", *frames, error, ""))


def at(file: str, line: int, function: str = "<module>", source: str = "") -> str:
    shown = f"\n    {source}" if source else ""
    return f'  File "{file}", line {line}, in {function}{shown}'


MAIN = at("/workspace/predict.py", 12, source="main()")
PANDAS = "\n".join(
    (
        at("/workspace/predict.py", 20, "main", 'df["label"]'),
        "    ~~^^^^^^^^^",
        at(f"{SITE}/pandas/core/frame.py", 4330, "__getitem__", "indexer = self.columns..."),
        at(f"{SITE}/pandas/core/indexes/base.py", 3823, "get_loc", "raise KeyError(key) from err"),
    )
)
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def evidence(
    stderr: str = "",
    stdout: str = "",
    *,
    exit_code: int | None = 1,
    ending: Ending = Ending.EXITED,
    name: str = "predict",
    packages: tuple[str, ...] = (),
    columns: frozenset[str] | None = INPUT,
) -> StepEvidence:
    def stream(text: str) -> Captured:
        return Captured(text=text, total_bytes=len(text))

    step = StepRecord(
        name=name,
        command=["python", f"{name}.py", "--input", "/in/features.csv"],
        ending=ending,
        exit_code=exit_code,
        duration_s=12.0,
        peak_memory_bytes=None,
        oom_kills=0,
        stdout=stream(stdout),
        stderr=stream(stderr),
    )
    return StepEvidence(
        step=step,
        tree=TREE,
        packages=frozenset(packages),
        columns=columns,
        columns_elsewhere=TRAINING,
    )


TRACEBACKS: list[tuple[str, str, C, str]] = [
    # --- entry point
    (
        "missing script",
        "python: can't open file '/workspace/predict.py': [Errno 2] No such file or directory\n",
        C.NO_ENTRY_POINT,
        "predict.py is not there",
    ),
    (
        "missing script, interpreter by path",
        "/env/bin/python: can't open file '/workspace/predict.py': [Errno 2] No such file\n",
        C.NO_ENTRY_POINT,
        "could not start `python predict.py --input /in/features.csv`",
    ),
    ("missing module to run", "/env/bin/python: No module named predict\n", C.NO_ENTRY_POINT, ""),
    (
        "another script that the program starts",
        "python: can't open file '/workspace/helper.py': [Errno 2] No such file or directory\n"
        + trace(MAIN, error="subprocess.CalledProcessError: Command '['python', 'helper.py']'"),
        C.RUNTIME_ERROR,
        "CalledProcessError",
    ),
    ("a tool that the program misses", "sh: 1: wget: not found\n", C.RUNTIME_ERROR, "wget"),
    # --- does not parse
    (
        "syntax error of the script",
        '  File "/workspace/predict.py", line 3\n    def f(\n         ^\n'
        "SyntaxError: '(' was never closed\n",
        C.SYNTAX_ERROR,
        "(predict.py, line 3)",
    ),
    (
        "indentation error in an imported file",
        trace(
            at("/workspace/predict.py", 2, source="import features"),
            '  File "/workspace/features.py", line 9',
            "    return x",
            error="IndentationError: unexpected indent",
        ),
        C.SYNTAX_ERROR,
        "(features.py, line 9)",
    ),
    (
        "tabs",
        '  File "/workspace/predict.py", line 4\n    x\n     ^\n'
        "TabError: inconsistent use of tabs and spaces in indentation\n",
        C.SYNTAX_ERROR,
        "TabError",
    ),
    (
        "source that is not UTF-8",
        '  File "/workspace/predict.py", line 1\nSyntaxError: Non-UTF-8 code starting with '
        "'\\xe9' in file /workspace/predict.py on line 1, but no encoding declared; see PEP 263\n",
        C.SYNTAX_ERROR,
        "Non-UTF-8 code",
    ),
    (
        "a fence left in the file",
        '  File "/workspace/predict.py", line 1\n    ```python\n    ^\n'
        "SyntaxError: invalid syntax\n",
        C.SYNTAX_ERROR,
        "line 1",
    ),
    (
        "parsing something else at run time",
        trace(
            MAIN,
            at("/usr/lib/python3.11/ast.py", 50, "parse", "return compile(source, ...)"),
            '  File "<unknown>", line 1',
            "    1 +",
            error="SyntaxError: invalid syntax",
        ),
        C.RUNTIME_ERROR,
        "SyntaxError",
    ),
    # --- imports
    (
        "undeclared module",
        trace(at("/workspace/predict.py", 3, source="import bs4"), error="ModuleNotFoundError: "
              "No module named 'bs4'"),
        C.UNDECLARED_DEPENDENCY,
        "predict needs bs4 (package beautifulsoup4), which is not declared (predict.py, line 3)",
    ),
    (
        "undeclared, inside a package",
        trace(MAIN, error="ModuleNotFoundError: No module named 'xgboost.sklearn'"),
        C.UNDECLARED_DEPENDENCY,
        "xgboost.sklearn",
    ),
    (
        "undeclared, with pandas's words",
        trace(MAIN, at(f"{SITE}/pandas/compat/_optional.py", 1, "import_optional_dependency", "x"),
              error="ImportError: Missing optional dependency 'pyarrow'.  Use pip or conda to "
              "install pyarrow."),
        C.UNDECLARED_DEPENDENCY,
        "pyarrow",
    ),
    (
        "undeclared, no engine for a format",
        trace(MAIN, error="ImportError: Unable to find a usable engine; tried using: 'pyarrow', "
              "'fastparquet'.\nA suitable version of pyarrow or fastparquet is required."),
        C.UNDECLARED_DEPENDENCY,
        "pyarrow",
    ),
    (
        "undeclared, wrapped by the submission",
        trace(MAIN, error="ModuleNotFoundError: No module named 'lightgbm'")
        + DIRECT
        + trace(MAIN, error="RuntimeError: boosting needs lightgbm"),
        C.UNDECLARED_DEPENDENCY,
        "lightgbm",
    ),
    (
        "undeclared, second of two fallbacks",
        trace(MAIN, error="ModuleNotFoundError: No module named 'lightgbm'")
        + DURING
        + trace(MAIN, error="ModuleNotFoundError: No module named 'xgboost'"),
        C.UNDECLARED_DEPENDENCY,
        "xgboost",
    ),
    (
        "fallback that crashes for its own reason",
        trace(MAIN, error="ModuleNotFoundError: No module named 'lightgbm'")
        + DURING
        + trace(MAIN, error="ZeroDivisionError: division by zero"),
        C.RUNTIME_ERROR,
        "ZeroDivisionError",
    ),
    (
        "a module of the submission",
        trace(MAIN, error="ModuleNotFoundError: No module named 'text'"),
        C.RUNTIME_ERROR,
        "No module named 'text'",
    ),
    (
        "a part of the standard library that is not installed",
        trace(MAIN, error="ModuleNotFoundError: No module named 'tkinter'"),
        C.RUNTIME_ERROR,
        "No module named",
    ),
    (
        "shadowed by a file of the submission",
        trace(MAIN, error="ModuleNotFoundError: No module named 'features.text'; 'features' is "
              "not a package"),
        C.RUNTIME_ERROR,
        "not a package",
    ),
    (
        "cannot import name",
        trace(MAIN, error="ImportError: cannot import name 'plot_roc_curve' from 'sklearn.metrics' "
              f"({SITE}/sklearn/metrics/__init__.py)"),
        C.RUNTIME_ERROR,
        "plot_roc_curve",
    ),
    # --- saved objects
    (
        "class of __main__",
        trace(
            at("/workspace/predict.py", 8, source='model = joblib.load("model.joblib")'),
            at(f"{SITE}/joblib/numpy_pickle.py", 650, "load", "obj = _unpickle(fobj)"),
            at("/usr/lib/python3.11/pickle.py", 1213, "load", "dispatch[key[0]](self)"),
            error="AttributeError: Can't get attribute 'TextStats' on <module '__main__' from "
            "'/workspace/predict.py'>",
        ),
        C.UNPICKLABLE_ARTIFACT,
        "needs TextStats of __main__, which this program does not have (predict.py, line 8)",
    ),
    (
        "lambda that can't be saved",
        trace(MAIN, error="_pickle.PicklingError: Can't pickle <function <lambda> at "
              "0x7f00>: attribute lookup <lambda> on __main__ failed"),
        C.UNPICKLABLE_ARTIFACT,
        "lambda",
    ),
    (
        "local object that can't be saved",
        trace(MAIN, error="AttributeError: Can't pickle local object 'main.<locals>.clean'"),
        C.UNPICKLABLE_ARTIFACT,
        "local object",
    ),
    (
        "module that predict has not, while loading",
        trace(
            at("/workspace/predict.py", 8, source="model = pickle.load(f)"),
            error="ModuleNotFoundError: No module named 'train'",
        ),
        C.UNPICKLABLE_ARTIFACT,
        "needs module train",
    ),
    (
        "git-lfs pointer",
        trace(MAIN, error="_pickle.UnpicklingError: invalid load key, 'v'."),
        C.RUNTIME_ERROR,
        "invalid load key",
    ),
    # --- columns
    (
        "column in a frame",
        trace(at(f"{SITE}/pandas/core/indexes/base.py", 3816, "get_loc"), error="KeyError: 'label'")
        + DIRECT
        + trace(PANDAS, error="KeyError: 'label'"),
        C.INPUT_SCHEMA,
        "predict expects a column that its input lacks: 'label' (predict.py, line 20)",
    ),
    (
        "columns in a frame",
        trace(PANDAS, error="KeyError: \"['label', 'sender_name'] not in index\""),
        C.INPUT_SCHEMA,
        "'label', 'sender_name'",
    ),
    (
        "no column of those asked for",
        trace(PANDAS, error="KeyError: \"None of [Index(['label', 'y'], dtype='str')] are in the "
              '[columns]"'),
        C.INPUT_SCHEMA,
        "'label', 'y'",
    ),
    (
        "dropping a column that is not there",
        trace(PANDAS, error="KeyError: \"['label'] not found in axis\""),
        C.INPUT_SCHEMA,
        "'label'",
    ),
    (
        "usecols",
        trace(MAIN, error="ValueError: Usecols do not match columns, columns expected but not "
              "found: ['label']"),
        C.INPUT_SCHEMA,
        "'label'",
    ),
    (
        "parse_dates",
        trace(MAIN, error="ValueError: Missing column provided to 'parse_dates': 'sent_at'"),
        C.INPUT_SCHEMA,
        "'sent_at'",
    ),
    (
        "column transformer",
        trace(MAIN, error="ValueError: columns are missing: {'label'}"),
        C.INPUT_SCHEMA,
        "'label'",
    ),
    (
        "column transformer, at fit",
        trace(MAIN, error="ValueError: 'q' is not in list")
        + DIRECT
        + trace(MAIN, error="ValueError: Some column names are not columns of the dataframe: "
                "{'text'}"),
        C.INPUT_SCHEMA,
        "'text'",
    ),
    (
        "feature names",
        trace(MAIN, error="ValueError: The feature names should match those that were passed "
              "during fit.\nFeature names seen at fit time, yet now missing:\n- label\n"),
        C.INPUT_SCHEMA,
        "'label'",
    ),
    (
        "csv.DictReader",
        trace(at("/workspace/predict.py", 9, "f", 'x = row["text"]'), error="KeyError: 'text'"),
        C.INPUT_SCHEMA,
        "'text'",
    ),
    (
        "a training column asked of a dict",
        trace(at("/workspace/predict.py", 9, "rows", "y.append(values[name])"),
              error="KeyError: 'label'"),
        C.INPUT_SCHEMA,
        "'label'",
    ),
    (
        "attribute of a frame",
        trace(MAIN, at(f"{SITE}/pandas/core/generic.py", 6434, "__getattr__"),
              error="AttributeError: 'DataFrame' object has no attribute 'text'"),
        C.INPUT_SCHEMA,
        "'text'",
    ),
    (
        "a column that the input has was lost on the way",
        trace(PANDAS, error="KeyError: 'body'"),
        C.RUNTIME_ERROR,
        "KeyError: 'body'",
    ),
    (
        "another dict's key",
        trace(at("/workspace/predict.py", 9, "main", 'config["alpha"]'), error="KeyError: 'alpha'"),
        C.RUNTIME_ERROR,
        "KeyError: 'alpha' (predict.py, line 9)",
    ),
    # --- network
    (
        "urllib",
        trace(MAIN, error="socket.gaierror: [Errno -3] Temporary failure in name resolution")
        + DURING
        + trace(MAIN, error="urllib.error.URLError: <urlopen error [Errno -3] Temporary failure "
                "in name resolution>"),
        C.NEEDS_NETWORK,
        "Temporary failure in name resolution",
    ),
    (
        "requests",
        trace(MAIN, error="requests.exceptions.ConnectionError: HTTPSConnectionPool("
              "host='example.invalid', port=443): Max retries exceeded with url: /x (Caused by "
              "NameResolutionError(\"Failed to resolve 'example.invalid'\"))"),
        C.NEEDS_NETWORK,
        "Max retries exceeded",
    ),
    (
        "httpx",
        trace(MAIN, error="httpx.ConnectError: [Errno -3] Temporary failure in name resolution"),
        C.NEEDS_NETWORK,
        "httpx.ConnectError",
    ),
    (
        "address, no name",
        trace(MAIN, error="OSError: [Errno 101] Network is unreachable"),
        C.NEEDS_NETWORK,
        "unreachable",
    ),
    (
        "a model hub",
        trace(MAIN, error="OSError: We couldn't connect to 'https://huggingface.co' to load the "
              "files, and couldn't find them in the cached files."),
        C.NEEDS_NETWORK,
        "huggingface.co",
    ),
    (
        "a model hub, by its own exception",
        trace(MAIN, error="huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an "
              "appropriate cached snapshot folder for the specified revision on the local disk "
              "and outgoing traffic has been disabled."),
        C.NEEDS_NETWORK,
        "outgoing traffic",
    ),
    (
        "a download that was swallowed, and died of later",
        "[nltk_data] Error loading stopwords: <urlopen error [Errno -3]\n"
        "[nltk_data]     Temporary failure in name resolution>\n"
        + trace(MAIN, error="LookupError: \n" + "*" * 70 + "\n  Resource stopwords not found."),
        C.NEEDS_NETWORK,
        "Temporary failure in name resolution",
    ),
    (
        "installing at run time",
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("
        "'<pip._vendor.urllib3.connection.HTTPSConnection>: Failed to establish a new connection: "
        "[Errno -3] Temporary failure in name resolution')': /simple/lightgbm/\n"
        "ERROR: No matching distribution found for lightgbm\n"
        + trace(MAIN, error="ModuleNotFoundError: No module named 'lightgbm'"),
        C.NEEDS_NETWORK,
        "NewConnectionError",
    ),
    (
        "a download that did not matter to the crash",
        "warning: could not check for a new version: <urlopen error [Errno -3] Temporary failure "
        "in name resolution>\n" + trace(PANDAS, error="KeyError: 'label'"),
        C.INPUT_SCHEMA,
        "'label'",
    ),
    # --- resources
    ("memory error", trace(MAIN, error="MemoryError"), C.OUT_OF_MEMORY, "MemoryError"),
    (
        "numpy's memory error",
        trace(MAIN, error="numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.10 TiB "
              "for an array with shape (208000, 208000) and data type float64"),
        C.OUT_OF_MEMORY,
        "Unable to allocate",
    ),
    (
        "fork without memory",
        trace(MAIN, error="OSError: [Errno 12] Cannot allocate memory"),
        C.OUT_OF_MEMORY,
        "Errno 12",
    ),
    (
        "disk full",
        trace(MAIN, error="OSError: [Errno 28] No space left on device: '/out/predictions.csv'"),
        C.DISK_FULL,
        "No space left",
    ),
    (
        "file too large",
        trace(MAIN, error="OSError: [Errno 27] File too large"),
        C.OUTPUT_TOO_LARGE,
        "File too large",
    ),
    (
        "no more threads",
        trace(MAIN, error="RuntimeError: can't start new thread"),
        C.PIDS_LIMIT,
        "new thread",
    ),
    (
        "no more processes",
        trace(
            MAIN,
            at("/usr/lib/python3.11/multiprocessing/popen_fork.py", 66, "f", "pid = os.fork()"),
            error="BlockingIOError: [Errno 11] Resource temporarily unavailable",
        ),
        C.PIDS_LIMIT,
        "Errno 11",
    ),
    (
        "a socket that would block",
        trace(MAIN, error="BlockingIOError: [Errno 11] Resource temporarily unavailable"),
        C.RUNTIME_ERROR,
        "BlockingIOError",
    ),
    (
        "BLAS threads",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource "
        "temporarily unavailable\nOpenBLAS blas_thread_init: ensure that your address space and "
        "process count limits are big enough (ulimit -a)\n",
        C.PIDS_LIMIT,
        "thread 3 of 64",
    ),
    # --- processes
    (
        "worker of joblib",
        'joblib.externals.loky.process_executor._RemoteTraceback: \n"""\n'
        + trace(at("/workspace/train.py", 4, "f", "raise"), error="ValueError: bad value 0")
        + '"""'
        + "\n"
        + DIRECT
        + trace(
            MAIN,
            at(f"{SITE}/joblib/parallel.py", 795, "_return_or_raise", "raise self._result"),
            error="ValueError: bad value 0",
        ),
        C.RUNTIME_ERROR,
        "ValueError: bad value 0 (train.py, line 4)",
    ),
    (
        "worker of multiprocessing",
        'multiprocessing.pool.RemoteTraceback: \n"""\n'
        + trace(MAIN, error="KeyError: 'zz'")
        + '"""\n'
        + DIRECT
        + trace(MAIN, error="KeyError: 'zz'"),
        C.RUNTIME_ERROR,
        "KeyError: 'zz'",
    ),
    (
        "worker without its module",
        trace(MAIN, error="ModuleNotFoundError: No module named 'unidecode'").join(
            ('multiprocessing.pool.RemoteTraceback: \n"""\n', '"""\n')
        )
        + DIRECT
        + trace(MAIN, error="ModuleNotFoundError: No module named 'unidecode'"),
        C.UNDECLARED_DEPENDENCY,
        "unidecode",
    ),
    (
        "pool that broke",
        trace(MAIN, error="concurrent.futures.process.BrokenProcessPool: A process in the process "
              "pool was terminated abruptly while the future was running or pending."),
        C.RUNTIME_ERROR,
        "BrokenProcessPool",
    ),
    (
        "thread first, main last",
        "Exception in thread Thread-1 (work):\n"
        + trace(MAIN, error="ValueError: in a thread")
        + trace(MAIN, error="TypeError: in main"),
        C.RUNTIME_ERROR,
        "TypeError: in main",
    ),
    (
        "what is said on the way out does not count",
        trace(MAIN, error="TypeError: the real one")
        + "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
        + trace(MAIN, error="AttributeError: 'NoneType' object has no attribute 'put'"),
        C.RUNTIME_ERROR,
        "TypeError: the real one",
    ),
    (
        "exception group",
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/workspace/predict.py", line 1, in <module>\n'
        '  |     raise ExceptionGroup("several", [ValueError("x")])\n'
        "  | ExceptionGroup: several (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n    | ValueError: x\n"
        "    +------------------------------------\n",
        C.RUNTIME_ERROR,
        "ValueError: x (predict.py, line 1)",
    ),
    (
        "recursion",
        trace(MAIN, "  [Previous line repeated 995 more times]",
              error="RecursionError: maximum recursion depth exceeded"),
        C.RUNTIME_ERROR,
        "RecursionError",
    ),
    # --- others
    (
        "an absolute path of somebody's machine",
        trace(MAIN, error="FileNotFoundError: [Errno 2] No such file or directory: "
              "'/home/me/model.pkl'"),
        C.RUNTIME_ERROR,
        "/home/me/model.pkl",
    ),
    (
        "waits for input",
        trace(at("/workspace/predict.py", 9, source='input("Path? ")'), error="EOFError: EOF when "
              "reading a line"),
        C.RUNTIME_ERROR,
        "EOFError",
    ),
    (
        "version skew",
        trace(MAIN, error="AttributeError: module 'numpy' has no attribute 'float'"),
        C.RUNTIME_ERROR,
        "'float'",
    ),
    (
        "arguments that the program does not take",
        "usage: predict.py [-h] --in IN\npredict.py: error: unrecognized arguments: --input x\n",
        C.RUNTIME_ERROR,
        "unrecognized arguments",
    ),
    ("says something and exits", "no model, train first\n", C.RUNTIME_ERROR, "train first"),
    ("says nothing", "", C.RUNTIME_ERROR, "exited with status 1 and said nothing"),
    (
        "an exception without a message",
        trace(MAIN, error="AssertionError"),
        C.RUNTIME_ERROR,
        "predict: AssertionError (predict.py, line 12)",
    ),
    (
        "colours",
        "\x1b[31m" + trace(MAIN, error="\x1b[1;35mValueError\x1b[0m: \x1b[35mred\x1b[0m"),
        C.RUNTIME_ERROR,
        "ValueError: red",
    ),
    (
        "Windows line ends",
        trace(MAIN, error="ValueError: x").replace("\n", "\r\n"),
        C.RUNTIME_ERROR,
        "ValueError: x",
    ),
    (
        "replaced bytes and a cut in the middle",
        "caf\ufffd \ufffd\ufffd\n[... 812345 bytes left out ...]\n    return f(x)\n"
        + trace(MAIN, error="KeyError: 'moderator\ufffdflagged'"),
        C.RUNTIME_ERROR,
        "KeyError",
    ),
    (
        "a traceback cut before its end",
        "Traceback (most recent call last):\n" + MAIN,
        C.RUNTIME_ERROR,
        "exited with status 1",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stderr", "failure_class", "says"), [pytest.param(*row[1:], id=row[0]) for row in TRACEBACKS]
)
def test_tracebacks(stderr, failure_class, says):
    failure = classify(evidence(stderr))
    assert failure.failure_class is failure_class, failure
    assert says in failure.sentence


@pytest.mark.parametrize(
    ("what", "failure_class"),
    [
        ({"ending": Ending.TIMEOUT, "exit_code": None}, C.TIMEOUT),
        ({"ending": Ending.OUT_OF_MEMORY, "exit_code": 137}, C.OUT_OF_MEMORY),
        ({"ending": Ending.OUT_OF_MEMORY, "exit_code": 0}, C.OUT_OF_MEMORY),
        ({"ending": Ending.KILLED, "exit_code": 137}, C.KILLED),
        ({"ending": Ending.EXITED, "exit_code": 143}, C.KILLED),
        ({"ending": Ending.EXITED, "exit_code": 139}, C.RUNTIME_ERROR),
        ({"ending": Ending.EXITED, "exit_code": 134}, C.RUNTIME_ERROR),
        ({"ending": Ending.EXITED, "exit_code": 153}, C.OUTPUT_TOO_LARGE),
        ({"ending": Ending.EXITED, "exit_code": 127}, C.RUNTIME_ERROR),
        ({"ending": Ending.EXITED, "exit_code": 127, "name": "serve"}, C.NO_ENTRY_POINT),
        ({"ending": Ending.EXITED, "exit_code": 3}, C.RUNTIME_ERROR),
        ({"ending": Ending.EXITED, "exit_code": 255}, C.RUNTIME_ERROR),
    ],
)
def test_endings(what, failure_class):
    assert classify(evidence(**what)).failure_class is failure_class


@pytest.mark.parametrize("ending", [Ending.TIMEOUT, Ending.OUT_OF_MEMORY])
def test_what_the_engine_saw_outranks_what_was_printed(ending):
    failure = classify(evidence(trace(MAIN, error="ValueError: x"), ending=ending, exit_code=None))
    assert failure.failure_class.value == ending.value


def test_a_crash_printed_before_a_signal_is_the_cause():
    text = trace(MAIN, error="ModuleNotFoundError: No module named 'bs4'")
    assert classify(evidence(text, exit_code=139)).failure_class is C.UNDECLARED_DEPENDENCY


def test_a_segfault_is_named():
    failure = classify(evidence("Fatal Python error: Segmentation fault\n", exit_code=139))
    assert (failure.reason, failure.sentence) == (
        "SIGSEGV",
        "predict crashed below Python, by SIGSEGV: Segmentation fault",
    )


def test_a_traceback_on_stdout_is_found_too():
    failure = classify(evidence(stdout=trace(MAIN, error="ValueError: x")))
    assert failure.sentence == "predict: ValueError: x (predict.py, line 12)"
    assert failure.evidence[0].source == "predict.stdout.txt"


def test_a_submodule_that_an_installed_package_lacks_is_version_skew():
    text = trace(MAIN, error="ModuleNotFoundError: No module named 'sklearn.externals.six'")
    failure = classify(evidence(text, packages=("scikit-learn",)))
    assert (failure.failure_class, failure.reason) == (C.RUNTIME_ERROR, "version skew")


def test_evidence_names_stream_line_and_the_submission_s_own_frame():
    text = "warming up\n" + trace(
        at("/workspace/predict.py", 3, source="import features"),
        at("/workspace/features.py", 7, source="x = 1 / 0"),
        at(f"{SITE}/lib.py", 70, "f", "..."),
        error="ZeroDivisionError: division by zero",
    )
    found = [(e.source, e.line, e.excerpt) for e in classify(evidence(text)).evidence]
    assert found == [
        ("predict.stderr.txt", 9, "ZeroDivisionError: division by zero"),
        ("features.py", 7, "x = 1 / 0"),
    ]


def test_without_knowing_the_columns_a_lookup_in_a_frame_counts():
    text = trace(PANDAS, error="KeyError: 'body'")
    assert classify(evidence(text, columns=None)).failure_class is C.INPUT_SCHEMA


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "Traceback (most recent call last):\n" * 5000,
        trace(MAIN, error="KeyError: " + "[" * 200_000),
        trace(MAIN, error="ValueError: " + "{" * 200_000 + " not in index"),
        "x " * 100_000 + "Could not resolve",
        (" " * 2000 + "\n") * 100,
        '  File "a", line 1\n' * 10_000,
        "\x1b[" * 100_000,
        "[... 1 bytes left out ...]\n" * 20_000,
        '[... 1 bytes left out ...]\n  File "a", line 1, in f\n' * 10_000,
        "  +-+---------------- 1 ----------------\n    | x\n" * 10_000,
        "\u2502 " * 100_000,
        "\u256d\u2500 Traceback (most recent call last) \u2500\u256e\n" * 5000,
        "\u256d\u2500 Traceback (most recent call last) \u2500\u256e\n\u2502 \u2771 1 "
        + " " * 200_000,
        "usage: x\n" * 20_000,
        "Fatal Python error: x\n" * 20_000,
    ],
    ids=range(16),
)
def test_hostile_text_is_read_in_time(text):
    assert classify(evidence(text)).failure_class is C.RUNTIME_ERROR


@pytest.mark.parametrize("half", ["\\ud800", "\\U0000dfff"])
def test_a_column_spelt_as_half_a_character_can_be_recorded(half):
    text = trace(MAIN, error=f"ValueError: columns expected but not found: ['a{half}']")
    failure = classify(evidence(text))
    assert (failure.failure_class, failure.reason) == (C.INPUT_SCHEMA, "a?")
    assert "a?" in failure.model_dump_json()


def test_long_lines_are_cut():
    failure = classify(evidence(trace(MAIN, error="ValueError: " + "x" * 100_000)))
    assert len(failure.sentence) < 600
    assert all(len(item.excerpt) < 600 for item in failure.evidence)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(trace(error=f"KeyError: 0x{'f' * 3990}"), id="number too long for text"),
        pytest.param(trace(error="KeyError: {[1]}"), id="set of lists"),
        pytest.param(trace(error="KeyError: {{}: 1}"), id="key that is a dict"),
        pytest.param(trace(error="ValueError: columns are missing: {[]}"), id="unhashable column"),
        pytest.param(trace(error=f"KeyError: {'(' * 3900}"), id="nested"),
        pytest.param(
            trace(f'  File "a.py", line {"9" * 9000}, in f', error="KeyError: 1"), id="line number"
        ),
    ],
)
def test_a_forged_traceback_is_a_failure_of_the_program(text):
    assert classify(evidence(text)).failure_class in (C.RUNTIME_ERROR, C.INPUT_SCHEMA)


def test_tracebacks_that_never_end_are_each_read_once(monkeypatch):
    looked: list[str] = []

    class Counting:
        def match(self, line: str) -> re.Match[str] | None:
            looked.append(line)
            return frame.match(line)

    frame = tracebacks._FRAME
    monkeypatch.setattr(tracebacks, "_FRAME", Counting())
    text = ' Traceback (most recent call last):\n  File "a", line 1, in f\n    g()\n' * 500
    assert last_crash(text) is None
    assert len(looked) <= 1500


CUT = "[... 812345 bytes left out ...]\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "Traceback (most recent call last):\n"
            + MAIN
            + f"\n{CUT}  rest of a line\n"
            + at("/workspace/features.py", 3, "f", "return f()")
            + "\nKeyError: 'zz'\n",
            id="in the middle",
        ),
        pytest.param(
            f"debug\n{CUT}st of a line\n"
            + at("/workspace/features.py", 3, "f", "return f()")
            + "\nKeyError: 'zz'\n",
            id="its head is gone",
        ),
        pytest.param(
            f"debug\n{CUT}rror: of something else\n"
            + trace(at("/workspace/features.py", 3, "f"), error="KeyError: 'zz'"),
            id="a whole one follows",
        ),
    ],
)
def test_a_traceback_across_a_cut(text):
    assert classify(evidence(text)).sentence == "predict: KeyError: 'zz' (features.py, line 3)"


def test_a_message_that_is_cut_keeps_its_type():
    text = trace(MAIN, error=f"ValueError: {'x' * 999}\n{CUT}{'x' * 999}")
    assert classify(evidence(text)).sentence.startswith("predict: ValueError: xxx")


def test_the_thread_that_died_is_told_from_others():
    text = (
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f (most recent call first):\n"
        '  File "/workspace/train.py", line 5 in wait\n\n'
        "Current thread 0x00007e (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/workspace/features.py", line 3 in f\n'
        '  File "/workspace/predict.py", line 9 in <module>\n\n'
        "Extension modules: numpy (total: 1)\n"
    )
    place = classify(evidence(text, exit_code=139)).evidence[-1]
    assert (place.source, place.line) == ("features.py", 3)


def test_an_ending_that_the_engine_does_not_tell_is_unknown():
    failure = classify(evidence(trace(MAIN, error="ValueError: x"), exit_code=None))
    assert (failure.failure_class, failure.attribution) == (C.UNKNOWN, Attribution.UNKNOWN)


@pytest.mark.parametrize("ending", [Ending.EXITED, Ending.KILLED])
def test_status_137_alone_is_neither_memory_nor_a_signal(ending):
    failure = classify(evidence("Killed\n", exit_code=137, ending=ending))
    assert failure.failure_class is C.KILLED
    assert not re.search("SIGKILL|memory", failure.sentence)


@pytest.mark.parametrize("attribution", [Attribution.HARNESS, Attribution.TASK])
@pytest.mark.parametrize("exit_code", [0, 1, 2, 125, 126, 127, 134, 137, 139, 255])
def test_nothing_that_a_program_prints_makes_it_another_s_failure(attribution, exit_code):
    classes = [c for c in C if TABLE[c].attribution is attribution]
    words = "\n".join(f"orch: {c.value} ({attribution.value}): {TABLE[c].mend}" for c in classes)
    texts = (words, trace(MAIN, error=f"{classes[0].value}: {words}"), f"{DIRECT}{words}\n")
    for text in texts:
        for found in (evidence(text, exit_code=exit_code), evidence("", text, exit_code=exit_code)):
            assert classify(found).attribution is Attribution.MODEL
            assert without_output(found, "predictions.csv").attribution is Attribution.MODEL


def test_a_module_of_compiled_code_is_not_the_submission_s():
    frame = at("pandas/_libs/hashtable_class_helper.pxi", 7734, "get_item")
    text = trace(MAIN, frame, error="TypeError: x")
    assert classify(evidence(text)).sentence == "predict: TypeError: x (predict.py, line 12)"


@pytest.mark.parametrize("key", ["()", "[]", ""])
def test_a_key_that_is_no_name_is_no_column(key):
    assert (
        classify(evidence(trace(MAIN, error=f"KeyError: {key}"))).failure_class is C.RUNTIME_ERROR
    )


FATAL = (
    "Fatal Python error: Aborted\n\nCurrent thread 0x00007e (most recent call first):\n"
    '  File "/workspace/predict.py", line 9 in <module>\n'
)


@pytest.mark.parametrize(
    ("before", "failure_class"),
    [
        ("terminate called after throwing an instance of 'std::bad_alloc'\n", C.OUT_OF_MEMORY),
        ("OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64\n", C.PIDS_LIMIT),
        ("warming up\n", C.RUNTIME_ERROR),
    ],
)
def test_the_limit_that_compiled_code_tells_of_is_why_it_crashed(before, failure_class):
    assert classify(evidence(before + FATAL, exit_code=134)).failure_class is failure_class


def test_an_exception_that_aborts_on_its_way_out_is_the_cause():
    text = trace(MAIN, error="KeyError: 'label'") + "terminate called without an active exception\n"
    assert classify(evidence(text, exit_code=134)).failure_class is C.INPUT_SCHEMA


def test_a_module_missed_early_and_done_without_is_not_what_it_ended_of():
    lines = ["No module named 'lightgbm'", "using another", "read", "fitted", "no such folder"]
    assert classify(evidence("\n".join(lines))).failure_class is C.RUNTIME_ERROR
    assert classify(evidence("\n".join(lines[1:3] + lines[:1]))).reason == "lightgbm"


def test_an_exception_on_stdout_and_a_crash_on_stderr():
    printed = "\n" * 99 + trace(MAIN, error="ModuleNotFoundError: No module named 'bs4'")
    found = classify(evidence(FATAL, printed, exit_code=134))
    assert found.reason == "SIGABRT"
    assert [(one.source, one.line) for one in found.evidence] == [
        ("predict.stderr.txt", 1),
        ("predict.py", 9),
    ]


@pytest.mark.parametrize(
    ("exit_code", "failure_class"), [(137, C.KILLED), (143, C.KILLED), (153, C.OUTPUT_TOO_LARGE)]
)
def test_an_exception_that_was_outlived_is_not_what_a_signal_came_of(exit_code, failure_class):
    text = trace(MAIN, error="ModuleNotFoundError: No module named 'lightgbm'")
    assert classify(evidence(text, exit_code=exit_code)).failure_class is failure_class
    assert classify(evidence("", text, exit_code=exit_code)).failure_class is failure_class


def test_an_interrupt_of_its_own_is_an_exception():
    text = trace(MAIN, error="KeyboardInterrupt")
    assert classify(evidence(text, exit_code=130)).evidence[-1].source == "predict.py"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("OSError: [Errno 30] Read-only file system: '/model.pkl'", "read-only place"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x.csv'", "no permission"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/workspace/m'", "missing file"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/outside/m'", "absolute path"),
        (
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected "
            "96 from C header, got 88 from PyObject",
            "version skew",
        ),
        ("ImportError: numpy.core.multiarray failed to import", "version skew"),
        ("AttributeError: module 'numpy' has no attribute 'float'.", "version skew"),
        ("AttributeError: module 'features' has no attribute 'build'", "own name not found"),
        ("KeyError: 118", ""),
        ("ValueError: bad", ""),
    ],
)
def test_reasons_that_are_finer_than_a_crash(error, reason):
    failure = classify(evidence(trace(MAIN, error=error)))
    assert (failure.failure_class, failure.reason) == (C.RUNTIME_ERROR, reason)


def test_a_warning_of_another_version_is_no_cause():
    warning = (
        f"{SITE}/sklearn/base.py:376: InconsistentVersionWarning: Trying to unpickle estimator "
        "SGDClassifier from version 1.2.2 when using version 1.5.2.\n  warnings.warn(\n"
    )
    failure = classify(evidence(warning + trace(MAIN, error="ValueError: bad") + warning))
    assert failure.sentence == "predict: ValueError: bad (predict.py, line 12)"
