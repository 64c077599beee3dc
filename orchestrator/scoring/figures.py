"""The figure that a sentence gives for the F1 of the positive class. Pure.

A number counts only where nothing says that it is another's: a threshold, a share of the data, a
bound, a difference, another metric, or the F1 of another class or of an average over classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

F1 = re.compile(r"(?<![a-z0-9])f(?:[-_ ]?1|_\{1\}|₁)(?![0-9])(?:[-_ ]?(?:score|measure|value))?")
EXPECTS = re.compile(r"\bexpect\w*|\bestimat\w*|\banticipat\w*")
AHEAD = re.compile(
    r"\bpredict\w*|\bhold[- ]?out\b|\bunseen\b|\bproduction\b|\b(?:later|future|new|next) (?:data"
    r"|messages|mail|rows|months?|weeks?)\b"
)
_NOT = re.compile(r"(?:n't|\b(?:not|never|cannot|no longer|nor|hardly))\s+(?:\w+\s+){0,2}$")

_TOO_HIGH = re.compile(
    r"\boverstat\w*|\boptimistic\w*|\binflat\w*|\bsuspicious\w*|\btoo (?:good|high)\b"
)

_PERCENT = r"\d{1,3}(?:[.,]\d+)?\s*(?:%|percent\b)"
_SHARE = r"(?:0?\.\d+|0,\d{2,}|1[.,]\d+)"
_NUMBER = rf"(?:{_PERCENT}|{_SHARE})"
_VALUE = re.compile(
    rf"(?<![\w.,@])(?:"
    rf"between\s+(?P<low>{_NUMBER}|\d{{1,2}}(?=\s+and\s+{_PERCENT}))\s+and\s+(?P<high>{_NUMBER})"
    rf"|[\[(]\s*(?P<left>{_NUMBER})\s*[,;]\s*(?P<right>{_NUMBER})\s*[\])]"
    rf"|(?P<from>{_NUMBER}|\d{{1,2}}(?=\s*(?:-|–|—|to)\s*{_PERCENT}))"
    rf"\s*(?:-|–|—|…|\.\.\.?|\bto\b)\s*(?P<to>{_NUMBER})"
    rf"|(?P<one>{_NUMBER})"
    rf")(?![\w%]|[.,]\d)"
)
_SPREAD = re.compile(rf"(?:±|\+/-|\+-)\s*{_NUMBER}|\(\s*(?:std|sd|±)[^()]*\)")
_ASIDE = re.compile(r"\([^()]*\)")
_TIGHT = re.compile(
    r"[\s:=|,≈~*]*(?:(?:is|was|of|be|will|to|at|reaches|a|an|the|about|around|approximately|roughly"
    r"|approx\.?|circa|ca\.|probably|near|close)\b[\s:=|≈~]*)*"
)
_MOVED = re.compile(
    r"\b(?:improv\w*|rais\w*|rose|lift\w*|drop\w*|fell|fall\w*|increas\w*|decreas\w*|went|go(?:es)?"
    r"|jump\w*|declin\w*|grew|gain\w*|mov\w*|boost\w*|push\w*|chang\w*)\b|->|→|\bfrom\b"
)
_OTHER = (
    r"precision|recall|accuracy|specificity|sensitivity|(?:pr[- ]?|roc[- ]?)?auc|average precision"
    r"|mcc|kappa|log[- ]?loss|brier|support"
)
_OTHERS = re.compile(rf"\b(?:{_OTHER})\b")
_ELSEWHERE = re.compile(rf"\b(?:{_OTHER})\b|[.!?;]\s|---")
"""Between the name and a figure: another metric, another sentence, a table that wasn't seen."""
_NO_FIGURE_BEFORE = re.compile(
    r"(?:[<>≤≥]=?|\b(?:thresh\w*|cut-?off|seeds?|weights?|rate|prevalence|baseline|std|deviation"
    r"|sd|error|margin|alpha|version|python|fold|epochs?|least|most|above|below|over|under|than"
    r"|beyond|exceed\w*|by|up to|not|last|latest|newest|first|recent|final|remaining|random|top"
    r"|every|plus|minus|target|goal|p|c|r))[\s:=≈~]*(?:(?:of|is|at|set to|about|a|an|the)\s+)*$"
)
_NO_FIGURE_AFTER = re.compile(
    r"\s*(?:(?:points? )?(?:lower|higher|worse|better|less|more|below|above|drop|loss|points?|pp)\b"
    r"|(?:of|confidence|ci|split|percentile|quantile|interval|train\w*|test|validation"
    r"|sample|threshold)\b|[-–—]?\s*>|→)"
)
_ONE_OF_SEVERAL = re.compile(rf"\s*(?:[/×+]|{_NUMBER}|(?:[,;]\s*{_NUMBER}\s*){{2}})")
"""Behind the first number of a list or of a calculation."""
_OTHER_CLASS = (
    r"macro|micro|weighted|samples?|ham|negatives?|negative class|legit\w*|not[- ]spam|non-?spam"
    r"|class 0|label 0|majority"
)
_OTHER_BEFORE = re.compile(
    rf"\b(?:{_OTHER_CLASS}|train(?:ing)?|std of|deviation of|baseline|target)[\s_-]*"
    r"(?:average[d]?|avg\.?|mean|class|set)?[\s_'s(-]*(?:the\s+)?$"
)
_OTHER_AFTER = re.compile(
    rf"^[\s_(,\[-]*(?:(?:for|of|on)\s+)?(?:the\s+)?(?:{_OTHER_CLASS}|train(?:ing)?|std|deviation)\b"
)
_BEFORE = re.compile(
    r"\s*(?:(?:is|as|in|for|the|our|my|an?|expected|estimated|predicted|overall|mean|spam|spam-class"
    r"|hold-?out|test|validation)\s+)*$"
)
_NAMES = re.compile(rf"\b(?:{_OTHER})\b|{F1.pattern}")
_NEXT = r"\s*(?:[/,&|]|,?\s*\band\b)\s*"
_LIST = re.compile(
    rf"(?P<names>(?:{_NAMES.pattern})(?:{_NEXT}(?:{_NAMES.pattern})){{1,5}})"
    rf"\s*(?:[:=]|\bare\b|\bof\b)?\s*(?P<values>{_NUMBER}(?:{_NEXT}{_NUMBER}){{0,5}})"
)
_MENTIONS = 12
"""Of F1 in a sentence, at most: with more it is no prose."""
_NEAR = 140
"""Characters from the name to its figure, at most."""


