"""The texts by which failures are known: what Python, its libraries and the system print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from packaging.utils import canonicalize_name

from orchestrator.records.failures import FailureClass
from orchestrator.sandbox.resolution import IMPORT_NAMES
from orchestrator.scoring.tracebacks import Crash

_C = FailureClass

# --- the program is not there -------------------------------------------------------------------

_SCRIPT_TEXTS = (
    re.compile(r"^\S*python[\d.]*: can't open file .*$", re.MULTILINE),
    re.compile(r"^\S*python[\d.]*: can't find '__main__' module in .*$", re.MULTILINE),
    re.compile(r"^\S*python[\d.]*: No module named \S+$", re.MULTILINE),
    re.compile(r"^\S*python[\d.]*: Error while finding module specification.*$", re.MULTILINE),
    re.compile(r"^.*(?:exec failed|executable file not found).*$", re.MULTILINE),
)


def missing_script(text: str) -> str | None:
    """The line that says that the program to run does not exist."""
    for pattern in _SCRIPT_TEXTS:
        found = pattern.search(text)
        if found:
            return found.group(0)
    return None


def script_of(command: Sequence[str]) -> str:
    """The file or module that a command starts: the first argument that is no option."""
    arguments = list(command[1:]) if "python" in command[0] else list(command)
    return next((part for part in arguments if not part.startswith("-")), command[0])


_FILE_IN_MESSAGE = re.compile(r"in file (\S+) on line \d+|\(([\w.-]+\.py), line \d+\)")


def file_in_message(message: str) -> str | None:
    """The file that an undecodable or unparsable source names in its message."""
    found = _FILE_IN_MESSAGE.search(message)
    return (found.group(1) or found.group(2)) if found else None


# --- imports ------------------------------------------------------------------------------------

_NO_MODULE = re.compile(r"^No module named '?([\w.]+)'?$", re.MULTILINE)
_OPTIONAL = re.compile(
    r"Missing optional dependency '([\w.-]+)'"
    r"|`?([\w.-]+)`? (?:is not installed|must be installed|is required (?:for|to)\b)"
    r"|Unable to find a usable engine; tried using: '(\w+)'"
)


def missing_module(crash: Crash) -> str | None:
    """The module that could not be imported because nothing provides it."""
    if crash.name == "ModuleNotFoundError":
        found = _NO_MODULE.search(crash.message.split("\n", 1)[0])
        return found.group(1) if found else None
    if crash.name == "ImportError":
        optional = _OPTIONAL.search(crash.message)
        if optional:
            return next(group for group in optional.groups() if group)
    return None


_SAID_NO_MODULE = re.compile(r"\bNo module named '([\w.]+)'\.?$")
LAST_WORDS = 3
"""Lines at the end of what a program said that can tell what it ended of."""


def said_missing_module(*texts: str) -> tuple[str, str] | None:
    """The module that a program, which caught the exception, told of at its end; and the line."""
    for text in texts:
        for line in _last_lines(text, LAST_WORDS):
            found = _SAID_NO_MODULE.search(line)
            if found:
                return found.group(1), line
    return None


def package_of(module: str) -> str:
    """The package that provides a module, where the names are known to differ."""
    return IMPORT_NAMES.get(canonicalize_name(module), module)


def provides(packages: frozenset[str], module: str) -> bool:
    """Whether one of the installed packages is the module's."""
    return canonicalize_name(package_of(module)) in packages


# --- saved objects ------------------------------------------------------------------------------

_NO_ATTRIBUTE = re.compile(r"Can't get attribute '([^']+)' on <module '([^']+)'")
_CANT_PICKLE = re.compile(
    r"Can't (?:get|pickle) local object|^Can't pickle |attribute lookup \S+ on \S+ failed"
    r"|^cannot pickle '|^Could not pickle "
)
_UNPICKLERS = ("pickle.py", "numpy_pickle.py", "dill/_dill.py", "cloudpickle.py")
_UNPICKLING = re.compile(r"\b(?:pickle|joblib|dill|cloudpickle)\.loads?\(|find_class|\.load\(\)")


def unpicklable(crash: Crash) -> str | None:
    """What can't be saved or loaded, in words."""
    found = _NO_ATTRIBUTE.search(crash.message)
    if crash.name == "AttributeError" and found:
        return (
            f"the saved object needs {found.group(1)} of {found.group(2)}, "
            "which this program does not have"
        )
    if crash.name in ("PicklingError", "AttributeError", "TypeError") and _CANT_PICKLE.search(
        crash.message
    ):
        return crash.text
    return None


def while_unpickling(crash: Crash) -> bool:
    return any(
        frame.file.endswith(_UNPICKLERS) or _UNPICKLING.search(frame.source)
        for frame in crash.frames
    )


