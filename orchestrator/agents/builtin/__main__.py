"""Read the prompt, ask once, write the files, report as one JSON object on stdout.

Environment: ORCH_MODEL_URL, ORCH_MODEL_TOKEN, ORCH_MODEL, ORCH_PROMPT (a file),
ORCH_WORKSPACE (a folder).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from .chat import Answer, ask
from .replies import parse_reply
from .writer import Refused, Workspace

MAX_ENTRIES = 300


def main() -> int:
    prompt = Path(os.environ["ORCH_PROMPT"]).read_text(encoding="utf-8")
    answer = ask(
        os.environ["ORCH_MODEL_URL"],
        os.environ["ORCH_MODEL_TOKEN"],
        os.environ["ORCH_MODEL"],
        prompt,
    )
    report = apply(answer, os.environ["ORCH_WORKSPACE"])
    json.dump(report, sys.stdout)
    sys.stdout.write("\n")
    return 0


def apply(answer: Answer, root: str) -> dict[str, Any]:
    """Write the answer's files. An answer that is not whole is never applied, not in part."""
    report: dict[str, Any] = {
        "reply_chars": len(answer.text),
        "thinking_chars": answer.thinking_chars,
        "done_reason": answer.done_reason,
        "tries": answer.tries,
        "broken": answer.broken,
        "error": answer.error,
        "error_class": answer.error_class,
        "written": [],
        "refused": [],
        "notes": [],
        "nothing": "",
    }
    if answer.error:
        return report
    reply = parse_reply(answer.text)
    refused = [(item.path, item.reason, item.detail) for item in reply.refused]
    written: list[str] = []
    with Workspace(root) as workspace:
        for path, text in reply.files.items():
            try:
                written.append(workspace.write(path, text))
            except Refused as exc:
                refused.append((path, exc.reason, str(exc)))
    report["written"] = list(dict.fromkeys(written))[:MAX_ENTRIES]
    report["refused"] = [
        {"path": path[:300], "reason": reason, "detail": detail[:300]}
        for path, reason, detail in refused[:MAX_ENTRIES]
    ]
    report["notes"] = reply.notes[:MAX_ENTRIES]
    only_thought = reply.nothing == "empty" and answer.thinking_chars > 0
    report["nothing"] = "only-thinking" if only_thought else reply.nothing
    return report


if __name__ == "__main__":
    sys.exit(main())