def clean(text: str) -> str:
    """Without spreads (± 0.02), in lower case."""
    return _SPREAD.sub("", text.lower())


def expects(text: str) -> re.Match[str] | None:
    """Where a sentence speaks of an expectation that it does not deny."""
    found = EXPECTS.search(text)
    return None if found is None or _NOT.search(text[: found.start()]) else found


def denies(text: str) -> bool:
    """Whether it says of a figure that it is not to be expected."""
    found = EXPECTS.search(text)
    return bool(_TOO_HIGH.search(text)) or (
        found is not None and bool(_NOT.search(text[: found.start()]))
    )


def figures(text: str, since: int = 0, *, tight: bool = False) -> Iterator[float]:
    """The figure of each mention of F1 at or after `since`; `tight`: only right behind the name."""
    listed = _listed(text)
    for mention in islice(F1.finditer(text), _MENTIONS):
        if mention.start() < since or _is_other(text, mention):
            continue
        if mention.start() in listed:
            value = listed[mention.start()]
        else:
            value = _after(text, mention, tight=tight)
            if value is None and not tight:
                value = _before(text, mention)
        if value is not None:
            yield value


def alone(text: str) -> float | None:
    """The figure that stands at the start of a text, as in a cell or under a heading."""
    found = _VALUE.match(text.lstrip(" :=≈~"))
    return None if found is None else _number(found)


def other(text: str) -> bool:
    """Whether a label (of a row, a column) is that of another class or of an average of them."""
    mentions = list(islice(F1.finditer(text), _MENTIONS))
    if mentions:
        return all(_is_other(text, mention) for mention in mentions)
    named = _OTHER_BEFORE.search(text) or _OTHER_AFTER.search(text) or _OTHERS.search(text)
    return bool(named) or text.strip() in ("0", "false")


