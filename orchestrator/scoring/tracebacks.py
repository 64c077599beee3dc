"""Finding the exception that ended a Python program in what it printed.

Works on text alone, cut, interleaved or not UTF-8 as it may be. Of several exceptions the last one
printed ended the program, save for those that a program survives: of threads, child processes and
tasks, and what is reported on the way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.scoring.boxed import unboxed

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HEADER = re.compile(
    r"^(?:(?P<margin> +)[|+] )?(?:Exception Group )?Traceback \(most recent call last\):"
    r"|Traceback \(most recent call last\):$"
)
_FRAME = re.compile(
    # loguru marks the one that caught it.
    r'^(?:\s+|> )File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9})(?:, in (?P<function>.+))?$'
)
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$")
_PARSE_ERROR = re.compile(r"^(?:SyntaxError|IndentationError|TabError)(?::|$)")
_FATAL = re.compile(r"^Fatal Python error: (?P<what>.+)$")
_FATAL_FRAME = re.compile(
    # loguru marks the one that caught it.
    r'^(?:\s+|> )File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}) in (?P<function>.+)$'
)
_CUT = re.compile(r"^\[\.\.\. \d+ bytes left out \.\.\.\]$")
_MEMBER = re.compile(r"^ +\+(?:-\+)?-{16} \d+ -{16}$")
_BORDERED = re.compile(r"^(?P<margin> +)\| (?P<text>\S.*)$")
_GROUP = re.compile(r"^\w*ExceptionGroup: .*\(\d+ sub-exceptions?\)$")
# What the interpreter and `logging` report in passing is no cause of an ending.
_PASSING = ("Exception ignored", "Error in atexit", "Error in sys.excepthook", "--- Logging error")
_APART = re.compile(
    r"^(?:Exception in thread |Process \S+:$|Exception in callback |Task exception was never"
    r"|(?:future|handle|task|transport|protocol): )"
)
"""The line before the traceback of a thread, a child process or a task: the others go on."""
_DIRECT_CAUSE = "The above exception was the direct cause"
_CONTEXT = "During handling of the above exception"
_AFTER_MESSAGE = re.compile(
    r'^(?:"""|Exception (?:ignored|in) |Error in |Fatal Python error: |--- Logging |Process \S+:$'
    r"|Task exception was never|\S+:\d+: \w*Warning: | *\+-)"
)
"""Lines that no message goes on with."""
_CHILD_FAILED = "CalledProcessError"
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
    """The exception it was explicitly raised from, or of the child process that it reports."""
    members: tuple[Crash, ...] = ()
    """Of an exception group: what it holds, groups within it resolved."""
    apart: bool = False
    """In a thread, a child process or a task: it did not end the program by itself."""

    @property
    def name(self) -> str:
        """The class's own name, without its module."""
        return self.type.rpartition(".")[2]

    @property
    def first(self) -> str:
        """The message's first line that says something."""
        lines = self.message.split("\n")
        return next((line.strip() for line in lines if re.search(r"\w", line)), lines[0].strip())

    @property
    def text(self) -> str:
        """`Type: first line of the message`."""
        return f"{self.type}: {self.first}" if self.first else self.type

    @property
    def origin(self) -> Crash:
        """Where it was raised: what a worker raised is raised again by who waited for it."""
        cause = self.cause
        return cause if cause is not None and cause.first == self.first else self


@dataclass(frozen=True)
class Fatal:
    """What `faulthandler` printed as the interpreter died; `frames` from the outermost."""

    what: str
    line: int
    frames: tuple[Frame, ...]


def plain(text: str) -> str:
    """The text without terminal escapes, CR line ends normalised."""
    return _ANSI.sub("", text).replace("\r\n", "\n")


def last_crash(text: str) -> Crash | None:
    """The exception that ended the program, or None."""
    lines = unboxed(plain(text).split("\n"))
    found = list(_chained(_grouped(_printed(lines)), lines))
    bare = _bare_parse_error(lines)
    if bare is not None and (not found or bare.line > found[-1].line):
        return bare
    ending = [crash for crash in found if not crash.apart] or found
    return ending[-1] if ending else None


def fatal_error(text: str) -> Fatal | None:
    """The last report of `faulthandler`, with the stack of the thread that died."""
    lines = plain(text).split("\n")
    for index in range(len(lines) - 1, -1, -1):
        found = _FATAL.match(lines[index])
        if found is not None:
            stack = list(_fatal_frames(lines[index + 1 :]))
            return Fatal(found["what"][:MAX_CHARS], index + 1, tuple(reversed(stack)))
    return None


def _fatal_frames(lines: Iterable[str]) -> Iterator[Frame]:
    """From the innermost. The stacks of other threads may come before."""
    current = False
    for line in lines:
        frame = _FATAL_FRAME.match(line)
        if line.startswith("Current thread "):
            current = True
        elif current and frame is not None:
            yield Frame(frame["file"], int(frame["line"]), frame["function"], "")
        elif current:
            return


@dataclass(frozen=True)
class _Printed:
    """An exception as it stands in the text; `margin` is how far in its group's border is."""

    crash: Crash
    margin: int = 0
    passing: bool = False


def _printed(lines: Sequence[str]) -> Iterator[_Printed]:
    """All exceptions in their order, those in passing too: others may be linked to them."""
    last = 0
    for index, line in enumerate(lines):
        found = _at(lines, index, line)
        # One can be found by its header and by what follows it.
        if found is not None and found.crash.line > last:
            last = found.crash.line
            yield found


