"""Make single messages of the spam task: their wording, their sender, their counts.

All chance comes from `random.Random(int).random()`, whose stream Python promises to keep, and is
used in products and comparisons of doubles only: the same on every Python and every CPU.
"""

from __future__ import annotations

import hashlib
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

PHRASES = Path(__file__).with_name("phrases.toml")
DAY = 86_400
START = datetime(2025, 1, 6, tzinfo=UTC)
LATE_DAY = 160
"""First day (from START) of the wording marked `late` in phrases.toml."""

MOJIBAKE, ENTITIES, NO_SUBJECT, NO_AGE, TYPO = 0.05, 0.06, 0.004, 0.02, 0.05
"""Shares of messages with these defects, the same on both sides."""

HAM, SPAM = 0, 1
THEME_WEIGHTS = {
    # In the order of phrases.toml: parcel invoice account offer job money web event health
    # property request survey supply community.
    "ham": (9, 11, 8, 9, 7, 6, 5, 8, 8, 9, 9, 4, 8, 7),
    "spam": (11, 8, 12, 9, 6, 9, 8, 5, 7, 5, 5, 8, 6, 5),
    "late": (15, 7, 10, 7, 9, 11, 6, 5, 7, 4, 7, 6, 5, 5),
}
HOUR_WEIGHTS = (
    (1, 1, 1, 1, 1, 2, 4, 9, 16, 20, 20, 18, 14, 16, 18, 18, 16, 13, 9, 7, 6, 5, 3, 2),
    (7, 7, 7, 8, 8, 8, 9, 9, 10, 10, 10, 10, 10, 10, 10, 9, 9, 9, 9, 9, 8, 8, 8, 7),
)
WEEKDAY_WEIGHTS = ((20, 21, 20, 19, 17, 6, 4), (15, 16, 16, 15, 15, 12, 11))
# Registered long ago, within a year or so, within weeks, at a mailbox provider.
SENDER_WEIGHTS = ((58, 12, 4, 26), (26, 19, 34, 21))
LINKS = ((0,) * 13 + (1,) * 4 + (2, 3, 8, 14), (0,) * 7 + (1,) * 7 + (2, 2, 2, 3, 3, 5, 9))
ATTACHMENTS = ((0,) * 14 + (1,) * 5 + (2, 4), (0,) * 18 + (1,) * 3 + (2,))
REPLIES = ((0,) * 12 + (1,) * 4 + (2, 2, 3, 5), (0,) * 19 + (1, 1, 2))
MAILBOX_PROVIDERS = ("postbag", "mailhaven", "inboxly", "quickmail", "letterbox", "netpost")
LOCAL_PARTS = (
    ("office", "info", "orders", "hello", "bookings", "news", "accounts", "noreply"),
    ("info", "support", "noreply", "service", "sales", "offers", "team", "billing"),
)
BROKEN = {"’": "â€™", "–": "â€“", "£": "Â£", "é": "Ã©", "ö": "Ã¶", "ü": "Ã¼", "ë": "Ã«", "ç": "Ã§"}
ENTITY = {"&": "&amp;", "'": "&#39;", "£": "&pound;", "é": "&eacute;", ". ": ".&nbsp;"}
PLAIN_LETTERS = str.maketrans("éöüëç", "eouec")
SYLLABLES = (
    "amber", "ash", "beacon", "birch", "bright", "brook", "cedar", "chalk", "clear", "cliff",
    "clover", "copper", "coral", "crown", "dale", "delta", "east", "elm", "ember", "falcon",
    "fen", "field", "first", "ford", "forge", "gate", "glen", "green", "grove", "harbour", "hart",
    "heath", "high", "hill", "iron", "ivy", "juniper", "key", "lake", "lark", "lime", "link",
    "lodge", "maple", "mead", "mill", "moor", "north", "nova", "oak", "orchard", "park", "peak",
    "pine", "port", "prime", "quay", "raven", "red", "ridge", "river", "rowan", "silver", "south",
    "spring", "star", "stone", "summit", "swift", "thorn", "tide", "true", "union", "vale",
    "vista", "wave", "well", "west", "willow", "wood",
)  # fmt: skip
TRADES = (
    "supplies", "media", "homes", "lettings", "tools", "market", "logistics", "finance", "works",
    "clinic", "studio", "direct", "services", "online", "group", "parts", "foods", "travel",
    "store", "training", "digital", "partners", "care", "print",
)  # fmt: skip


