"""Start aider with nothing but the settings that it is given on its command line.

Runs in the agent's container; aider's own version is pinned there. What is changed here has no
switch of its own: aider also obeys settings in the folder it works in, which a model wrote, and it
applies half a reply when a stream breaks off. What a reply asks to write and must not is told in
the file that ORCH_REFUSED names, as lines of `[path, reason]`. ORCH_READ_ONLY: files that are data,
a colon between them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aider import main as program
from aider import models
from aider.coders import base_coder
from aider.coders.base_coder import Coder

from orchestrator.agents.builtin.paths import UnsafePath, safe_path

LONGEST_RETRY_S = 2.0
"""aider waits 0.25 s, then twice as long each time. The gateway has tried three times before."""


def obey_the_command_line_only() -> None:
    """No settings, models or variables from the workspace or a home."""
    get_parser = program.get_parser
    program.get_parser = lambda _files, git_root: get_parser([], git_root)
    program.generate_search_path_list = lambda _name, _root, given: [given] if given else []


def ask_for_one_fence() -> None:
    """Always three backticks: models answer with them whatever longer ones they are asked for."""
    Coder.fences = Coder.fences[:1]


def load_no_file_by_its_name() -> None:
    """A file that a prompt or a reply names is not read into the chat."""
    _replace(Coder, "check_for_file_mentions", lambda _coder, _content: None)


def end_retries() -> None:
    for module in (base_coder, models):
        _replace(module, "RETRY_TIMEOUT", LONGEST_RETRY_S)


def write_whole_replies_only() -> None:
    send, apply_updates = Coder.send, Coder.apply_updates

    def sending(coder: Any, *args: Any, **more: Any) -> Iterator[Any]:
        coder.reply_is_whole = False
        yield from send(coder, *args, **more)
        coder.reply_is_whole = True

    def applying(coder: Any) -> Any:
        if coder.reply_is_whole:
            return apply_updates(coder)
        coder.io.tool_error("The reply broke off; nothing of it is written.")
        return set()

    _replace(Coder, "send", sending)
    _replace(Coder, "apply_updates", applying)


def write_inside_the_workspace_only() -> None:
    allowed_to_edit = Coder.allowed_to_edit

    def allowed(coder: Any, path: str) -> Any:
        if why := _refusal(coder.root, path):
            coder.io.tool_error(f"{path!r} is refused, {why}.")
            with Path(os.environ["ORCH_REFUSED"]).open("a", encoding="ascii") as file:
                file.write(json.dumps([path, why]) + "\n")
            return False
        return allowed_to_edit(coder, path)

    _replace(Coder, "allowed_to_edit", allowed)


def _refusal(root: str, path: str) -> str:
    """Why it must not be written, in the words of a record; "" where it may be."""
    try:
        relative = safe_path(path)
    except UnsafePath as unsafe:
        return f"unsafe-path: the path {unsafe}"
    if relative in os.environ["ORCH_READ_ONLY"].split(":"):
        return "read-only-data: it is data that is only to be read"
    why = _blocked(Path(root).resolve() / relative)
    return f"unsafe-path: the path {why}" if why else ""


def _blocked(place: Path) -> str:
    """What in the workspace stands in the way, to follow the path in a sentence."""
    if place.is_symlink() or place.resolve() != place:
        return "leads through a link"
    if place.exists() and not place.is_file():
        return "is no regular file"
    if any(above.exists() and not above.is_dir() for above in place.parents):
        return "lies below a file"
    return ""


def _replace(of: Any, name: str, by: Any) -> None:
    """Fails where there is nothing of that name: another aider would go on unheeded."""
    getattr(of, name)
    setattr(of, name, by)


def main() -> int:
    obey_the_command_line_only()
    ask_for_one_fence()
    load_no_file_by_its_name()
    end_retries()
    write_whole_replies_only()
    write_inside_the_workspace_only()
    return program.main(sys.argv[1:]) or 0


if __name__ == "__main__":
    sys.exit(main())
