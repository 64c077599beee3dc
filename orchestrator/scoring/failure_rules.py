"""The texts by which failures are known: what Python, its libraries and the system print."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

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
    r"Missing optional dependency '([\w.-]+)'|`?([\w.-]+)`? (?:is not installed|must be installed)"
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
    r"|^cannot pickle '"
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
)
_UNSEEN = re.compile(
    r"(?:unseen at fit time|seen at fit time, yet now missing):\n((?:- .*\n?)+)", re.MULTILINE
)
_FRAME_LOOKUP = re.compile(r"pandas/core/frame\.py$")
_DICT_LOOKUP = re.compile(r"\[[\"'](?P<key>[^\"']+)[\"']\]")


def missing_columns(
    crash: Crash, columns: frozenset[str] | None, elsewhere: frozenset[str]
) -> list[str] | None:
    """Columns that a program looked up and its input lacks, or None.

    `columns` are the input's, `elsewhere` those of the task's other files: a key of theirs is a
    column whatever was asked for it. A name that the input has was lost by the program itself,
    which is another failure; where `columns` is None a lookup in a data frame counts.
    """
    if crash.name not in ("KeyError", "ValueError", "AttributeError"):
        return None
    if crash.name == "KeyError" and set(_names(crash.message)) <= elsewhere - (columns or set()):
        return _names(crash.message)
    names = _named(crash)
    if names is None:
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
        return _names(crash.message)
    attribute = re.match(r"'DataFrame' object has no attribute '([^']+)'", message)
    return [attribute.group(1)] if attribute else None


def _looked_up_a_column(crash: Crash) -> bool:
    """A key that a data frame or a row of a csv.DictReader was asked for."""
    if any(_FRAME_LOOKUP.search(frame.file) for frame in crash.frames):
        return True
    key = crash.message.strip("'\"")
    last = crash.frames[-1] if crash.frames else None
    if last is None or not re.search(
        r"\b(?:row|r|rec|record|line|message|msg|item)\[", last.source
    ):
        return False
    found = _DICT_LOOKUP.search(last.source)
    return found is None or key in last.source


def _names(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text.strip())
        if isinstance(value, (list, tuple, set)):
            return sorted(str(item) for item in value)
        return [str(value)]
    # The text is anything that a program prints: nested, unhashable, a number without end.
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return [text.strip().strip("'\"")]


# --- resources ----------------------------------------------------------------------------------

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_BY_ERRNO = {"12": _C.OUT_OF_MEMORY, "27": _C.OUTPUT_TOO_LARGE, "28": _C.DISK_FULL}
_BY_ERRNO["122"] = _C.DISK_FULL
_FORKING = re.compile(r"\bfork|subprocess|popen|Popen|_start_new_thread|start_new_thread")


def exhausted(crash: Crash) -> FailureClass | None:
    """The limit that an exception tells of, or None."""
    if crash.name in ("MemoryError", "_ArrayMemoryError"):
        return _C.OUT_OF_MEMORY
    if "can't start new thread" in crash.message or "can't allocate lock" in crash.message:
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
    (_C.DISK_FULL, re.compile(r"^.*No space left on device.*$", re.MULTILINE)),
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
    r"|outgoing traffic has been disabled|dns error|error resolving DNS).*$",
    re.MULTILINE,
)
_NETWORK_TYPES = re.compile(
    r"^(?:socket\.gaierror|requests\.exceptions\.(?:ConnectionError|ConnectTimeout|ProxyError)"
    r"|urllib3\.exceptions\.\w+|httpx\.Connect(?:Error|Timeout)|httpcore\.Connect\w+"
    r"|aiohttp\.client_exceptions\.Client\w+|huggingface_hub\.\w*\.?\w*LocalEntryNotFoundError"
    r"|(?:urllib\.error\.)?URLError)$"
)


def is_network(crash: Crash) -> bool:
    return bool(_NETWORK_TYPES.match(crash.type) or _NETWORK.search(crash.message))


def network_line(*texts: str) -> str | None:
    """The last line that tells of a name or address that did not answer."""
    for text in texts:
        found = [match.group(0).strip() for match in _NETWORK.finditer(text)]
        if found:
            return found[-1]
    return None


# --- everything else ----------------------------------------------------------------------------

_ABSOLUTE = re.compile(r"'(/[^']+)'")
_REASONS = (
    ("EOFError", re.compile(r"EOF when reading a line"), "waits for input"),
    ("UnpicklingError", re.compile(r"invalid load key, 'v'"), "git-lfs pointer"),
    ("OSError", re.compile(r"Read-only file system"), "read-only place"),
    ("PermissionError", re.compile(r""), "no permission"),
    ("ImportError", re.compile(r"cannot import name"), "version skew"),
    ("AttributeError", re.compile(r"^module '\w+' has no attribute"), "version skew"),
    ("TerminatedWorkerError", re.compile(r""), "worker died"),
    ("BrokenProcessPool", re.compile(r""), "worker died"),
    ("RecursionError", re.compile(r""), "recursion"),
)


def reason_of(crash: Crash) -> str:
    """A finer word for a runtime error, or ""."""
    if crash.name == "FileNotFoundError":
        path = _ABSOLUTE.search(crash.message)
        foreign = path and not path.group(1).startswith(("/workspace", "/out", "/data", "/in"))
        return "absolute path" if foreign else "missing file"
    for name, pattern, reason in _REASONS:
        if crash.name == name and pattern.search(crash.message):
            return reason
    return ""


def last_line(text: str) -> str:
    """The last line with content, or ""."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
