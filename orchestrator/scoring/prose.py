"""A Markdown document of a submission, as sentences in their places. Pure, linear in its length.

No parser of Markdown: documents that models write mix its dialects with plain text, and hostile
ones would nest without end. Lines are looked at once each; what is not known is text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 200_000
"""Of a document; what follows is not read."""
MAX_SENTENCE = 600
"""Characters of a sentence, a cell or a heading that are looked at."""

_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*)")
_ITEM = re.compile(r"\s*(?:[-*+•–]|\d{1,3}[.)])\s+(.*)")
_BOLD = re.compile(r"(?:\*\*|__)([^*]{1,80}?)(?:\*\*|__)\s*([:.–—-]?)\s*(.*)")
_WORD = re.compile(r"\S+")
_SHORT = frozenset({"e.g", "i.e", "z.b", "etc", "vs", "approx", "ca", "resp", "incl", "no"})
_MARKUP = str.maketrans("‘’“”‐‑", "''\"\"--", "*`~")


@dataclass(frozen=True)
class Sentence:
    """One sentence, item or row; `text` has no markup and is in lower case, `shown` as written.

    `heading` is the innermost heading above it, `lead` the line that introduces its list, `block`
    the number of its paragraph, item or row. `cells` of a row are (header, cell).
    """

    text: str
    shown: str
    line: int
    block: int
    heading: str = ""
    lead: str = ""
    code: bool = False
    item: bool = False
    cells: tuple[tuple[str, str], ...] = ()


def sentences(document: str) -> list[Sentence]:
    """All sentences of a document in order; code blocks line by line."""
    return list(_Reader(lines(document)).read())


def plain(text: str) -> str:
    """Without markup, on one line, in lower case; underscores are part of names."""
    return " ".join(text.replace("\\_", "_").translate(_MARKUP).lower().split())


def lines(document: str) -> list[str]:
    """Without comments and without characters that have no visible form."""
    document, kept, at = document[:MAX_CHARS], [], 0
    while (opened := document.find("<!--", at)) >= 0:
        kept.append(document[at:opened])
        closed = document.find("-->", opened)
        at = closed + 3 if closed >= 0 else len(document)
    text = (
        "".join([*kept, document[at:]])
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\t", "    ")
    )
    seen = "".join(c for c in text if c == "\n" or unicodedata.category(c)[0] != "C")
    return seen.split("\n")


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._block = 0
        self._heading = ""
        self._lead = ""
        self._held: list[tuple[int, str]] = []
        """Lines of the paragraph or item that is being read, with their numbers."""
        self._item = False
        self._headers: list[str] = []

    def read(self) -> Iterator[Sentence]:
        fence = ""
        for number, line in enumerate(self._lines, 1):
            bare = line.strip()
            if fence:
                if bare.startswith(fence):
                    fence = ""
                else:
                    yield self._sentence(line, number, code=True)
            elif bare.startswith(("```", "~~~")):
                yield from self._flush()
                fence = bare[:3]
            else:
                yield from self._line(line, bare, number)
        yield from self._flush()

    def _line(self, line: str, bare: str, number: int) -> Iterator[Sentence]:
        heading = _HEADING.fullmatch(line)
        if heading or not bare:
            yield from self._flush()
            self._headers = []
            if heading:
                self._heading, self._lead = plain(heading[2]), ""
                # A heading can itself decide: "Dropped: x".
                yield self._sentence(heading[2], number)
        elif self._held and not self._item and set(bare) in ({"="}, {"-"}):
            self._heading, self._lead = plain(self._held[-1][1]), ""
            yield from self._flush()
        elif bare.count("|") >= 2:
            yield from self._flush()
            yield from self._row(bare, number)
        elif item := _ITEM.fullmatch(line):
            yield from self._flush()
            self._item = True
            self._held = [(number, item[1])]
        else:
            self._held.append((number, bare))

    def _row(self, bare: str, number: int) -> Iterator[Sentence]:
        cells = [cell.strip() for cell in bare.strip("|").split("|")]
        following = self._lines[number].strip() if number < len(self._lines) else ""
        if _rule(bare):
            return
        if _rule(following):
            self._headers = [plain(cell) for cell in cells]
            return
        headers = self._headers[: len(cells)]
        headers += [""] * (len(cells) - len(headers))
        pairs = tuple(
            (head[:MAX_SENTENCE], plain(cell)[:MAX_SENTENCE])
            for head, cell in zip(headers, cells, strict=True)
        )
        self._block += 1
        yield self._sentence(" | ".join(cells), number, cells=pairs)

    def _flush(self) -> Iterator[Sentence]:
        """The sentences of what was held."""
        held, item = self._held, self._item
        self._held, self._item = [], False
        if not held:
            return
        self._block += 1
        outer = self._heading
        first = held[0][1]
        bold = _BOLD.match(first)
        if bold and not item and len(bold[1].split()) <= 6:
            self._heading = plain(bold[1]).rstrip(":.")
            if not bold[3] and len(held) == 1:
                yield self._sentence(bold[1], held[0][0])
                self._lead = ""
                return
        for number, text in _split(held):
            yield self._sentence(text, number, item=item)
        last = held[-1][1].rstrip(" *_")
        if not item:
            self._lead = plain(last) if last.endswith(":") else ""
        if bold and not item and not last.endswith(":"):
            # A bold lead is the heading of its own paragraph, and of a list that it introduces.
            self._heading = outer

    def _sentence(
        self,
        text: str,
        line: int,
        *,
        code: bool = False,
        item: bool = False,
        cells: tuple[tuple[str, str], ...] = (),
    ) -> Sentence:
        return Sentence(
            text=plain(text)[:MAX_SENTENCE],
            shown=text.strip()[:MAX_SENTENCE],
            line=line,
            block=self._block,
            heading=self._heading[:MAX_SENTENCE],
            lead=self._lead[:MAX_SENTENCE] if item or cells else "",
            code=code,
            item=item,
            cells=cells,
        )


def _rule(bare: str) -> bool:
    """Whether it is the line between a table's header and its rows."""
    return "-" in bare and set(bare) <= set("|:- ")


def _split(held: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(line, sentence) of some lines read as one text."""
    text = " ".join(line for _, line in held)
    starts: list[tuple[int, int]] = []
    at = 0
    for number, line in held:
        starts.append((at, number))
        at += len(line) + 1
    begin, where = 0, 0
    for end in [*_ends(text), len(text)]:
        piece = text[begin:end].lstrip()
        first = end - len(piece)
        piece = piece.rstrip()
        while where + 1 < len(starts) and starts[where + 1][0] <= first:
            where += 1
        for start in range(0, len(piece), MAX_SENTENCE):
            yield starts[where][1], piece[start : start + MAX_SENTENCE]
        begin = end


def _ends(text: str) -> Iterator[int]:
    for match in _WORD.finditer(text):
        word = match[0].rstrip("\"')]*_`")
        if not word.endswith((".", "!", "?")):
            continue
        bare = word.rstrip(".").lstrip("(").lower()
        if word.endswith(".") and (bare in _SHORT or (bare.isdigit() and len(bare) < 3)):
            continue
        yield match.end()
