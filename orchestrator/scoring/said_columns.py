"""What a document says of a column: whether it is used, and whether it is known in time. Pure.

The rules are told in docs/probes.md, with how often they are right. All patterns are tried on one
sentence at a time, which has a length limit, and none nests repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orchestrator.scoring.prose import Sentence

Stance = Literal["yes", "no", "open"]

SAID, HINTED = 2, 1
"""Weights: a sentence or heading that says it; a list below a heading as general as `Features`."""


@dataclass(frozen=True)
class Finding:
    """That a sentence takes a stance; the heaviest findings decide."""

    stance: Stance
    sentence: Sentence
    weight: int = SAID


_OUT = re.compile(
    r"\b(?:exclud\w*|exclusion|dropp?(?:ed|s|ing)?|remov\w*|omit\w*|discard\w*|ignor\w*|skip\w*"
    r"|withh[eo]ld\w*|reject\w*|disregard\w*|unused|forgo\w*|eliminat\w*|avoid\w*|except|without"
    r"|apart from|other than|rather than|instead of|decided against|banned|off.limits"
    r"|(?:not|never) (?:considered|taken into account)|(?:columns|features|everything) but"
    r"|(?:has|have|had) to go|must go|refrain\w* from"
    r"|(?:model|classifier) (?:does not|doesn't|never) sees?)\b"
)
_IN = re.compile(
    r"\b(?:use[ds]?|using|utili[sz]\w*|includ\w*|keep\w*|kept|retain\w*|feeds?|feeding|fed"
    r"|enter(?:s|ed)?|rel(?:y|ies|ied|ying)|lean\w*|incorporat\w*|part of|goes? in(?:to)?"
    r"|stays? in|taken|(?:(?<=not )|(?<=we ))take|adopt\w*|trained on|add(?:s|ed|ing)?"
    r"|pass(?:es|ed)?|combin\w*|consists? of|our (?:\w+ ){0,3}(?:feature|predictor)"
    r"|(?:serve|served|treat|treated|take|act)s? (?:\S+ )?as (?:an? )?(?:\w+ )?(?:feature|input)"
    r"|goes (?:straight|directly) into|(?:one of|among) (?:the|our) (?:features|inputs))\b"
)
_EXCEPT = re.compile(r"\b(?:except|but|apart from|other than|excluding)\b[\w, ]{0,80}$")
_PARTED = re.compile(
    r"\b(?:leave|leaves|leaving|left|keep|keeps|kept|let|stays?|stayed|takes?|taken|set|put)\b"
    r"(?:\s+[\w']+){0,4}?\s+(out|away|aside)\b"
)
"""Verbs whose particle turns them: leave it out, keep the column out, let it away."""
_NO_OBJECT = re.compile(r"without\W*$")
"""`one with x and one without`: of what, is not said."""
_TURNS = re.compile(
    r"(?:without|avoid\w*|refrain\w* from|rather than|instead of)\s+"
    r"\w*(?:us|lean|rel|feed|includ|add)"
)
"""`without using`: the first word turns the second and says nothing itself."""
_NOT = re.compile(
    r"\b(?:not(?! only\b)|never|no|cannot|neither|nor|don?t|won?t|didn?t|isn?t|nothing)\b"
    r"|n't\b|\bcan't\b"
)
_MAYBE = re.compile(
    r"\b(?:if|whether|unless|may|might|could|would|(?<!not )(?<!never )consider\w*|possibly"
    r"|perhaps|maybe|initial(?:ly)?|originally|at first"
    r"|tempting|option\w*|otherwise|to be decided|tbd|depending|will check"
    r"|want to|tried|try|experiment\w*)\b|\?"
)
_BREAK = re.compile(
    r"[;()]|\s[-–—]+\s"
    r"|,?\s\b(?:(?<!columns )(?<!features )(?<!everything )but(?! also)|however|whereas|while"
    r"|although|though|so|because|since|hence|therefore|therefor|which)\b"
    r"|,\s(?:and|as|then)\b|\band (?:we|i|then|therefore)\b|,\s(?=it\b)"
)
_ASIDE = re.compile(r"\s*[(–—-]")
ASIDE_CHARS = 16
_CONTINUED = re.compile(
    r"(?:,?\s*(?:but|so|and|hence|therefore|thus|then|still|nevertheless|is|was|\w+ly)\b){1,4}\s+"
    r"(?=\w+ed\b|left\b|kept\b)"
)
"""`x is strong but deliberately excluded`: what follows at once is still about x."""
_PRONOUN = re.compile(
    r"\b(?:it|its|it's|this|that|these|they|them|such|those|the column|the flag|the field)\b"
)
_NAME = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b")
_ENDED = re.compile(r"(\w+?([b-df-hj-np-tv-z]))\2ed|(\w{3,})ed")
_SAYS_OUT = re.compile(
    r"\b(?:exclud\w*|drop(?:ped)?|unused|(?:left|leave) out|ignored?|removed?|omit(?:ted)?"
    r"|discard(?:ed)?|reject(?:ed)?|avoid(?:ed)?|(?:not|never|don't|won't)(?: \w+){0,2}"
    r" (?:us(?:e|ed|ing)|includ\w+|ke(?:ep|pt)|select\w*))\b"
)
_SAYS_IN = re.compile(r"\b(?:used|use|included?|kept|keep|selected|goes in|go in)\b")
_GENERAL = re.compile(r"\b(?:columns?|features?|inputs?|signals?|predictors?)\b")
_SUBJECT = re.compile(r"(?:the \w+ )?it [a-z]")
"""A sentence that tells something of the column, and lists it not."""
_IN_BRACKETS = re.compile(r"\s?\([^()]{0,200}\)")
_TOLD = re.compile(r"\s*[:=→]\s*(\S{1,8}?)(?=[\s.,;]{0,3}(?:$|[(–—-]|[.,;]\s))")
"""`x: no (a leak)`"""
_YES = frozenset({"yes", "y", "✓", "✔", "✅", "x", "true", "in", "ja"})
_NO = frozenset({"no", "n", "✗", "✘", "❌", "false", "out", "-", "nein", "never"})

_LATE = re.compile(
    r"\bun(?:available|known)\b|\bafter the fact\b|\bhindsight\b|\bpost[- ](?:hoc|factum|delivery"
    r"|arrival|event)\b|\bdownstream\b|\bfrom the future\b|\btoo late\b"
    r"|\bafter (?:the )?(?:arrival|delivery)\b"
    r"|(?:\b(?:not|never|nobody|no ?one|no \w+ has|cannot|nothing)\b|n't\b)[^.;,]{0,60}?"
    r"\b(?:known|ava?i?lab\w*|exist\w*|present|there|filled|set|flagged|seen|looked|happened|moderated"
    r"|reviewed|decided)\b"
    r"|\b(?:only|first|set|assigned|written|added|filled|happens?|acts?|made|created|recorded|comes?"
    r"|generated|produced|determined|populated|reviews?|flags?|flagged)\b[^.;]{0,40}?\b(?:after|later|once)\b"
    r"|\balready (?:seen|read|looked|reviewed|delivered|in the)\b"
    r"|\bcan only\b[^.;]{0,50}?\balready\b|\balways be (?:zero|0|empty)\b"
    r"|\bbefore (?:any|a|some|anyone|anybody|somebody)\b[^.;]{0,30}?\b(?:seen|looked|read|review)"
)
_LEAK = re.compile(r"\b(?:lea|lee)k(?:s|y|age|ing|ed)?\b")
_NO_LEAK = re.compile(
    r"(?:\b(?:not|no|without)\b|n't\b)\s+(?:a |an |any |data |target )*(?:lea|lee)k"
)
_MAYBE_LEAK = re.compile(
    r"\b(?:could|may|might|possib\w+|potential\w*|risk of)\b[^.;,]{0,40}?\b(?:lea|lee)k\w*"
)
_EARLY = re.compile(
    r"\b(?:available|known|present|accessible|provided|given|part of)\b[^.;]{0,40}?"
    r"\b(?:at|when|in|during|on|by|that)\b[^.;]{0,40}?\b(?:predict\w*|inference|scoring|score|serving|arriv\w*|lands?"
    r"|run ?time|runs|moment|inputs?|time|day)\b|\binputs?\b[^.;]{0,20}?\bpredict"
)
_ASKS_KNOWN = re.compile(r"\b(?:known|available|availability|at prediction|at inference)\b")
_UNSURE = re.compile(
    r"\b(?:if|whether|may|might|maybe|perhaps|possibly|unclear|not sure|uncertain|not checked"
    r"|could be|to be checked)\b|\?"
)


def relevant(found: Sequence[Sentence], name: re.Pattern[str]) -> Iterator[tuple[Sentence, bool]]:
    """Sentences about a column, each with whether it names it itself.

    Others are about it below a heading that names it and no other, or where they follow such a
    sentence in their paragraph, refer to something by a pronoun, and name nothing else.
    """
    block, gap = -1, 0
    for sentence in found:
        if name.search(sentence.text):
            block, gap = sentence.block, 0
            yield sentence, True
            continue
        others = bool(_NAME.search(sentence.text))
        below = bool(name.search(sentence.heading)) and len(_NAME.findall(sentence.heading)) <= 1
        if below and not others and not sentence.code:
            yield sentence, False
        elif sentence.block == block and not others and gap < 2:
            # One sentence without a pronoun, as a reason has it, may lie between.
            gap = 0 if _PRONOUN.search(sentence.text) else gap + 1
            yield sentence, False
        elif sentence.block == block:
            block = -1


def column_pattern(column: str) -> re.Pattern[str]:
    """A column's name as people write it: with spaces or hyphens for its underscores too, and
    of several words the last without its ending (`moderator flag`)."""
    words = [part for part in re.split(r"[_\W]+", column.lower()) if part]
    parts = [re.escape(word) for word in words]
    if len(words) > 1 and (ended := _ENDED.fullmatch(words[-1])):
        parts[-1] = rf"(?:{parts[-1]}|{re.escape(ended[1] or ended[3])})"
    # What has no letter has no name that a text could mention.
    return re.compile(rf"(?<!\w){'[ _-]?'.join(parts)}(?!\w)" if parts else r"(?!)")


def plans(about: Sequence[tuple[Sentence, bool]], name: re.Pattern[str]) -> list[Finding]:
    """What is to be done with the column, by each sentence about it; yes: it is used."""
    found: list[Finding] = []
    for sentence, named in about:
        if sentence.code:
            found.append(Finding("open", sentence, HINTED))
            continue
        stances = _in_cells(sentence) or _in_sentence(sentence.text, name if named else None)
        if stances:
            found += [Finding(stance, sentence) for stance in dict.fromkeys(stances)]
        elif named and (above := _above(sentence, name)):
            found.append(above)
        elif named:
            found.append(Finding("open", sentence, HINTED))
    return found


def _in_cells(sentence: Sentence) -> list[Stance]:
    """By a table's column that asks for it: yes or no, or a verb, below `Used` or `Decision`."""
    for header, cell in sentence.cells[1:]:
        out = bool(_SAYS_OUT.search(header))
        asks = out or bool(
            _SAYS_IN.search(header) or re.search(r"decision|action|model|plan", header)
        )
        if not asks:
            continue
        word = cell.split()[0].strip(".,:;") if cell else ""
        if word in _YES or word in _NO:
            return ["yes" if (word in _YES) != out else "no"]
        if stances := _in_sentence(cell, None):
            return stances[:1]
    return []