def _at(lines: Sequence[str], index: int, line: str) -> _Printed | None:
    """The exception whose traceback begins here, or of which this is all there is."""
    header = _HEADER.search(line)
    before = lines[index - 1] if index else ""
    if header is not None:
        margin = len(header["margin"] or "")
        crash = _parsed(lines, index + 1, margin)
        if crash is None:
            return None
        crash = replace(crash, apart=_APART.match(before) is not None)
        return _Printed(crash, margin, before.startswith(_PASSING))
    if _CUT.match(line):
        # The line after a cut is the end of one.
        crash = _parsed(lines, index + 2, 0, to_cut=True)
        return _Printed(crash) if crash is not None and crash.frames else None
    bordered = _BORDERED.match(line)
    if bordered is not None and (_MEMBER.match(before) or _GROUP.match(bordered["text"])):
        margin = len(bordered["margin"])
        crash = _exception(lines, index, margin, (), index + 1)
        return None if crash is None else _Printed(crash, margin)
    return None


def _parsed(lines: Sequence[str], start: int, margin: int, *, to_cut: bool = False) -> Crash | None:
    """The traceback whose frames begin at `start`, across a cut in the text unless `to_cut`."""
    frames: list[Frame] = []
    index = start
    while index < len(lines):
        if _HEADER.search(lines[index]):
            # Another begins before this one has ended: read once, however many are printed.
            return None
        line = _within(lines[index], margin)
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append(_frame(frame, lines, index, margin))
        elif _CUT.match(line):
            if to_cut:
                return None
            index += 1
        elif line and not line[0].isspace():
            return _exception(lines, index, margin, tuple(frames), start)
        index += 1
    return None


def _within(line: str, margin: int) -> str:
    """A line without the border of its group."""
    return line[margin + 2 :] if margin and line.startswith(" " * margin + "|") else line


def _exception(
    lines: Sequence[str], index: int, margin: int, frames: tuple[Frame, ...], start: int
) -> Crash | None:
    found = _EXCEPTION.match(_within(lines[index], margin))
    if found is None:
        return None
    message = _message(lines, index, found["message"] or "", margin)
    return Crash(found["type"], message, index + 1, frames, start)


def _frame(match: re.Match[str], lines: Sequence[str], index: int, margin: int) -> Frame:
    following = _within(lines[index + 1], margin) if index + 1 < len(lines) else ""
    shows_code = following.startswith("    ")
    return Frame(
        file=match.group("file"),
        line=int(match.group("line")),
        function=match.group("function"),
        source=following.strip()[:MAX_CHARS] if shows_code else "",
    )


def _message(lines: Sequence[str], index: int, first: str, margin: int) -> str:
    """The message with its further lines, up to the next blank one or to what is none of it.

    Messages that begin with an empty line are laid out in paragraphs.
    """
    message = [first[:MAX_CHARS]]
    for line in lines[index + 1 : index + MAX_MESSAGE_LINES]:
        text = _within(line, margin)
        blank = not text.strip()
        if (blank and first) or _HEADER.search(line) or _AFTER_MESSAGE.match(text):
            break
        message.append(text[:MAX_CHARS])
    return "\n".join(message).strip()[:MAX_CHARS]


def _grouped(printed: Iterator[_Printed]) -> Iterator[_Printed]:
    """Exception groups with what they hold."""
    group: _Printed | None = None
    members: list[Crash] = []
    for item in printed:
        inside = group is not None and item.margin > group.margin
        if inside and not _GROUP.match(item.crash.text):
            members.append(item.crash)
        if inside:
            continue
        if group is not None:
            yield _with_members(group, members)
        group, members = item, []
    if group is not None:
        yield _with_members(group, members)


def _with_members(group: _Printed, members: Sequence[Crash]) -> _Printed:
    """The way to a member leads through the group's frames."""
    frames = group.crash.frames
    whole = tuple(replace(member, frames=(*frames, *member.frames)) for member in members)
    return replace(group, crash=replace(group.crash, members=whole))


def _chained(printed: Iterator[_Printed], lines: Sequence[str]) -> Iterator[Crash]:
    """What may have ended the program, each with its cause."""
    last: _Printed | None = None
    for item in printed:
        crash = item.crash
        if last is not None:
            between = lines[_end(last.crash) : crash.start - 1]
            raised_from = any(_DIRECT_CAUSE in line for line in between)
            if raised_from or any(_CONTEXT in line for line in between):
                item = replace(item, passing=item.passing or last.passing)
                crash = replace(crash, apart=crash.apart or last.crash.apart)
            if raised_from or crash.name == _CHILD_FAILED:
                crash = replace(crash, cause=last.crash)
        last = replace(item, crash=crash)
        if not last.passing:
            yield crash


def _end(crash: Crash) -> int:
    return crash.members[-1].line if crash.members else crash.line


def _bare_parse_error(lines: Sequence[str]) -> Crash | None:
    """A program that does not parse never starts: its error comes without a header."""
    for index in range(len(lines) - 1, -1, -1):
        if not _PARSE_ERROR.match(lines[index]):
            continue
        near = range(max(0, index - 6), index)
        frames = tuple(
            _frame(match, lines, at, 0) for at in near if (match := _FRAME.match(lines[at]))
        )
        return _exception(lines, index, 0, frames, max(1, index - 5))
    return None
