"""Text that a model wrote, made harmless for a terminal and for one line of a table."""

import re

_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor, modes
    # strings up to their terminator: titles, links, clipboard, device control
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x1b\x07\x9c]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"  # two-character escapes, also the start of a string that never ends
)
_MORE = " [...]"


def inert(text: str, limit: int = 400) -> str:
    """`text` on one line, at most `limit` characters, unable to steer a terminal.

    Terminal escape sequences are dropped, white space becomes single spaces, and every other
    character without a visible form (controls, direction overrides, zero-width and private
    characters, lone surrogates) is spelt out, e.g. `\\u202e`. Markup stays as it is written:
    print the result as `rich.text.Text`, which interprets none.
    """
    # Each escape costs characters that don't show, so look at more than will be kept.
    seen = text[: limit * 16]
    line = " ".join(_ESCAPES.sub("", seen).split())
    shown = "".join(char if char.isprintable() else _spelt(char) for char in line)
    if len(shown) > limit or len(seen) < len(text):
        return shown[: max(limit - len(_MORE), 0)] + _MORE
    return shown


def _spelt(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
