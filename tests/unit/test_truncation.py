"""Silent truncation by its numbers: what is noticed, and what never may be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from orchestrator.records.calls import CallRecord, Pinned
from orchestrator.records.failures import TABLE, Attribution, FailureClass
from orchestrator.trial.truncation import (
    CALIBRATED,
    Calibration,
    Gauge,
    Prompt,
    counts_cached,
    fingerprints,
    prompt_of,
    size,
    truncated,
)

# Tokens by kind of text and vocabulary, as a share of `size`: measured on texts of 2,000 to 60,000
# characters with the vocabularies o200k, cl100k, Llama 3 and Llama 2, lowest and highest.
RATIOS = {
    "html": (0.66, 0.78),
    "long words": (0.67, 1.00),
    "python": (0.81, 1.12),
    "prompts of the tasks": (0.83, 1.22),
    "markdown": (0.91, 1.08),
    "json": (0.92, 1.35),
    "csv": (0.95, 1.22),
    "english": (0.97, 1.06),
    "thai": (0.99, 2.17),
    "numbers": (1.00, 1.80),
    "rules of signs": (1.00, 3.02),
    "russian": (1.00, 1.81),
    "german": (1.09, 1.30),
    "hindi": (1.08, 4.21),
    "korean": (1.22, 3.37),
    "indented code": (1.33, 1.67),
    "japanese": (1.37, 2.33),
    "upper case": (1.42, 2.06),
    "greek": (1.48, 4.13),
    "arabic": (1.50, 3.79),
    "base64": (1.89, 2.28),
    "chinese": (4.05, 7.06),
    "emoji": (4.50, 12.50),
}


def prompt(counted: int, estimate: int, asked: int = 32768, keep: int | None = None) -> Prompt:
    return Prompt(asked=asked, counted=counted, estimate=estimate, num_keep=keep)


# --- the estimate ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("word", 1),
        ("internationalization", 3),
        ("two words", 2),
        ("a\n\n  b", 3),
        ("x = 12345", 4),
        ("-" * 500, 1),
        ("=-=", 3),
        ("人人生而自由", 3),
        ("свободными", 2),
        ("🙂", 1),
        (" " * 5000, 0),
    ],
)
def test_the_estimate_counts_pieces_of_text(text: str, tokens: int) -> None:
    assert size(text) == tokens


def test_only_what_a_template_must_render_is_estimated() -> None:
    request = {
        "system": "S",
        "messages": [
            {"role": "system", "content": "You are."},
            {"role": "assistant", "content": "<think>\nlong\n</think>Answer.", "thinking": "more"},
            {"role": "user", "content": [{"type": "text", "text": "Part"}, {"type": "image"}]},
            {"role": "tool", "content": None},
            "what is this",
        ],
        "tools": [{"function": {"name": "f"}}],
    }
    assert prompt_of(request) == "S\nYou are.\nAnswer.\nPart"
    assert prompt_of({"prompt": "P", "system": "S"}) == "S\nP"
    assert prompt_of({}) == ""


# --- fingerprints ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "seen"), [(4096, 2050), (4096, 2051), (32768, 16387), (65536, 32770)]
)
def test_known_cases_of_truncation_have_their_fingerprint(context: int, seen: int) -> None:
    assert fingerprints(context)[seen] == context
    assert fingerprints(131072)[seen] == context
    assert seen not in fingerprints(context // 2)


def test_num_keep_moves_the_fingerprint() -> None:
    assert fingerprints(8192, 100)[8192 - (8192 - 100) // 2] == 8192
    assert 8192 - (8192 - 100) // 2 not in fingerprints(8192)


@pytest.mark.parametrize(
    ("given", "cut"),
    [
        (prompt(2050, 4500), True),  # 4096, in silence
        (prompt(2051, 3400), True),
        (prompt(16387, 30000), True),
        (prompt(2050, 2500), False),  # a prompt that just has so many
        (prompt(2050, 3000), False),
        (prompt(2052, 3600), False),  # neither a fingerprint nor far off
        (prompt(4099, 9000, asked=6000), True),  # nothing leaves that, but it is below half
        (prompt(4099, 7000, asked=6000), False),
        (prompt(8142, 15000, asked=16000, keep=100), False),
        (prompt(8050, 15000, asked=16000, keep=100), True),
        # Whole messages dropped: no fingerprint.
        (prompt(3000, 9000), True),
        (prompt(900, 20000), True),
        (prompt(4600, 9000), False),
        # Nothing to judge.
        (prompt(0, 20000), False),
        (prompt(1, 1000), False),
    ],
)
def test_without_calibration(given: Prompt, cut: bool) -> None:
    assert (truncated(given, Calibration()) is not None) is cut


def calibrated(*ratios: float) -> Calibration:
    known = Calibration()
    for ratio in ratios:
        known = known.with_call(prompt(round(10_000 * ratio), 10_000))
    return known


@pytest.mark.parametrize(
    ("ratios", "given", "cut"),
    [
        ((0.9, 0.9, 0.9, 0.9), prompt(5500, 10_000), False),  # too few calls yet
        ((0.9, 0.9, 0.95, 0.8, 1.2), prompt(5500, 10_000), True),
        ((0.9, 0.9, 0.95, 0.8, 1.2), prompt(6400, 10_000), False),
        ((1.2, 1.9, 1.4, 1.2, 1.4), prompt(6200, 10_000), True),
        ((1.2, 1.9, 1.4, 1.2, 1.4), prompt(6600, 10_000), False),  # English after Greek
        ((4.0, 4.2, 4.1, 5.0, 6.0), prompt(6600, 10_000), False),  # English after Chinese
        ((0.55, 0.6, 0.57, 0.9, 0.6), prompt(4300, 10_000), False),  # an unusual vocabulary
        ((0.55, 0.6, 0.57, 0.9, 0.6), prompt(4100, 10_000), True),
        ((0.9, 0.9, 0.9, 0.55, 0.51), prompt(5500, 10_000), True),  # two that lost a little
        ((1.6, 1.7, 1.6, 1.5, 1.9), prompt(2050, 2300), True),  # fingerprint, as the model counts
        ((0.9, 0.9, 0.9, 0.9, 0.9), prompt(2050, 2300), False),
    ],
)
def test_with_calibration(ratios: tuple[float, ...], given: Prompt, cut: bool) -> None:
    assert (truncated(given, calibrated(*ratios)) is not None) is cut


@pytest.mark.parametrize("kind", RATIOS)
def test_no_text_that_was_read_whole_is_called_cut(kind: str) -> None:
    """Any text after any others, at any length, in any context it fits into."""
    dice = random.Random(kind)
    for _ in range(3000):
        others = [dice.uniform(*dice.choice(list(RATIOS.values()))) for _ in range(CALIBRATED)]
        known = calibrated(*others) if dice.random() < 0.7 else Calibration()
        estimate = dice.randint(10, 120_000)
        counted = round(estimate * dice.uniform(*RATIOS[kind]))
        if counted in fingerprints(131072):
            continue  # by chance one in some thousands; see the next test
        assert truncated(prompt(counted, estimate, asked=131072), known) is None


@pytest.mark.parametrize("counted", fingerprints(131072))
def test_a_count_that_is_a_fingerprint_by_chance(counted: int) -> None:
    for low, high in RATIOS.values():
        for ratio in (max(low, 0.67), high):
            given = prompt(counted, int(counted / ratio), asked=131072)
            assert truncated(given, Calibration()) is None
            assert truncated(given, calibrated(0.9, 0.95, 0.85, 0.9, 1.0)) is None


# --- calls -----------------------------------------------------------------------------------

WORDS = "read the column and decide what to do with it then write that down "


def call(words: int, counted: int, *, text: str = "", **more: Any) -> CallRecord:
    content = text + WORDS * (words // 14)
    fields: dict[str, Any] = {
        "run": "r", "stage": "s", "turn": 0, "seq": 0, "at": "2026-01-01T00:00:00+00:00",
        "endpoint": "chat", "model": "m", "upstream": "ollama",
        "request": {"messages": [{"role": "user", "content": content}]},
        "pinned": {"options.num_ctx": Pinned(asked=None, sent=32768)},
        "reply": "ok", "prompt_tokens": counted, "duration_s": 1.0,
    }  # fmt: skip
    return CallRecord(**(fields | more))


def test_a_cut_prompt_is_the_harness_failure_with_its_numbers() -> None:
    failure = Gauge().examine([call(14_000, 13_000), call(14_000, 2050, seq=1)], "implement")
    assert failure is not None
    assert failure.failure_class is FailureClass.CONTEXT_TRUNCATED
    assert failure.attribution is Attribution.HARNESS
    assert not TABLE[failure.failure_class].valid
    assert failure.stage == "implement"
    assert "2050 tokens of a prompt of about 14000" in failure.sentence
    assert [item.excerpt for item in failure.evidence] == [
        "call 1: context asked: 32768",
        "call 1: tokens counted: 2050",
        "call 1: tokens estimated from what was sent: 14000",
        "call 1: fingerprint: what a context of 4096 leaves when a prompt is cut by tokens",
    ]


@pytest.mark.parametrize(
    "harmless",
    [
        call(14_000, 0),  # left out: it was cached
        call(14_000, 2050, tokens_estimated=True),
        call(140, 1),
        call(14_000, 12_000),
        call(14_000, 40_000),
    ],
)
def test_what_is_never_judged(harmless: CallRecord) -> None:
    assert Gauge().examine([harmless], "s") is None


def test_a_cut_prompt_does_not_calibrate() -> None:
    gauge = Gauge()
    gauge.examine([call(14_000, 13_000)] * 2, "s")
    before = gauge.known
    assert gauge.examine([call(14_000, 1000)], "s") is not None
    assert gauge.known == before
    assert len(before.ratios) == 2


def test_a_conversation_that_outgrows_its_context_little_by_little() -> None:
    gauge = Gauge()
    cut = [
        gauge.examine([call(1400 * turn, min(1400 * turn, 4000))], "s") is not None
        for turn in range(1, 10)
    ]
    assert cut == [False] * 5 + [True] * 4


def test_an_old_server_that_counts_only_what_was_not_cached() -> None:
    gauge = Gauge(counts_cached=False)
    assert gauge.examine([call(14_000, 13_000)], "s") is None
    # The same again, and longer: all but the end was in the cache.
    assert gauge.examine([call(14_000, 1)], "s") is None
    assert gauge.examine([call(14_700, 700)], "s") is None
    # Another beginning: nothing was, so it must be counted.
    assert gauge.examine([call(14_000, 2050, text="Now ")], "s") is not None
    # The same counts of a server that tells all.
    assert Gauge().examine([call(14_000, 13_000), call(14_000, 1)], "s") is not None


@pytest.mark.parametrize(
    ("server", "counts"),
    [
        ("Ollama 0.33.1", True),
        ("Ollama 1.0.0", True),
        ("Ollama 0.34.0-rc2", True),
        ("Ollama 0.32.9", False),
        ("Ollama 0.5", False),
        ("Ollama unknown", False),
        (None, False),
    ],
)
def test_which_servers_count_what_was_cached(server: str | None, counts: bool) -> None:
    assert counts_cached(server) is counts
