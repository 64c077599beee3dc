"""Printing on a terminal, or on whatever stdout is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.text import Text


class _Stdout(Console):
    """Whoever stopped reading (`| head`) has what they wanted: the exit code stays as it is."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """The terminal, or whatever stdout is; NO_COLOR and COLUMNS are honoured."""
    return _Stdout(highlight=False)


def print_lines(lines: Iterable[str], console: Console, indent: int = 2) -> None:
    """What a line is itself indented by, it is also where it wraps."""
    for line in lines:
        text = line.lstrip()
        inside = indent + len(line) - len(text)
        console.print(Padding(Text(text), (0, 0, 0, inside), expand=False))
