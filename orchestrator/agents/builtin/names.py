"""The file name that a reply gives a block: where it may stand and what counts as one.

A wrong guess writes junk into a submission, so a name must look like a file (a known ending or
a known name); only an explicit `FILE:` may be anything. A sentence that merely mentions a file
needs a fence of that file's language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePosixPath


class Strength(IntEnum):
    """How clearly the reply says that the block is the whole of that file."""

    SENTENCE = 1
    COMMENT = 2
    HEADER = 3
    MARKED = 4


@dataclass(frozen=True)
class Name:
    path: str
    strength: Strength


_LANGUAGES: dict[str, frozenset[str]] = {
    ending: frozenset(languages.split())
    for endings, languages in {
        "py pyi": "python py python3",
        "md markdown mdx rst adoc": "markdown md mdx rst adoc asciidoc",
        "json ipynb": "json json5 jsonc",
        "jsonl ndjson": "json jsonl ndjson",
        "toml lock": "toml",
        "yaml yml": "yaml yml",
        "ini cfg conf env properties": "ini cfg conf env dotenv properties toml bash sh shell",
        "csv tsv": "csv tsv",
        "js mjs cjs jsx": "javascript js jsx mjs node",
        "ts tsx mts": "typescript ts tsx",
        "html htm vue svelte xml svg": "html htm xml svg vue svelte",
        "css scss": "css scss",
        "sql": "sql sqlite postgresql",
        "sh bash": "bash sh shell zsh",
        "ps1 bat cmd": "powershell ps1 bat batch cmd",
        "c h cc cpp hpp": "c cpp c++",
        "go": "go golang",
        "rs": "rust rs",
        "java": "java",
        "rb": "ruby rb",
        "r": "r",
        "txt in log": "requirements pip requirements.txt",
    }.items()
    for ending in endings.split()
}
_SHELL = frozenset(
    {"bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "powershell", "cmd"}
)
_GENERIC = frozenset({"", "text", "txt", "plain", "plaintext", "code", "file", "none"})
_KNOWN_LANGUAGES = frozenset().union(*_LANGUAGES.values()) | _SHELL
_BARE_NAMES = frozenset(
    {"dockerfile", "makefile", "procfile", "pipfile", "gemfile", ".gitignore", ".dockerignore"}
    | {".gitattributes", ".editorconfig", ".env", ".npmrc", ".nvmrc", ".flake8", ".coveragerc"}
)
_DECORATION = re.compile(
    r"^(?:#{1,6}\s+|[-*+•]\s+|\(?\d{1,3}[.)]\s+|>\s+|[^\w\s`*~./<\"'\\#-]+\s+)+"
)
_MARK = re.compile(
    r"^(?:file\s?name|file\s?path|file(?:\s*#?\d+)?|path)\s*[:=]\s*(?=\S)", re.IGNORECASE
)
_STRICT = re.compile(r"^[\s#*>`-]*FILE:[\s*`]*(\S.*?)[\s*`]*$")
_RULED = re.compile(r"^(?:-{2,}|={2,}|<!--)\s*(\S+?)\s*(?:-{2,}|={2,}|-->)$")
_ANNOTATION = re.compile(r"\s+\([^()]*\)$")
_IN_TICKS = re.compile(r"`([^`\s]+)`|\*\*([^*\s]+)\*\*")
_RUNNING = re.compile(
    r"\b(run|runs|running|execute|output|outputs|usage|install|command|invoke|test it|call)\b", re.I
)
_INFO_KEY = re.compile(
    r"(?:^|[\s{,])(?:title|file|filename|file_name|path|name)\s*=\s*"
    r"(?:\"([^\"]+)\"|'([^']+)'|([^\s\"'}]+))"
)
_COMMENT = re.compile(
    r"^\s*(?:#|//|--|;|%|/\*|<!--|\"\"\")\s*(?P<mark>(?:file\s?name|file\s?path|file|path)\s*:\s*)?"
    r"(?P<path>[^\s*]+?)(?P<said>:?\s+[-–—]\s+.*|:\s+\S.*)?\s*(?:\*/|-->|\"\"\")?\s*$",
    re.IGNORECASE,
)
_ITEM = re.compile(
    r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+[*`]*(?P<path>[^\s*`]+)[*`]*(?::?\s*$|:?\s+[-–—(]|:\s)"
)
_LONGEST_PLAUSIBLE = 120
_LONGEST_LINE = 1000
"""No line that names a file is longer, and the patterns above are slow on what is far longer."""


def strict(line: str) -> str | None:
    """The path of a `### FILE: path` line, the form that the agent asks for."""
    match = _STRICT.match(line) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return None
    path = _ANNOTATION.sub("", match.group(1))
    spaced = any(char.isspace() for char in path)
    return None if spaced and not looks_like_file(re.sub(r"\s", "_", path)) else path


def from_header(line: str) -> Name | None:
    """A line that holds nothing but a file name, however decorated."""
    if len(line) > _LONGEST_LINE:
        return None
    explicit = strict(line)
    if explicit is not None:
        return Name(explicit, Strength.MARKED)
    text = _undecorated(line)
    marked = _MARK.sub("", text)
    strength = Strength.MARKED if marked != text else Strength.HEADER
    token = _ANNOTATION.sub("", marked).strip().strip("\"'").removesuffix(":").strip("\"'")
    if not token or any(char.isspace() for char in token) or not looks_like_file(token):
        return None
    return Name(token, strength)


def from_sentence(line: str, language: str) -> Name | None:
    """The one file that a sentence before a fence names, when the fence speaks its language."""
    if len(line) > _LONGEST_LINE:
        return None
    found = [first or second for first, second in _IN_TICKS.findall(line)]
    files = {token.rstrip(":") for token in found if looks_like_file(token.rstrip(":"))}
    if not files:
        described = re.match(r"(\S+?):?\s+[-–—:]\s+\S", _undecorated(line))
        if described and looks_like_file(described.group(1)):
            files = {described.group(1)}
    if len(files) != 1:
        return None
    path = files.pop()
    if speaks(path, language):
        return Name(path, Strength.SENTENCE)
    if language in _GENERIC and line.rstrip().endswith(":") and not _RUNNING.search(line):
        return Name(path, Strength.SENTENCE)
    return None


def from_info(info: str) -> tuple[str, Name | None]:
    """Language and name in a fence's info string: `python train.py`, `train.py`, `title=…`."""
    keyed = _INFO_KEY.search(info)
    if keyed:
        path = next(group for group in keyed.groups() if group)
        return _language(info), Name(path, Strength.MARKED) if looks_like_file(path) else None
    words = info.split()
    if len(words) == 3 and words[1] == "#":
        words = [words[0], words[2]]
    for place, given in enumerate(words[:2]):
        word = given.strip("#()[]") if place else given
        if place == 0 and not any(char in word for char in "./:"):
            continue  # `dockerfile` is a language here
        head, colon, tail = word.partition(":")
        if colon and looks_like_file(tail):
            return head.lower(), Name(tail, Strength.MARKED)
        if looks_like_file(word):
            language = words[0].lower() if words[0] != word else ""
            return language, Name(word, Strength.MARKED)
    return _language(info), None


