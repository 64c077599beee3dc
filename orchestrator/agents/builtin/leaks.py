"""What leaks into a reply from around it: a template's tokens, the marks of channels and turns.

Only text outside file blocks is cleaned of it. A file that holds such a mark stays as it is: it
may well be about chat templates.
"""

from __future__ import annotations

import re

TOKENS = (
    r"<\|[A-Za-z_][\w.-]*\|>|<｜[^｜>\n]{1,40}｜>|</?s>|<(?:start|end)_of_turn>|<eos>|<bos>"
    r"|\[/?INST\]|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS)\]"
)
"""The tokens of the usual templates, as a pattern."""
_TOKEN = re.compile(TOKENS)
# What stands between tokens and is no text either: `<|start|>assistant`, `<|im_start|>assistant`.
_ROLE = re.compile(
    r"(?:<\|im_start\|>|<\|start\|>|<\|start_header_id\|>|<start_of_turn>)"
    r"\s*(?:assistant|model)\b\s*(?:<\|end_header_id\|>)?"
)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<\n]*(?:<\|constrain\|>[^<\n]*)?<\|message\|>")
_FINAL = re.compile(r"<\|channel\|>\s*final[^<\n]*(?:<\|constrain\|>[^<\n]*)?<\|message\|>")
_NOT_OURS = re.compile(
    r"(?:<\|im_start\|>|<\|start\|>|<\|start_header_id\|>|<start_of_turn>)\s*(?:user|system)\b"
    r"|<\|user\|>|<｜User｜>"
)


def without_tokens(line: str) -> str:
    """The line without the tokens of a template; unchanged where it holds none."""
    if "<" not in line and "[" not in line:
        return line
    return _TOKEN.sub("", _ROLE.sub("", _CHANNEL.sub("", line)))


def answer_of(text: str) -> str:
    """What follows the first mark of the final channel, in a reply that begins with channels;
    "" where it has other channels only, which hold reasoning."""
    start = text.lstrip()
    if not start.startswith(("<|channel|>", "<|start|>")) or _CHANNEL.search(start) is None:
        return text
    final = _FINAL.search(start)
    if final is not None:
        return start[final.end() :]
    analysis = _CHANNEL.match(_ROLE.sub("", start, count=1))
    return "" if analysis and analysis.group(1) == "analysis" else text


def final_mark(line: str) -> int | None:
    """Where in the line the final channel begins."""
    match = _FINAL.search(line)
    return match.end() if match else None


def next_turn(line: str) -> bool:
    """Whether a turn begins here that is not the model's: it talks to itself."""
    return _NOT_OURS.search(line) is not None