def _in_sentence(text: str, name: re.Pattern[str] | None) -> list[Stance]:
    """Stances of the verbs that govern the name; without a name, of all verbs."""
    if name is not None and (mention := name.search(text)):
        # `not used: a (an id), x (late)`: what is said of the others does not part x from its verb.
        text = _IN_BRACKETS.sub("", text[: mention.start()]) + text[mention.start() :]
        mention = name.search(text) or mention
        if re.match(r"why not\b", text):
            return ["no"]
        told = _TOLD.match(text, mention.end())
        if told and told[1] in _YES | _NO:
            return ["yes" if told[1] in _YES else "no"]
    parts = _parts(text)
    if name is None:
        return [stance for begin, end in parts for _, stance in _verbs(text[begin:end])]
    stances: list[Stance] = []
    begin_of_named = -1
    for begin, end in parts:
        part = text[begin:end]
        mention = name.search(part)
        if mention:
            begin_of_named = begin
            verb = _governing(part, mention, _verbs(part))
            if verb is not None:
                stances.append(verb)
        elif begin_of_named >= 0 and (_PRONOUN.search(part) or "against" in part):
            stances += [stance for _, stance in _verbs(part)]
        elif begin_of_named >= 0 and _ASIDE.match(part):
            # `x (kept)`, `x - dropped`
            stances += [stance for place, stance in _verbs(part) if place < ASIDE_CHARS]
        elif begin_of_named >= 0 and (same := _CONTINUED.match(part)):
            stances += [stance for place, stance in _verbs(part) if place == same.end()]
    return [stance for stance in stances if stance != "open"] or stances