def from_comment(line: str, language: str) -> Name | None:
    """A first line that is a comment with a file's name, or with a name and what it is for."""
    match = _COMMENT.match(line) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return None
    path = match.group("path").rstrip(":")
    if not looks_like_file(path) or not fits(path, language):
        return None
    if match.group("said") and not speaks(path, language):
        return None
    return Name(path, Strength.COMMENT)


def listed(line: str) -> str | None:
    """The file that an item of a list is about: `- train.py`, `2. `train.py`: fits the model`."""
    match = _ITEM.match(line) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return None
    path = match.group("path").rstrip(":")
    return path if looks_like_file(path) and not path.endswith("/") else None


def is_heading(line: str) -> bool:
    """A line that titles what follows: a heading, or all bold."""
    text = line.strip()
    return text.startswith("#") or bool(re.fullmatch(r"\*\*[^*]+\*\*:?", text))


def fits(path: str, language: str) -> bool:
    """Whether a fence of this language may hold that file at all."""
    if language in _GENERIC or language not in _KNOWN_LANGUAGES:
        return True
    known = _LANGUAGES.get(_ending(path))
    if known is None or _ending(path) in ("txt", "in", "log"):
        return language not in _SHELL
    return language in known


def speaks(path: str, language: str) -> bool:
    """Whether the language is that of the file's ending."""
    return language in _LANGUAGES.get(_ending(path), ())


def looks_like_file(token: str) -> bool:
    """A known ending or a known name; a folder, or a path that can't be meant well, counts too
    so that it can be refused by name."""
    if not token or "://" in token or any(char in '<>|*?"`=;(){}[],!$' for char in token):
        return False
    if len(token) > _LONGEST_PLAUSIBLE:
        return True
    parts = re.split(r"[/\\]", token)
    last = parts[-1]
    if _ending(last) in _LANGUAGES or last.lower() in _BARE_NAMES:
        return bool(last.rpartition(".")[0]) or last.lower() in _BARE_NAMES
    suspect = parts[0] in ("", "~", "..") or parts[0].startswith(".")
    folder = last == "" and len(parts) == 2 and parts[0] != ""
    return len(parts) > 1 and (folder or (suspect and len(last) > 0))


def _ending(path: str) -> str:
    return PurePosixPath(path).suffix.lower().removeprefix(".")


def _language(info: str) -> str:
    words = info.strip("{}").split()
    return words[0].lower().strip(".") if words else ""


def _undecorated(line: str) -> str:
    text = _DECORATION.sub("", _RULED.sub(r"\1", line.strip()))
    text = text.replace("`", "").replace("*", "")
    return text.strip().removesuffix(":").strip()
