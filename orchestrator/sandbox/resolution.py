"""What uv said when it could not resolve or install, as a failure of the table.

A pure function over its text. The texts were taken from real runs of uv 0.13; a text that fits
none of them is the harness's (`index-unavailable` is never guessed) and comes out as `unknown`.
"""

from __future__ import annotations

import re
import sys

from packaging.utils import canonicalize_name

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure

_C = FailureClass
SOURCE = "resolver"
MAX_EXPLANATION = 600

IMPORT_NAMES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "imblearn": "imbalanced-learn",
    "mpl-toolkits": "matplotlib",
    "pil": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Names that are imported, canonical, and the package that provides each."""

_MARKERS = re.compile(r"\{[^{}\n]*\}")
_NOT_FOUND = re.compile(r"(?:Because|and) ([\w.-]+) was not found in the package registry")
_NO_WHEELS = re.compile(
    r"\b([\w.-]+?)(?:[=<>!~]=?\S*)? (?:has|have) no "
    r"(?:usable wheels|wheels with a matching [\w ]+ tag|`[^`]+`-compatible wheels)"
)
_NO_VERSION = re.compile(
    r"there (?:is|are) no versions? of ([\w.-]+?)([=<>!~]=?\S+)?(?: and|,|$| \()"
    r"|only ([\w.-]+?)([=<>!~]=?\S+) (?:is|are) available",
    re.MULTILINE,
)
_PYTHON = re.compile(
    r"the (?:requested|current) Python version \(([^)]+)\) does not satisfy Python(\S+)"
)
_UNBUILT = re.compile(r"Failed to build `([^`\n]+)`\n\s*cause: The build backend returned an error")
_LAST_ERROR = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception)\b.*|.*\berror: .*)$", re.MULTILINE)
_CREDENTIALS = re.compile(r"://[^/@\s`]+@")
_INDEX_TEXTS = (
    "Failed to fetch",
    "Request failed after",
    "Failed to download",
    "error sending request",
    "could not be queried due to a lack of valid authentication",
    "returned a 403 Forbidden",
    "dns error",
    "tcp connect error",
    "operation timed out",
    "invalid peer certificate",
    "error decoding response body",
)
_DISK_TEXTS = ("No space left on device", "Disk quota exceeded")


def resolver_failure(text: str) -> Failure:
    """The failure behind uv's error output (stderr of `uv pip compile` or `uv pip sync`)."""
    # Markers come back as they were declared: no words of theirs are uv's.
    text = _CREDENTIALS.sub("://", _MARKERS.sub("", text))
    explanation = _explanation(text)
    # What a package's own build says comes first: none of its words are uv's either.
    for classify in (_unbuilt, _disk, _mismatch, _index, _not_found, _unavailable, _conflict):
        found = classify(text, explanation)
        if found is not None:
            return found
    last = explanation.splitlines()[-1] if explanation else "no output"
    return _failure(_C.UNKNOWN, f"uv failed: {last}", explanation)


def _failure(failure_class: FailureClass, sentence: str, explanation: str) -> Failure:
    evidence = [Evidence(source=SOURCE, line=1, excerpt=explanation)] if explanation else []
    return Failure(failure_class=failure_class, sentence=sentence, evidence=evidence)


def _explanation(text: str) -> str:
    """uv's reasoning without its boxes and hints' duplicates, cut to what a person reads."""
    lines = [line.strip().removeprefix("cause: ") for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("warning:")]
    joined = "\n".join(kept).removeprefix("error: No solution found when resolving dependencies\n")
    if len(joined) <= MAX_EXPLANATION:
        return joined
    half = MAX_EXPLANATION // 2
    return f"{joined[:half]}\n…\n{joined[-half:]}"


def _unbuilt(text: str, explanation: str) -> Failure | None:
    found = _UNBUILT.search(text)
    if found is None:
        return None
    name = re.split(r"[=<>!~ @]", found.group(1), maxsplit=1)[0]
    if canonicalize_name(name) in IMPORT_NAMES:
        return _failure(_C.DEPENDENCY_NOT_FOUND, _absent(name), explanation)
    errors = _LAST_ERROR.findall(text[found.end() :])
    said = f": {errors[-1].strip()[:200]}" if errors else ""
    return _failure(
        _C.DEPENDENCY_UNAVAILABLE, f"{found.group(1)} can't be built here{said}", explanation
    )


def _disk(text: str, explanation: str) -> Failure | None:
    if not any(known in text for known in _DISK_TEXTS):
        return None
    return _failure(
        _C.HOST_DISK_FULL, "the engine's disk was full when installing dependencies", explanation
    )


def _mismatch(text: str, explanation: str) -> Failure | None:
    if "Hash mismatch" not in text:
        return None
    named = re.search(r"Hash mismatch for `([^`]+)`", text)
    which = named.group(1) if named else "a package"
    return _failure(
        _C.INDEX_UNAVAILABLE, f"the index served {which} with another hash than locked", explanation
    )


def _index(text: str, explanation: str) -> Failure | None:
    if not any(known in text for known in _INDEX_TEXTS):
        return None
    cause = next(
        (line for line in reversed(explanation.splitlines()) if not line.startswith("hint:")), ""
    )
    return _failure(
        _C.INDEX_UNAVAILABLE, f"the package index did not answer as it should: {cause}", explanation
    )


def _not_found(text: str, explanation: str) -> Failure | None:
    names = _unique(_NOT_FOUND.findall(text))
    # An import name whose package exists only as a source stub is no better than none.
    names += [n for n in _unique(_NO_WHEELS.findall(text)) if canonicalize_name(n) in IMPORT_NAMES]
    if names:
        return _failure(
            _C.DEPENDENCY_NOT_FOUND, "; ".join(_absent(name) for name in names), explanation
        )
    version = _NO_VERSION.search(text)
    if version is None or _requirers(text):
        return None
    name = version.group(1) or version.group(3)
    wanted = re.search(rf"you require {re.escape(name)}([^\s,]*)", text)
    asked = (wanted.group(1) if wanted else version.group(2)) or ""
    there = f" (the index has {name}{version.group(4)})" if version.group(4) else ""
    return _failure(
        _C.DEPENDENCY_NOT_FOUND, f"no version of {name} fits {name}{asked}{there}", explanation
    )


def _requirers(text: str) -> bool:
    """Whether another package's requirement takes part, which makes it a conflict."""
    return " depends on " in text


def _absent(name: str) -> str:
    canonical = canonicalize_name(name)
    if canonical in IMPORT_NAMES:
        return f"{name} is what is imported; the package is called {IMPORT_NAMES[canonical]}"
    if name in sys.stdlib_module_names:
        return f"{name} is a module of Python's standard library and no package of the index"
    return f"no package {name} exists"


def _unavailable(text: str, explanation: str) -> Failure | None:
    python = _PYTHON.search(text)
    wheels = _unique(_NO_WHEELS.findall(text))
    if wheels:
        sentence = f"no wheel of {', '.join(wheels)} fits this platform"
    elif python is not None:
        sentence = f"a declared package needs Python {python.group(2)}, this is {python.group(1)}"
    else:
        return None
    return _failure(_C.DEPENDENCY_UNAVAILABLE, sentence, explanation)


def _conflict(text: str, explanation: str) -> Failure | None:
    if "unsatisfiable" not in text and "are incompatible" not in text:
        return None
    reasons = [line for line in explanation.splitlines() if not line.startswith("hint:")]
    return _failure(
        _C.DEPENDENCY_CONFLICT,
        f"the declared versions exclude one another: {' '.join(reasons)}",
        explanation,
    )


def _unique(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
