"""Texts that stand where a whole file should: elided files, edits among other text, tool calls."""

from __future__ import annotations

import json
import re

LONGEST_COMMENT = 300

_COMMENT_LINE = re.compile(r"^\s*(?:#|//|--|;|%|/\*|\*|<!--)\s*(?P<text>.*?)\s*(?:\*/|-->)?\s*$")
_HTML_COMMENT = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")
_DOTS = re.compile(r"^(?:\.\.\.|…)|(?:\.\.\.|…)$")
_LEFT_OUT = re.compile(
    r"\b(?:rest|remainder|remaining|existing|unchanged|previous|omitted|as before)\b", re.IGNORECASE
)
_REST_UNCHANGED = re.compile(
    r"\b(?:rest|remainder) of (?:the |this |your )?(?:code|file|function|method|class|script|module"
    r"|implementation|imports|logic)\b.*"
    r"\b(?:unchanged|same|as before|as is|omitted|here|remains|stays)\b"
    r"|^\(?(?:unchanged|no changes?(?: here)?)\)?\.?$"
    r"|\b(?:code|functions?|imports?|methods?|content)\b.*\b(?:unchanged|omitted for brevity)\b",
    re.IGNORECASE,
)


def elision(text: str, *, document: bool) -> str | None:
    """The comment line that stands for text left out, if there is one.

    A lone `...` is valid Python and no sign; the words decide. In a document only an HTML
    comment counts: its headings and lists begin like other languages' comments.
    """
    pattern = _HTML_COMMENT if document else _COMMENT_LINE
    for line in text.split("\n"):
        match = pattern.match(line) if len(line) <= LONGEST_COMMENT else None
        if match is None:
            continue
        comment = match.group("text")
        if _REST_UNCHANGED.search(comment) or (_DOTS.search(comment) and _LEFT_OUT.search(comment)):
            return line.strip()
    return None


def holds_sections(text: str) -> bool:
    """SEARCH/REPLACE sections anywhere in it."""
    return bool(re.search(r"^<{5,9} ?(SEARCH|ORIGINAL)\b", text, re.M)) and bool(
        re.search(r"^={5,9}\s*$", text, re.M)
    )


def is_tool_call(reply: str) -> bool:
    """A call of a tool that nobody offered, as JSON or between the usual tags."""
    text = reply.strip()
    if "<tool_call>" in text or "<function=" in text:
        return True
    text = re.sub(r"\A```\w*\n|\n```\Z", "", text)
    try:
        value = json.loads(text)
    except ValueError:
        return False
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and bool({"arguments", "parameters", "function"} & first.keys())
