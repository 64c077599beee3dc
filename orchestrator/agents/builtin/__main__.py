"""Read the prompt, ask, write the files, report as one JSON object on stdout.

Environment: ORCH_MODEL_URL, ORCH_MODEL_TOKEN, ORCH_MODEL, ORCH_PROMPT (a file), ORCH_WORKSPACE
(a folder); ORCH_ROOM_CHARS, characters that fit into the context before the reply, and
ORCH_READ_ONLY, paths of the workspace with a colon between them, may be empty or missing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .chat import SYSTEM_PROMPT, ask, wallet_left
from .continuing import exhausted
from .work import cut_of, finish, first, report
from .writer import Workspace


def main() -> int:
    prompt = Path(os.environ["ORCH_PROMPT"]).read_text(encoding="utf-8")
    json.dump(work(os.environ, prompt), sys.stdout)
    sys.stdout.write("\n")
    return 0


def work(environment: Mapping[str, str], prompt: str) -> dict[str, Any]:
    """The stage's work from the prompt to the report."""
    url, token = environment["ORCH_MODEL_URL"], environment["ORCH_MODEL_TOKEN"]
    question = partial(ask, url, token, environment["ORCH_MODEL"], prompt)
    read_only = [path for path in environment.get("ORCH_READ_ONLY", "").split(":") if path]
    room = int(environment.get("ORCH_ROOM_CHARS") or 0) or None
    with Workspace(environment["ORCH_WORKSPACE"], read_only) as workspace:
        done = first(question(), workspace)
        cut = cut_of(done)
        if cut is not None and exhausted(wallet_left(url, token)):
            done.landed.notes.append("the reply was cut off; nothing is left to ask for its rest")
        elif cut is not None:
            length = len(SYSTEM_PROMPT) + len(prompt)
            finish(done, cut, question, workspace, prompt_chars=length, room_chars=room)
    return report(done)


if __name__ == "__main__":
    sys.exit(main())
