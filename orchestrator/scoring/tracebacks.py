"""Finding the exception that ended a Python program in what it printed.

Works on text alone, cut, interleaved or not UTF-8 as it may be; of several tracebacks (chained,
of workers, of threads) the last printed is the one that ended the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HEADER = re.compile(
    r"^(?P<prefix>[ |+]*?)(?:Exception Group )?Traceback \(most recent call last\):"
)
_FRAME = re.compile(
    r'^\s+File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9})(?:, in (?P<function>.+))?$'
)
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$")
_PARSE_ERROR = re.compile(r"^(?:SyntaxError|IndentationError|TabError)(?::|$)")
# What the interpreter reports on its way out is no cause of an ending.
_ASIDE = ("Exception ignored in", "Error in atexit", "Error in sys.excepthook")
_DIRECT_CAUSE = "The above exception was the direct cause"
MAX_MESSAGE_LINES = 12
MAX_CHARS = 4000
"""Of a message or a line of code; rules look at no more."""


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str | None
    source: str
    """The line of code as the traceback shows it; "" where it shows none."""


@dataclass(frozen=True)
class Crash:
    """An exception that was printed. `line` is its 1-based line in the text."""

    type: str
    message: str
    line: int
    frames: tuple[Frame, ...]
    start: int = 0
    """1-based line at which its traceback begins."""
    cause: Crash | None = None
    """The exception it was explicitly raised from."""

    @property
    def name(self) -> str:
        """The class's own name, without its module."""
        return self.type.rpartition(".")[2]

    @property
    def text(self) -> str:
        """`Type: first line of the message`."""
        first = self.message.split("\n", 1)[0]
        return f"{self.type}: {first}" if first else self.type


def plain(text: str) -> str:
    """The text without terminal escapes, CR line ends normalised."""
    return _ANSI.sub("", text).replace("\r\n", "\n")


def last_crash(text: str) -> Crash | None:
    """The last exception in the text, or None."""
    lines = plain(text).split("\n")
    chained: Crash | None = None
    for crash in _with_header(lines):
        between = lines[chained.line : crash.start - 1] if chained else []
        linked = any(line.strip().startswith(_DIRECT_CAUSE) for line in between)
        chained = replace(crash, cause=chained if linked else None)
    bare = _bare_parse_error(lines)
    if bare is not None and (chained is None or bare.line > chained.line):
        return bare
    return chained


def _with_header(lines: list[str]) -> Iterator[Crash]:
    for index, line in enumerate(lines):
        header = _HEADER.match(line)
        if header is None or (index > 0 and lines[index - 1].startswith(_ASIDE)):
            continue
        crash = _parsed(lines, index + 1, len(header.group("prefix").rstrip("+ ")))
        if crash is not None:
            yield crash


def _parsed(lines: list[str], start: int, margin: int) -> Crash | None:
    """The traceback whose frames begin at `start`; `margin` columns are a group's border."""
    frames: list[Frame] = []
    for index in range(start, len(lines)):
        if _HEADER.match(lines[index]):
            # Another begins before this one has ended: read once, however many are printed.
            return None
        line = _without_border(lines[index], margin)
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append(_frame(frame, lines, index, margin))
        elif line and not line[0].isspace():
            exception = _EXCEPTION.match(line)
            if exception is None:
                return None
            message = _message(lines, index, exception.group("message") or "", margin)
            return Crash(exception.group("type"), message, index + 1, tuple(frames), start)
    return None


def _without_border(line: str, margin: int) -> str:
    if margin == 0 and not line.startswith("  | "):
        return line
    return re.sub(r"^[ |+]*\| ?", "", line, count=1)


def _frame(match: re.Match[str], lines: list[str], index: int, margin: int) -> Frame:
    following = _without_border(lines[index + 1], margin) if index + 1 < len(lines) else ""
    shows_code = following.startswith("    ")
    return Frame(
        file=match.group("file"),
        line=int(match.group("line")),
        function=match.group("function"),
        source=following.strip()[:MAX_CHARS] if shows_code else "",
    )


def _message(lines: list[str], index: int, first: str, margin: int) -> str:
    """The message with its further lines, up to the next blank line or traceback."""
    message = [first]
    for line in lines[index + 1 : index + MAX_MESSAGE_LINES]:
        text = _without_border(line, margin)
        if not text.strip() or _HEADER.match(line) or text.startswith('"""'):
            break
        message.append(text)
    return "\n".join(message).strip()[:MAX_CHARS]


def _bare_parse_error(lines: list[str]) -> Crash | None:
    """A program that does not parse never starts: its error comes without a header."""
    for index in range(len(lines) - 1, -1, -1):
        if not _PARSE_ERROR.match(lines[index]):
            continue
        exception = _EXCEPTION.match(lines[index])
        if exception is None:
            continue
        near = range(max(0, index - 6), index)
        frames = tuple(
            _frame(match, lines, at, 0) for at in near if (match := _FRAME.match(lines[at]))
        )
        message = (exception.group("message") or "")[:MAX_CHARS]
        return Crash(exception.group("type"), message, index + 1, frames)
    return None
