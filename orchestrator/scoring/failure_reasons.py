"""Why a program ended by an exception, in a word finer than `runtime-error`."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from pathlib import PurePosixPath

from orchestrator.scoring.failure_rules import while_unpickling
from orchestrator.scoring.runtime import DATA, INPUT, OUTPUT, WORKSPACE
from orchestrator.scoring.tracebacks import Crash

_QUOTED = re.compile(r"'(/[^']+)'")
_OWN_PLACES = (WORKSPACE, DATA, INPUT, OUTPUT)
_FROM_MODULE = re.compile(
    r"^cannot import name '\w+' from (?:partially initialized module )?'([\w.]+)'"
    r"|^(?:partially initialized )?module '([\w.]+)' has no attribute"
    r"|^No module named '([\w.]+)'; '\w+' is not a package"
)
_SKEW = re.compile(
    r"may indicate binary incompatibility|^numpy\.core\.\w+ failed to import"
    r"|compiled using NumPy 1\.x|^'(?:DataFrame|Series|Index|ndarray)' object has no attribute"
)
_REASONS = (
    ("EOFError", re.compile(r"EOF when reading a line"), "waits for input"),
    ("EOFError", re.compile(r"Ran out of input"), "empty file"),
    ("UnpicklingError", re.compile(r"invalid load key, 'v'"), "git-lfs pointer"),
    # The first letter of its text, taken for an instruction of a saved object.
    ("KeyError", re.compile(rf"^{ord('v')}$"), "git-lfs pointer"),
    ("OSError", re.compile(r"\[Errno 24\]"), "open files"),
    ("OSError", re.compile(r"Read-only file system"), "read-only place"),
    ("PermissionError", re.compile(r""), "no permission"),
    ("ImportError", re.compile(r"^attempted relative import"), "relative import"),
    ("ImportError", re.compile(r"circular import"), "circular import"),
    ("AttributeError", re.compile(r"circular import"), "circular import"),
    ("TypeError", re.compile(r"got an unexpected keyword argument"), "unexpected argument"),
    ("UnicodeDecodeError", re.compile(r""), "not text"),
    ("NotFittedError", re.compile(r""), "not fitted"),
    ("TerminatedWorkerError", re.compile(r""), "worker died"),
    ("BrokenProcessPool", re.compile(r""), "worker died"),
    ("RecursionError", re.compile(r""), "recursion"),
)


def reason_of(crash: Crash, own_modules: Collection[str]) -> str:
    """A finer word for a runtime error, or "". `own_modules` are the submission's."""
    for find in (_missing_file, _by_text, _of_module):
        found: str = find(crash, own_modules)
        if found:
            return found
    return ""


def _missing_file(crash: Crash, _: Collection[str]) -> str:
    if crash.name != "FileNotFoundError":
        return ""
    quoted = _QUOTED.search(crash.message)
    if quoted is None:
        return "missing file"
    path = PurePosixPath(quoted.group(1))
    if path.is_relative_to("/tmp"):
        return "kept in /tmp"
    own = any(path.is_relative_to(place) for place in _OWN_PLACES)
    return "missing file" if own else "absolute path"


def _by_text(crash: Crash, _: Collection[str]) -> str:
    for name, pattern, reason in _REASONS:
        if crash.name == name and pattern.search(crash.message):
            return reason if name != "KeyError" or while_unpickling(crash) else ""
    return ""


def _of_module(crash: Crash, own_modules: Collection[str]) -> str:
    """Whether a module is of another version, or is not the one that was meant."""
    found = _FROM_MODULE.search(crash.message)
    if found is None:
        return "version skew" if _SKEW.search(crash.message) else ""
    top = next(group for group in found.groups() if group).partition(".")[0]
    if top not in own_modules:
        return "version skew"
    shadowed = top in sys.stdlib_module_names or "not a package" in crash.message
    return "shadows a module" if shadowed else "own name not found"