class Message(NamedTuple):
    """A row before it gets its id and its recorded label. `at` is in seconds since START."""

    at: int
    subject: str
    body: str
    sender: str
    age: int | None
    links: int
    attachments: int
    replies: int
    spam: int


@dataclass(frozen=True)
class Difficulty:
    """What keeps the classes apart, and how little. Shares are of a class, ham and spam."""

    contamination: float = 0.072
    """Share of a message's segments in the other side's wording. At 0 each side keeps to its
    own, at 0.5 the wording says nothing."""
    metadata_contamination: float = 0.178
    """The same for sender, counts and time of day."""
    shared: float = 0.38
    """Share of segments in wording that both sides use."""
    blended: tuple[float, float] = (0.04, 0.13)
    """Messages that speak both registers alike."""
    disguised: tuple[float, float] = (0.012, 0.08)
    """Messages in the other side's register throughout: a newsletter that reads like an
    advertisement, a fraud that reads like a colleague."""

    def foreign_shares(self, side: int, count: int) -> list[float]:
        """For each of `count` messages of a side its share of foreign segments."""
        blended = round(count * self.blended[side])
        disguised = round(count * self.disguised[side])
        plain = count - blended - disguised
        return [self.contamination] * plain + [0.5] * blended + [1 - self.contamination] * disguised


class Chance:
    """A stream of choices, one per purpose, so that one part's draws never move another's."""

    def __init__(self, seed: int, purpose: str) -> None:
        digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
        self.unit = Random(int.from_bytes(digest[:8], "big")).random

    def below(self, n: int) -> int:
        return int(self.unit() * n)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.unit() * len(items))]

    def shuffled(self, items: Iterable[Any]) -> list[Any]:
        result = list(items)
        for i in range(len(result) - 1, 0, -1):
            j = self.below(i + 1)
            result[i], result[j] = result[j], result[i]
        return result


class Weighted:
    """Index drawn by integer weights."""

    def __init__(self, chance: Chance, weights: Sequence[int]) -> None:
        self.unit, self.sums = chance.unit, list(accumulate(weights))

    def draw(self) -> int:
        return bisect_right(self.sums, int(self.unit() * self.sums[-1]))


Render = Callable[[], str]
Pools = dict[str, list[Render]]


