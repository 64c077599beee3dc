"""What a submission declares that it needs: parsed, and refused where policy says so.

Only plain requirements (`name`, extras, versions, markers, hashes) reach the resolver. A line that
would make it read another file, another index or a repository is refused before anything reads it.
"""

from __future__ import annotations

import codecs
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Evidence, Failure

REQUIREMENTS = "requirements.txt"
PYPROJECT = "pyproject.toml"
MAX_BYTES = 64 * 1024
EXCERPT_CHARS = 160
MAX_NAME = 200
"""Of a package: it becomes part of an address, and an index answers one that is too long oddly."""
MAX_DIGITS = 18
"""Of a number in a version: the resolver's are of 64 bits."""

_HASH = re.compile(r"\s--hash[=\s]\s*(sha(?:256|384|512):[0-9a-fA-F]+)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_VCS = re.compile(r"^(?:[\w.\[\],-]+\s*@\s*)?(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_URL = re.compile(r"^(?:[\w.\[\],\s-]+@\s*)?[a-z][a-z0-9+.-]*://|^(?:[\w.-]+\s*@\s*)?file:", re.I)
_LOCAL = re.compile(
    r"^(?:\.{0,2}/|~|\.{1,2}$|\.{1,2}\\|[A-Za-z]:[\\/]|[\w.-]+[\\/])"
    r"|\.(?:whl|zip|egg|tar|tgz|tar\.\w+)$",
    re.IGNORECASE,
)
_INCLUDE = re.compile(r"^(?:-r|-c|--requirements?|--constraints?)(?:[=\s]|(?<=-[rc])\S)")
_EDITABLE = re.compile(r"^(?:-e|--editable)\b")
_INDEX = re.compile(
    r"^(?:-i|--index-url|--extra-index-url|--index|--default-index|--pypi-url|--no-index"
    r"|-f|--find-links|--trusted-host)"
)

MAX_DOTS = 200
"""In a line of TOML: what reading a dotted key takes grows with the square of its parts."""
_UV_SOURCES = frozenset(
    {"sources", "index", "index-url", "extra-index-url", "find-links", "no-index"}
)


@dataclass(frozen=True)
class Declared:
    """Plain requirements as written, one each, in order. `source` is None where no file is."""

    source: str | None = None
    lines: tuple[str, ...] = ()
    names: frozenset[str] = field(default=frozenset())
    """Canonical names of the packages, without extras."""

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def declared(files: Mapping[str, bytes]) -> Declared | Failure:
    """What the submission declares: requirements.txt where it exists, else pyproject.toml.

    `files` maps paths in the submission to content; no other file of it is looked at. A file or
    line that can't be accepted gives a `dependency-refused` failure that quotes the line.
    """
    if REQUIREMENTS in files:
        return _from_requirements(files[REQUIREMENTS])
    if PYPROJECT in files:
        return _from_pyproject(files[PYPROJECT])
    return Declared()


def _from_requirements(content: bytes) -> Declared | Failure:
    text = _decoded(content)
    if isinstance(text, _Refusal):
        return text.failure(REQUIREMENTS)
    if (refusal := _other_format(text)) is not None:
        return refusal.failure(REQUIREMENTS)
    entries = [_checked(number, line) for number, line in _logical_lines(text)]
    return _collected(REQUIREMENTS, entries)


def _from_pyproject(content: bytes) -> Declared | Failure:
    text = _decoded(content)
    if isinstance(text, _Refusal):
        return text.failure(PYPROJECT)
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS:
            return _Refusal(f"has more than {MAX_DOTS} dots", number, line).failure(PYPROJECT)
    try:
        table = tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as exc:
        # ValueError also for a number of too many digits.
        return _Refusal(f"is not valid TOML: {exc}").failure(PYPROJECT)
    project = table.get("project", {})
    if not isinstance(project, dict):
        return _Refusal("[project] is not a table").failure(PYPROJECT)
    dynamic = project.get("dynamic", [])
    if not isinstance(dynamic, list):
        return _Refusal("[project] dynamic is not a list").failure(PYPROJECT)
    if "dependencies" in dynamic:
        return _Refusal("declares its dependencies as dynamic; list them").failure(PYPROJECT)
    tool = table.get("tool", {})
    if isinstance(tool, dict) and "dependencies" not in project and _poetry(tool):
        return _Refusal(
            "declares dependencies for poetry only; list them under [project] dependencies"
        ).failure(PYPROJECT)
    if isinstance(tool, dict) and (refusal := _sources(tool, text)) is not None:
        return refusal.failure(PYPROJECT)
    listed = project.get("dependencies", [])
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        return _Refusal("[project] dependencies is not a list of strings").failure(PYPROJECT)
    entries = [_checked(_line_of(text, item), item.strip()) for item in listed]
    return _collected(PYPROJECT, entries)


def _poetry(tool: Mapping[str, object]) -> bool:
    poetry = tool.get("poetry")
    dependencies = poetry.get("dependencies") if isinstance(poetry, dict) else None
    return isinstance(dependencies, dict) and bool(set(dependencies) - {"python"})


def _sources(tool: Mapping[str, object], text: str) -> _Refusal | None:
    """uv's own table of where packages come from: left aside, others of the same name would."""
    uv = tool.get("uv")
    named = sorted(_UV_SOURCES.intersection(uv)) if isinstance(uv, dict) else []
    if not named:
        return None
    lines = enumerate(text.splitlines(), 1)
    at = [(n, line.strip()) for n, line in lines if re.search(rf"\b{named[0]}\b", line)]
    number, line = at[0] if at else (None, "")
    reason = f"says where packages come from ([tool.uv] {named[0]}), which is refused"
    return _Refusal(reason, number, line)


@dataclass(frozen=True)
class _Refusal:
    reason: str
    line: int | None = None
    quoted: str = ""

    def failure(self, source: str, others: int = 0) -> Failure:
        where = f"{source}, line {self.line}," if self.line is not None else source
        quote = f": {_cut(self.quoted)!r}" if self.quoted else ""
        more = f" (and {others} more {'line' if others == 1 else 'lines'})" if others else ""
        return Failure(
            failure_class=FailureClass.DEPENDENCY_REFUSED,
            sentence=f"{where} {self.reason}{quote}{more}",
            evidence=[Evidence(source=source, line=self.line, excerpt=_cut(self.quoted))]
            if self.quoted
            else [],
        )


@dataclass(frozen=True)
class _Accepted:
    line: str
    name: str


def _collected(source: str, entries: list[_Accepted | _Refusal]) -> Declared | Failure:
    refused = [entry for entry in entries if isinstance(entry, _Refusal)]
    if refused:
        return refused[0].failure(source, others=len(refused) - 1)
    accepted = [entry for entry in entries if isinstance(entry, _Accepted)]
    return Declared(
        source=source,
        lines=tuple(entry.line for entry in accepted),
        names=frozenset(entry.name for entry in accepted),
    )


def _decoded(content: bytes) -> str | _Refusal:
    if len(content) > MAX_BYTES:
        return _Refusal(f"is {len(content)} bytes long; at most {MAX_BYTES} are read")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError:
            return _Refusal("is not valid UTF-16")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Names and versions are ASCII; a comment in another code page does no harm.
        text = content.decode("latin-1")
    if "\0" in text:
        return _Refusal("is not a text file")
    return text


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(first line number, content) with continuations joined and comments taken off."""
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start if pending else number
        if raw.lstrip().startswith("#"):
            joined, goes_on = pending, False
        else:
            goes_on = raw.endswith("\\")
            joined = pending + (raw[:-1] if goes_on else raw)
        if goes_on:
            pending = joined + " " if not joined.endswith(" ") else joined
            continue
        pending = ""
        line = _COMMENT.sub("", joined).strip()
        if line:
            yield start, line
    if line := _COMMENT.sub("", pending).strip():
        yield start, line


def _checked(number: int | None, line: str) -> _Accepted | _Refusal:
    if (reason := _policy(line)) is not None:
        return _Refusal(reason, number, line)
    hashes = _HASH.findall(" " + line)
    plain = _HASH.sub("", " " + line).strip()
    try:
        requirement = Requirement(plain)
    except (InvalidRequirement, RecursionError):
        return _Refusal("is not a requirement", number, line)
    if requirement.url is not None:
        return _Refusal("names a URL; only packages of the index are installed", number, line)
    if _LOCAL.search(requirement.name):
        return _Refusal("names a local path, which is refused", number, line)
    # Braces are how the resolver sets off a marker in what it says.
    if (
        len(requirement.name) > MAX_NAME
        or not _plain_versions(requirement)
        or re.search("[{}]", plain)
    ):
        return _Refusal("is not a requirement", number, line)
    suffix = "".join(f" --hash={value}" for value in hashes)
    return _Accepted(f"{requirement}{suffix}", canonicalize_name(requirement.name))


def _plain_versions(requirement: Requirement) -> bool:
    """Whether each version is one that the resolver can read; `===` would take any text."""
    for specifier in requirement.specifier:
        version = specifier.version.removesuffix(".*")
        try:
            Version(version)
        except ValueError:
            return False
        if re.search(rf"\d{{{MAX_DIGITS + 1}}}", version):
            return False
    return True


def _policy(line: str) -> str | None:
    """Why the line may not reach the resolver, or None."""
    if _EDITABLE.match(line):
        return "asks for an editable install, which is refused"
    if _INCLUDE.match(line):
        return "includes another file, which is refused"
    if _INDEX.match(line):
        return "sets the package index, which is refused"
    if line.startswith("-"):
        return "is an option, which is refused; only plain requirements are accepted"
    target = line.split(";", 1)[0].split(" --hash", 1)[0].strip()
    if _VCS.match(target):
        return "names a repository, which is refused"
    if _URL.match(target):
        return "names a URL; only packages of the index are installed"
    if _LOCAL.search(target):
        return "names a local path, which is refused"
    return None


def _other_format(text: str) -> _Refusal | None:
    """Files that are not requirements at all: a fence of markdown, a conda environment."""
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in lines:
        if line.startswith(("```", "~~~")):
            return _Refusal("is markdown, not a requirement", number, line)
        if re.match(r"^(?:channels|dependencies)\s*:\s*(?:\[.*)?$", line):
            return _Refusal(
                "is a conda environment, not a requirement; write one package a line",
                number,
                line,
            )
    return None


def _line_of(text: str, item: str) -> int | None:
    for number, line in enumerate(text.splitlines(), 1):
        if item in line:
            return number
    return None


def _cut(line: str) -> str:
    return line if len(line) <= EXCERPT_CHARS else line[: EXCERPT_CHARS - 1] + "…"