# --- columns ------------------------------------------------------------------------------------

_COLUMN_LISTS = (
    re.compile(r"columns expected but not found: (\[.*?\])"),
    re.compile(r"None of \[?Index\((\[.*?\])"),
    re.compile(r"(\[[^\]]*\]) not (?:in index|found in axis)"),
    re.compile(r"Missing column provided to 'parse_dates': '?([^'\n]+)"),
    re.compile(r"columns are missing: (\{.*?\})"),
    re.compile(r"not columns of the dataframe: (\{.*?\})"),
    re.compile(r"unable to find column (\".*?\")"),
    re.compile(r"^(\".*?\") not found"),
)
_UNSEEN = re.compile(
    r"(?:unseen at fit time|seen at fit time, yet now missing):\n((?:- .*\n?)+)", re.MULTILINE
)
_FRAME_LOOKUP = re.compile(r"pandas/core/frame\.py$")
_ROW_LOOKUP = re.compile(r"\b(?:row|r|rec|record|line|message|msg|item)\[")
_DICT_LOOKUP = re.compile(r"\[[\"'](?P<key>[^\"']+)[\"']\]")
_ATTRIBUTE = re.compile(r"'DataFrame' object has no attribute '([^']+)'")
_COLUMN_ERRORS = ("KeyError", "ValueError", "AttributeError", "ColumnNotFoundError")


def missing_columns(
    crash: Crash, columns: frozenset[str] | None, elsewhere: frozenset[str]
) -> list[str] | None:
    """Columns that a program looked up and its input lacks, or None.

    `columns` are the input's, `elsewhere` those of the task's other files: a key of theirs is a
    column whatever was asked for it. A name that the input has was lost by the program itself,
    which is another failure; where `columns` is None a lookup in a data frame counts.
    """
    if crash.name not in _COLUMN_ERRORS:
        return None
    if crash.name == "KeyError":
        keys = _names(crash.first)
        if keys and set(keys) <= elsewhere - (columns or set()):
            return keys
    names = _named(crash)
    if not names:
        return None
    if columns is None:
        return names
    lacking = [name for name in names if name not in columns]
    return lacking or None


def _named(crash: Crash) -> list[str] | None:
    message = crash.message.strip('"') if crash.name == "KeyError" else crash.message
    for pattern in _COLUMN_LISTS:
        found = pattern.search(message)
        if found:
            return _names(found.group(1))
    unseen = _UNSEEN.search(message)
    if unseen:
        return [line[2:].strip() for line in unseen.group(1).splitlines()]
    if crash.name == "KeyError" and _looked_up_a_column(crash):
        return _names(crash.first)
    attribute = _ATTRIBUTE.match(message)
    # What is called is a method, of another version of pandas maybe, and no column.
    called = attribute and any(f".{attribute.group(1)}(" in f.source for f in crash.frames)
    return [attribute.group(1)] if attribute and not called else None


def _looked_up_a_column(crash: Crash) -> bool:
    """A key that a data frame or a row of a csv.DictReader was asked for."""
    if any(_FRAME_LOOKUP.search(frame.file) for frame in crash.frames):
        return True
    key = crash.first.strip("'\"")
    last = crash.frames[-1] if crash.frames else None
    if last is None or not _ROW_LOOKUP.search(last.source):
        return False
    found = _DICT_LOOKUP.search(last.source)
    return found is None or key in last.source


def _names(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text.strip())
        if isinstance(value, (list, tuple, set)):
            return sorted(_whole(str(item)) for item in value)
        return [_whole(str(value))]
    # The text is anything that a program prints: nested, unhashable, a number without end.
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return [text.strip().strip("'\"")]


def _whole(text: str) -> str:
    """Without halves of surrogate pairs, which an escape can stand for and no record can hold."""
    return text.encode(errors="replace").decode()


# --- resources ----------------------------------------------------------------------------------

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_BY_ERRNO = {
    "12": _C.OUT_OF_MEMORY,
    "27": _C.OUTPUT_TOO_LARGE,
    "28": _C.DISK_FULL,
    "122": _C.DISK_FULL,
}
_FORKING = re.compile(r"\bfork|subprocess|popen|Popen|_start_new_thread|start_new_thread")


def exhausted(crash: Crash) -> FailureClass | None:
    """The limit that an exception tells of, or None."""
    if crash.name in ("MemoryError", "_ArrayMemoryError"):
        return _C.OUT_OF_MEMORY
    if "can't start new thread" in crash.message:
        return _C.PIDS_LIMIT
    if "DefaultCPUAllocator: can't allocate memory" in crash.message:
        return _C.OUT_OF_MEMORY
    errno = _ERRNO.search(crash.message)
    if errno is None:
        return None
    if errno.group(1) == "11":
        forking = any(
            _FORKING.search(f"{frame.file} {frame.function} {frame.source}")
            for frame in crash.frames
        )
        return _C.PIDS_LIMIT if forking else None
    return _BY_ERRNO.get(errno.group(1))