def _governing(
    part: str, mention: re.Match[str], verbs: Sequence[tuple[int, Stance]]
) -> Stance | None:
    before = [verb for verb in verbs if verb[0] < mention.start()]
    if before and re.match(r"\s+(?:is|are|was|were) not\W*$", part[mention.end() :]):
        # `a is used and x is not`
        turned: dict[Stance, Stance] = {"yes": "no", "no": "yes", "open": "open"}
        return turned[before[-1][1]]
    if before and _EXCEPT.search(part[: mention.start()]):
        # `all but x are used`
        return before[-1][1]
    after = [verb for verb in verbs if verb[0] > mention.start()]
    # `x is dropped`: what follows at once with a form of to be says it of x.
    passive = re.match(
        r"[\s\w]{0,20}?\b(?:is|was|are|were|be|been|stays?|gets?)\b", part[mention.end() :]
    )
    if after and (passive or not before):
        return after[0][1]
    return before[-1][1] if before else None


def _parts(text: str) -> list[tuple[int, int]]:
    cuts = [0, *(match.start() for match in _BREAK.finditer(text)), len(text)]
    return [(begin, end) for begin, end in pairwise(cuts) if begin < end]


def _verbs(part: str) -> list[tuple[int, Stance]]:
    """(place, stance) of what a part of a sentence does: yes takes in, no leaves out."""
    parted = {match.start(): match.end() for match in _PARTED.finditer(part)}
    found: list[tuple[int, bool]] = [(start, False) for start in parted]
    for pattern, takes_in in ((_OUT, False), (_IN, True)):
        for match in pattern.finditer(_NO_OBJECT.sub("", part)):
            if not any(start <= match.start() < end for start, end in parted.items()):
                found.append((match.start(), takes_in))
    found.sort()
    maybe = _MAYBE.search(part) is not None
    stances: list[tuple[int, Stance]] = []
    since, turned = 0, False
    for place, takes_in in found:
        between = part[since:place]
        # `neither … nor` is one negation, not two.
        negations = 1 if "neither" in between else len(_NOT.findall(between))
        if not takes_in and _TURNS.match(part, place):
            turned, since = True, place
            continue
        positive = takes_in ^ bool(negations % 2) ^ turned
        stances.append((place, "open" if maybe else "yes" if positive else "no"))
        since, turned = place + 1, False
    return stances