class Wording:
    """phrases.toml, compiled: pools of renderers for every theme, part and side."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        raw = tomllib.loads(PHRASES.read_text(encoding="utf-8"))
        self.slots: dict[str, list[str]] = raw["slots"] | _figures(chance, raw["slots"])
        self.soft: dict[str, dict[str, list[str]]] = raw["soft"]
        self.signer = {"me": "", "my-first": "", "us": ""}
        """Who the message at hand is from, for its last line."""
        self.greeting = self._pools(raw["greeting"])
        self.closing = self._pools(raw["closing"])
        self.subjects = [self._pools(theme["subject"]) for theme in raw["theme"].values()]
        self.bodies = [self._pools(theme) for theme in raw["theme"].values()]

    def _pools(self, table: dict[str, list[str]]) -> Pools:
        """Pools `ham` and `spam`, `late` spam, and the shared wording as each side speaks it."""
        pools = {
            name: [self._compile(phrase, side) for phrase in table[source]]
            for name, source, side in (
                ("ham", "ham", "ham"),
                ("spam", "spam", "spam"),
                ("both ham", "both", "ham"),
                ("both spam", "both", "spam"),
            )
        }
        late = [self._compile(phrase, "spam") for phrase in table.get("late", [])]
        return pools | {"late": pools["spam"] + late * 2, "both late": pools["both spam"]}

    def _compile(self, phrase: str, side: str) -> Render:
        literals, slots = _parse(phrase)
        renders = [self._slot(slot, side) for slot in slots]
        if not renders:
            return lambda: phrase
        if len(renders) == 1:
            (before, after), render = literals, renders[0]
            return lambda: before + render() + after
        pattern = "%s".join(part.replace("%", "%%") for part in literals)
        return lambda: pattern % tuple([render() for render in renders])

    def _slot(self, alternatives: list[str], side: str) -> Render:
        name, unit = alternatives[0], self.chance.unit
        if len(alternatives) > 1:
            pool = alternatives
        elif name in self.signer:
            signer = self.signer
            return lambda: signer[name]
        elif name in self.soft:  # the side's own words twice for each of the other's once
            pool = [*self.soft[name]["ham"], *self.soft[name]["spam"], *self.soft[name][side]]
        else:
            pool = self.slots[name]
        n = len(pool)
        if any("{" in entry for entry in pool):
            renders = [self._compile(entry, side) for entry in pool]
            return lambda: renders[int(unit() * n)]()
        return lambda: pool[int(unit() * n)]


def _parse(phrase: str) -> tuple[list[str], list[list[str]]]:
    """Split `a {x} b {y|z {w}}` into its literals and, between them, lists of alternatives."""
    literals, slots, depth = [""], [], 0
    for char in phrase:
        depth -= char == "}"
        if depth == 0 and char not in "{}":
            literals[-1] += char
        elif depth == 0 and char == "}":
            literals.append("")
        elif depth == 0:
            slots.append([""])
        elif depth == 1 and char == "|":
            slots[-1].append("")
        else:
            slots[-1][-1] += char
        depth += char == "{"
    return literals, slots


def _figures(chance: Chance, slots: dict[str, list[str]]) -> dict[str, list[str]]:
    """Pools of numbers, dates, codes, companies and addresses."""
    below, pick = chance.below, chance.pick

    def many(make: Callable[[], str]) -> list[str]:
        return [make() for _ in range(3000)]

    capitals = "ABCDEFGHJKLMNPRSTUVWXYZ"
    paths = ("go", "view", "my", "order", "info", "login", "help")
    pence, reductions = ("", "", ".99", ".50", ".95"), (5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80)
    return {
        "amount": many(lambda: f"£{pick((40, 90, 200, 500)) * (1 + below(9)) + below(40)}.00"),
        "price": many(lambda: f"{pick('££££€$')}{1 + below(89)}{pick(pence)}"),
        "wage": many(lambda: f"£{10 + below(16)}{pick(('', '.50', '.80'))}"),
        "percent": many(lambda: f"{pick(reductions)}%"),
        "order": many(lambda: f"{pick(capitals)}{pick(capitals)}-{10000 + below(90000)}"),
        "code": many(lambda: f"{100000 + below(900000)}"),
        "phone": many(lambda: f"01632 {960000 + below(1000)}"),
        "date": many(lambda: f"{1 + below(28)} {pick(slots['month'])}"),
        "time": many(lambda: f"{8 + below(10)}:{pick(('00', '15', '30', '45'))}"),
        "company": many(lambda: firm(chance).name),
        "url": many(lambda: f"https://{firm(chance).domain}/{pick(paths)}{below(100)}"),
    }


class Firm(NamedTuple):
    name: str
    domain: str


def firm(chance: Chance) -> Firm:
    first, trade = chance.pick(SYLLABLES) + chance.pick(SYLLABLES), chance.pick(TRADES)
    glue = chance.pick(("", "", "-"))
    return Firm(f"{first} {trade}".title(), f"{first}{glue}{trade}.example")


class Senders:
    """Domains with their day of registration; both sides write from all kinds of them."""

    OLDEST_NEW = 420

    def __init__(self, chance: Chance, days: int) -> None:
        self.chance = chance
        self.settled = [
            (firm(chance), 450 + chance.below(1000) * (1 + chance.below(8))) for _ in range(2400)
        ]
        self.new = [[firm(chance) for _ in range(3)] for _ in range(self.OLDEST_NEW + days)]
        self.kind = [Weighted(chance, weights) for weights in SENDER_WEIGHTS]

    def draw(self, side: int, day: int) -> tuple[Firm, int]:
        """A firm with the domain it writes from, and the age of that in days at `day`."""
        kind, below = self.kind[side].draw(), self.chance.below
        if kind == 0:
            settled, age = self.chance.pick(self.settled)
            return settled, age + day
        if kind == 3:
            provider = below(len(MAILBOX_PROVIDERS))
            domain = f"{MAILBOX_PROVIDERS[provider]}.example"
            return Firm(firm(self.chance).name, domain), 5200 + 311 * provider + day
        age = 60 + below(340) if kind == 1 else 1 + min(below(60), below(60))
        return self.chance.pick(self.new[self.OLDEST_NEW + day - age]), age


class Writer:
    """Writes messages that arrive in the `days` days from START, one after the other."""

    def __init__(self, seed: int, days: int, difficulty: Difficulty) -> None:
        self.difficulty = difficulty
        self.chance = chance = Chance(seed, "messages")
        self.wording = Wording(chance)
        self.senders = Senders(chance, days)
        self.hours = [Weighted(chance, weights) for weights in HOUR_WEIGHTS]
        self.themes = {name: Weighted(chance, weights) for name, weights in THEME_WEIGHTS.items()}

    def batch(self, spam: int, ham: int, days: range) -> list[Message]:
        """`spam` and `ham` messages of exact make-up, arriving on `days`, in no order."""
        arrivals = [
            Weighted(self.chance, [week[day % 7] for day in days]) for week in WEEKDAY_WEIGHTS
        ]
        plan = self.chance.shuffled(
            (side, foreign)
            for side, count in ((SPAM, spam), (HAM, ham))
            for foreign in self.difficulty.foreign_shares(side, count)
        )
        return [
            self._write(side, days.start + arrivals[side].draw(), foreign) for side, foreign in plan
        ]

    def _write(self, spam: int, day: int, foreign: float) -> Message:
        """One message. `foreign` is its share of segments in the other side's wording."""
        chance = self.chance
        unit, below, pick = chance.unit, chance.below, chance.pick
        # The envelope often looks like the other side's, part by part.
        sender_side, count_side, hour_side = (
            spam ^ (unit() < self.difficulty.metadata_contamination) for _ in range(3)
        )
        us, age = self.senders.draw(sender_side, day)
        name = (pick(self.wording.slots["first"]), pick(self.wording.slots["last"]))
        self.wording.signer.update({"me": " ".join(name), "my-first": name[0], "us": us.name})
        replies = pick(REPLIES[count_side])
        subject, body = self._text(spam, day >= LATE_DAY, foreign)
        if replies and unit() < 0.7:
            subject = f"Re: {subject}"
        if unit() < 0.5:
            sender = f"{us.name} <{pick(LOCAL_PARTS[sender_side])}@{us.domain}>"
        else:
            local = ".".join(name).lower().translate(PLAIN_LETTERS)
            sender = f"{' '.join(name)} <{local}@{us.domain}>"
        return Message(
            at=(day * 24 + self.hours[hour_side].draw()) * 3600 + below(3600),
            subject="" if unit() < NO_SUBJECT else subject,
            body=body,
            sender=sender,
            age=None if unit() < NO_AGE else age,
            links=pick(LINKS[count_side]) + body.count("https://"),
            attachments=pick(ATTACHMENTS[count_side]),
            replies=replies,
            spam=spam,
        )

    def _text(self, spam: int, late: bool, foreign: float) -> tuple[str, str]:
        unit, wording, shared = self.chance.unit, self.wording, self.difficulty.shared
        sides = ("ham", "late" if late else "spam")
        own, other = sides[spam], sides[not spam]

        def segment(pools: Pools, used: set[tuple[str, int]]) -> str:
            pool = other if unit() < foreign else own
            common = unit() < shared
            renders = pools[f"both {pool}" if common else pool]
            i = int(unit() * len(renders))
            while (key := ("both" if common else pool, i)) in used:
                i = (i + 1) % len(renders)
            used.add(key)
            text = renders[i]()
            return text[0].upper() + text[1:]

        theme = self.themes[own].draw()
        subject = segment(wording.subjects[theme], set())
        parts = [segment(wording.greeting, set())] if unit() < 0.7 else []
        length, used = unit(), set[tuple[str, int]]()
        for _ in range(2 if length < 0.35 else 3 if length < 0.8 else 4):
            parts.append(segment(wording.bodies[theme], used))
        if unit() < 0.8:
            parts.append(segment(wording.closing, set()))
        body = " ".join(parts)
        if unit() < TYPO:
            body = self._mistyped(body)
        damage = unit()
        if damage < MOJIBAKE:
            return _broken(subject), _broken(body)
        if damage < MOJIBAKE + ENTITIES:
            return subject, _replaced(body, ENTITY)
        return subject, body

    def _mistyped(self, text: str) -> str:
        """Two neighbouring letters swapped."""
        i = 1 + self.chance.below(len(text) - 2)
        if text[i - 1 : i + 2].isalpha():
            return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
        return text


def _broken(text: str) -> str:
    """UTF-8 read as Windows-1252, after a word processor's dashes and apostrophes."""
    return _replaced(_replaced(text, {"'": "’", ", ": " – "}), BROKEN)


def _replaced(text: str, table: dict[str, str]) -> str:
    for plain, other in table.items():
        text = text.replace(plain, other)
    return text
