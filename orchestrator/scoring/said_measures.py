"""What a document says of the metric that it judges by, and of uneven classes. Pure.

The rules are told in docs/probes.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from orchestrator.scoring.prose import Sentence

MAX_NAMES = 20
"""Of metrics in one sentence that are looked at."""
METRICS = {
    "pr-auc": r"pr[- ]?auc|auc[- ]?pr|average precision|auprc"
    r"|area under the (?:pr|precision)\b[\w /-]{0,20}",
    "roc-auc": r"roc[- ]?auc|auc[- ]?roc|auroc|area under the roc|\bauc\b",
    "f-beta": r"f[- ]?(?:0\.5|2|beta)(?:[- ]?score|[- ]?measure|[- ]?value)?",
    "f1": r"(?:macro|micro|weighted)?[- ]?f[- ]?1(?:[- ]?score|[- ]?measure|[- ]?value)?",
    "balanced-accuracy": r"balanced accuracy",
    "mcc": r"mcc|matthews(?: correlation)?",
    "log-loss": r"log[- ]?loss|cross[- ]entropy",
    "accuracy": r"accuracy",
    "precision": r"precision",
    "recall": r"recall",
}
_METRIC = re.compile("|".join(f"(?P<m{n}>\\b(?:{p})\\b)" for n, p in enumerate(METRICS.values())))
_AGAINST_BEFORE = re.compile(
    r"\b(?:rather than|instead of|not|over|unlike|than|avoid\w*|ignor\w*|plain|drop\w*)"
    r"\b[\s\w]{0,12}$|\bat (?:(?:a )?(?:fixed|given|least)|[\d.]+)[\s\d.%]*$"
)
_AGAINST_AFTER = re.compile(
    r"^[^.;,()]{0,60}?\b(?:mislead\w*|useless|says little|tells? (?:us )?(?:nothing"
    r"|little)|meaningless|dominated|inflated|not used|not suitable|unsuitable|forgiving|optimistic"
    r"|hides|not an? (?:\w+ )?(?:good|useful|suitable|reliable|meaningful|helpful)"
    r"|would (?:already |still )?(?:be|reach|look|give)"
    r"|(?:of|is) at least)\b"
)
_AT_LEAST = re.compile(r"\s*(?:of|is|=|>=|≥)\s*(?:at least )?\d")
"""`at a precision of 0.9`: a condition, not what is judged by."""
_SIDE = re.compile(r"\b(?:also|secondary|additionally|as well|besides|monitor\w*|track\w*)\b")
_CHOSEN = re.compile(
    r"\b(?:metrics?|metrik|score:|primary|main|headline|final|decid\w*|optimi[sz]\w*|maximi[sz]\w*"
    r"|minimi[sz]\w*|judged?|settled|chose|chosen|choose|select\w*|choice|measure|report\w*|evaluat\w*|figure)\b"
)
_REASON = re.compile(r"\b(?:since|because|which|as (?:a|an|it|the|this|both|we|only|most))\b")
"""What comes after it explains the metric that came before it."""
_REPORTED = re.compile(r"\breport\w*\b")
_SELECTS = re.compile(
    r"\b(?:primary|main|headline|decid\w*|optimi[sz]\w*|maximi[sz]\w*|select\w*)\b"
)
_OPEN = re.compile(r"\b(?:or|to be decided|tbd|undecided|which)\b|\?")

_UNEVEN = re.compile(
    r"\b(?:im|un)balanc\w*|\bimbalenc\w*|\bskew\w*|\brare\b|\bscarce\b|\bminority\b|\bmajority\b"
    r"|\buneven\w*|\bunequal\w*|\bone (?:message )?in \w+\b|\bonly a \w+ of\b|\bfewer than one in\b"
    r"|\bmost\b[^.;,]{0,20}?\b(?:ham|negatives?|legit\w*)\b"
    r"|\b(?:only|about|roughly|~|≈|just|up)\s*~?\s*\d{1,2}(?:\.\d+)?\s*%"
    r"|\d\s*% (?:of \w+ |are |is )?(?:spam|positives?)\b"
)
_REMEDY = re.compile(
    r"\bclass[ _-]weights?\b|\bclass_weight\b|\bweight the classes\b|\breweigh\w*"
    r"|\b(?:over|under|re)-?sampl\w*|\bsmote\b|\bstratif\w*|\bscale_pos_weight\b|\bis_unbalance\b"
    r"|\bfocal loss\b"
    r"|\bthreshold\b[^.;]{0,40}?\b(?:tun\w*|set|mov\w*|chosen|picked|optimi\w*|lower\w*)\b"
    r"|\b(?:tun\w*|mov\w*|lower\w*|choose|pick)\b[^.;]{0,30}?\bthreshold\b"
)
_EVEN = re.compile(
    r"\b(?:no|not an?|n't an?) (?:class )?(?:im|un)balanc\w*|\bclasses are (?:\w+ )?balanced\b"
    r"|\bimbalance\b[^.;]{0,30}?\b(?:not|no)\b[^.;]{0,20}?\b(?:problem|issue|concern)"
    r"|\bclass balance is (?:fine|good|ok)\b|\bimbalance is (?:mild|small)\b"
)
_NO_REMEDY = re.compile(r"(?:\b(?:no|not|without|rather than|instead of)\b|n't\b)[\s\w]{0,12}$")

_REMEDY_OFF = re.compile(
    r"^[\s\w]{0,12}\b(?:stays?|(?:is|are) (?:left|kept|not)|remains?|default|hurt\w*|did not"
    r"|didn't)\b"
)


def metric(found: Sequence[Sentence]) -> tuple[str, list[Sentence]]:
    """The metric that the document judges by: its name, unclear or unmentioned."""
    chosen: dict[str, list[Sentence]] = {}
    plain: dict[str, list[Sentence]] = {}
    undecided: list[Sentence] = []
    for sentence in found:
        if sentence.code:
            continue
        names = _named(sentence.text)
        if not names:
            continue
        if (_OPEN.search(sentence.text) and len(names) > 1) or sentence.text.endswith("?"):
            undecided.append(sentence)
            continue
        says = _CHOSEN.search(sentence.text) or "metric" in sentence.heading
        target = chosen if says else plain
        for name in names:
            target.setdefault(name, []).append(sentence)
    for kind in (chosen, plain):
        if kind:
            return (_one(kind) or "unclear"), [s for each in kind.values() for s in each]
    return ("unclear" if undecided else "unmentioned"), undecided


def _named(text: str) -> list[str]:
    """Metrics that a sentence speaks for, those it puts in second place left out."""
    kept: list[str] = []
    first = 0
    selects = _SELECTS.search(text)
    for match in islice(_METRIC.finditer(text), MAX_NAMES):
        name = list(METRICS)[next(n for n in range(len(METRICS)) if match[f"m{n}"])]
        before, after = text[: match.start()], text[match.end() :]
        if name in ("precision", "recall") and _AT_LEAST.match(after):
            continue
        of_it = _REASON.split(after[:90])[0]
        if _AGAINST_BEFORE.search(before[-40:]) or _AGAINST_AFTER.search(of_it):
            continue
        if kept and _REASON.search(before, first):
            continue
        clause = re.split(r"[;,]", before)[-1] + re.split(r"[;,]", after)[0]
        elsewhere = selects and not _SELECTS.search(clause)
        if _SIDE.search(clause) or (elsewhere and _REPORTED.search(clause)):
            continue
        first = first if kept else match.end()
        kept.append(name)
    return list(dict.fromkeys(kept))


def _one(named: dict[str, list[Sentence]]) -> str | None:
    names = set(named)
    if "f1" in names:
        # They are what F1 is made of.
        names -= {"precision", "recall"}
    return names.pop() if len(names) == 1 else None


def imbalance(found: Sequence[Sentence]) -> tuple[str, list[Sentence]]:
    """What it makes of uneven classes: handled, noted, denied, unclear or unmentioned."""
    handled, noted, denied = [], [], []
    for sentence in found:
        text = sentence.text
        if sentence.code:
            continue
        if _EVEN.search(text):
            denied.append(sentence)
            continue
        if any(_applied(text, match) for match in _REMEDY.finditer(text)):
            handled.append(sentence)
        elif _UNEVEN.search(text):
            noted.append(sentence)
    if denied:
        return ("unclear" if handled or noted else "denied"), denied + handled + noted
    if handled:
        return "handled", handled + noted
    return ("noted" if noted else "unmentioned"), noted


def _applied(text: str, remedy: re.Match[str]) -> bool:
    before, after = text[: remedy.start()][-30:], text[remedy.end() :][:60]
    return not _NO_REMEDY.search(before) and not _REMEDY_OFF.search(after)