_TEXTS = (
    (
        _C.PIDS_LIMIT,
        re.compile(
            r"^.*(?:blas_thread_init: pthread_create failed|Thread creation failed"
            r"|[Cc]an(?:'|no)t (?:fork|start new thread)|fork: (?:retry: )?Resource temporarily"
            r"|pthread_create.*Resource temporarily|unable to create thread).*$",
            re.MULTILINE,
        ),
    ),
    (
        _C.DISK_FULL,
        re.compile(r"^.*(?:No space left on device|database or disk is full).*$", re.MULTILINE),
    ),
    (
        _C.OUTPUT_TOO_LARGE,
        re.compile(r"^.*File (?:too large|size limit exceeded).*$", re.MULTILINE),
    ),
    (
        _C.OUT_OF_MEMORY,
        re.compile(r"^.*(?:Cannot allocate memory|std::bad_alloc|^MemoryError).*$", re.MULTILINE),
    ),
)


def by_text(text: str) -> tuple[FailureClass, str] | None:
    """A limit that a tool told of without a Python exception, and the line that did."""
    for failure_class, pattern in _TEXTS:
        found = pattern.search(text)
        if found:
            return failure_class, found.group(0).strip()
    return None


# --- network ------------------------------------------------------------------------------------

_NETWORK = re.compile(
    r"^.*(?:gaierror|Temporary failure in name resolution|Name or service not known"
    r"|No address associated with hostname|Network is unreachable|No route to host"
    r"|NameResolutionError|NewConnectionError|Failed to resolve|Could not resolve host"
    r"|Max retries exceeded with url|urlopen error \[Errno -|Failed to establish a new connection"
    r"|[Cc]ould(?:n't| not) connect to '?https?:|LocalEntryNotFoundError|OfflineModeIsEnabled"
    r"|outgoing traffic has been disabled|dns error|error resolving DNS"
    r"|[Cc]ould not translate host name|no validated address for host|APIConnectionError"
    r"|Could not find a version that satisfies .*\(from versions: none\)"
    r"|Please use the NLTK Downloader).*$",
    re.MULTILINE,
)
_NETWORK_TYPES = re.compile(
    r"^(?:socket\.gaierror|requests\.exceptions\.(?:ConnectionError|ConnectTimeout|ProxyError)"
    r"|urllib3\.exceptions\.\w+|httpx\.Connect(?:Error|Timeout)|httpcore\.Connect\w+"
    r"|aiohttp\.client_exceptions\.Client\w+|huggingface_hub\.\w*\.?\w*LocalEntryNotFoundError"
    r"|(?:urllib\.error\.)?URLError)$"
)


_NOT_NETWORK = re.compile(r"urlopen error (?:unknown url type|\[Errno 2\])")
_LOCAL = re.compile(r"/multiprocessing/")
"""Its managers and listeners talk to processes of the same program."""


def is_network(crash: Crash) -> bool:
    if _NOT_NETWORK.search(crash.message):
        return False
    if crash.name == "ConnectionRefusedError":
        return not any(_LOCAL.search(frame.file) for frame in crash.frames)
    return bool(_NETWORK_TYPES.match(crash.type) or _NETWORK.search(crash.message))


def network_line(*texts: str) -> str | None:
    """The last line that tells of a name or address that did not answer."""
    for text in texts:
        found = [match.group(0).strip() for match in _NETWORK.finditer(text)]
        if found:
            return found[-1]
    return None


# --- endings ------------------------------------------------------------------------------------

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""Linux's numbers, whatever the host is: there a container's process runs."""


def signal_name(exit_code: int | None) -> str | None:
    """The signal that an exit status over 128 stands for, as a shell and the engine report it."""
    return None if exit_code is None else _SIGNALS.get(exit_code - 128)


_USAGE = re.compile(r"^usage: (?:.*\n){1,40}?.*(?:: error: |^Error: |─ Error ─)", re.M | re.I)


def is_usage(text: str) -> bool:
    """Whether argparse, click or typer refused the arguments."""
    return _USAGE.search(text) is not None


def last_line(text: str) -> str:
    """The last line with content, or ""."""
    return next(_last_lines(text, 1), "")


_FRAMING = " \t│╰─╯"
"""White space and the box that some draw around what they say."""


def _last_lines(text: str, count: int) -> Iterator[str]:
    """The last lines with content, from the end."""
    lines = (line.strip(_FRAMING) for line in reversed(text.splitlines()))
    return islice((line for line in lines if line), count)