def _above(sentence: Sentence, name: re.Pattern[str]) -> Finding | None:
    """By its own label before a colon, the line that introduces its list, else by the heading."""
    told = (
        not sentence.item and not sentence.cells and _SUBJECT.match(name.sub("it", sentence.text))
    )
    label = sentence.text.partition(":")[0] if ":" in sentence.text else ""
    if len(label.split()) > 4:
        label = ""
    for place in filter(None, (label, sentence.lead, sentence.heading)):
        if _SAYS_OUT.search(place):
            return Finding("no", sentence)
        if _SAYS_IN.search(place):
            return Finding("yes", sentence)
        late = _LATE.search(sentence.text) or _LEAK.search(sentence.text)
        if _GENERAL.search(place) and not late and not told:
            return Finding("yes", sentence, HINTED)
    return None


def availability(about: Sequence[tuple[Sentence, bool]]) -> list[Finding]:
    """Whether the column is known when the program predicts, by each sentence about it."""
    found: list[Finding] = []
    for sentence, _ in about:
        text = sentence.text
        if sentence.code:
            continue
        asked = [cell for header, cell in sentence.cells[1:] if _ASKS_KNOWN.search(header)]
        word = asked[0].split()[0].strip(".,:;") if asked and asked[0] else ""
        if word in _YES or word in _NO:
            found.append(Finding("yes" if word in _YES else "no", sentence))
            continue
        no_leak = bool(_NO_LEAK.search(text))
        sure = _MAYBE_LEAK.sub("", text)
        leak = bool(_LEAK.search(sure))
        late = bool(_LATE.search(text)) or (leak and not no_leak)
        early = bool(_EARLY.search(text)) and not late
        hedged = sure != text
        if not (late or early or no_leak or hedged):
            continue
        if _UNSURE.search(text) or (hedged and not late and not early):
            found.append(Finding("open", sentence))
        else:
            found.append(Finding("no" if late else "yes", sentence))
    return found