def _is_other(text: str, mention: re.Match[str]) -> bool:
    before, after = text[: mention.start()], text[mention.end() :]
    return bool(_OTHER_BEFORE.search(before[-40:]) or _OTHER_AFTER.search(after[:40]))


def _after(text: str, mention: re.Match[str], *, tight: bool) -> float | None:
    rest = text[mention.end() : mention.end() + _NEAR]
    following = F1.search(rest)
    if following:
        rest = rest[: following.start()]
    # What stands in brackets tells how it was measured, unless nothing stands outside.
    for part in (_ASIDE.sub(lambda aside: " " * len(aside[0]), rest), rest):
        for found in _VALUE.finditer(part):
            gap, behind = part[: found.start()], rest[found.end() :]
            close = _TIGHT.fullmatch(gap)
            if (tight and not close) or _ELSEWHERE.search(gap):
                break
            if _of_several(gap, found, behind):
                return None
            value = _figure(text[: mention.end()] + gap, found, behind)
            if value is not None and (close or not _OTHERS.match(behind.lstrip())):
                return value
    return None


def _of_several(gap: str, found: re.Match[str], behind: str) -> bool:
    """Whether the number is one of a list or of a calculation."""
    falls = found["to"] and _number(found) is None and not _MOVED.search(gap)
    return bool(falls or gap.rstrip().endswith(("×", "+", "/")) or _ONE_OF_SEVERAL.match(behind))


def _before(text: str, mention: re.Match[str]) -> float | None:
    for found in _VALUE.finditer(text, max(0, mention.start() - _NEAR), mention.start()):
        if not _BEFORE.fullmatch(text[found.end() : mention.start()]):
            continue
        gap = text[: found.start()]
        if not re.search(rf"\b(?:{_OTHER})\b[\s:=]*(?:of\s+)?$", gap):
            return _figure(gap, found, "")
    return None


def _figure(before: str, found: re.Match[str], after: str) -> float | None:
    """The number found, unless what stands around it says that it is something else's."""
    near = before[-_NEAR:]
    if found["to"] and _MOVED.search(near):
        moves = re.search(r"\branges?\b|\bvari\w*", near)
        return _number(found) if moves else (_share(found["to"]) if expects(near) else None)
    if _NO_FIGURE_BEFORE.search(near) or _NO_FIGURE_AFTER.match(after):
        return None
    if re.match(rf"\s*\(?(?:(?:for|on|of)\s+)?(?:the\s+)?(?:{_OTHER_CLASS})\b", after):
        return None
    return _number(found)


def _listed(text: str) -> dict[int, float | None]:
    """Of `precision / recall / F1: 0.9 / 0.7 / 0.8`: place of an F1 → its figure, by its number in
    the list; None where there are not as many figures as names."""
    listed: dict[int, float | None] = {}
    for found in _LIST.finditer(text):
        names = list(_NAMES.finditer(found["names"]))
        numbers = re.findall(_NUMBER, found["values"])
        for place, name in enumerate(names):
            number = numbers[place] if len(numbers) == len(names) else None
            listed[found.start("names") + name.start()] = number and _share(number)
    return listed


def _number(found: re.Match[str]) -> float | None:
    ends = [found[name] for name in ("low", "high", "left", "right", "from", "to", "one")]
    texts = [text for text in ends if text]
    if len(texts) == 2 and texts[0].isdigit():
        texts[0] += "%"
    shares = [_share(text) for text in texts]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares) or known != sorted(known):
        return None
    return round(sum(known) / len(known), 6)


def _share(text: str) -> float | None:
    """In [0, 1]; None also for less than one percent, as who writes so means it otherwise."""
    plain = text.replace(",", ".")
    bare = plain.removesuffix("percent").rstrip("% ")
    value = float(bare)
    if bare == plain:
        return value if 0 <= value <= 1 else None
    return value / 100 if 1 <= value <= 100 else None
