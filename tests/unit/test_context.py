"""What goes into a prompt is planned: it fits, and what was cut is marked and recorded."""

from __future__ import annotations

import pytest

from orchestrator.agents.builtin.chat import SYSTEM_PROMPT
from orchestrator.config import bundled
from orchestrator.records.schema import PromptCut, PromptPlan
from orchestrator.task import load_task
from orchestrator.trial.context import (
    ASSUMED_RATIO,
    OVERHEAD_TOKENS,
    Material,
    Overflow,
    Room,
    planned,
    room_of,
)
from orchestrator.trial.prompts import (
    PromptFile,
    PromptOutput,
    StageOutput,
    clip,
    own_files,
    render,
    variables,
)
from orchestrator.trial.truncation import Calibration, Gauge, size

WORDS = "def load(path): return rows\n"


def fill(excerpt: str, files: list[PromptFile], output: PromptOutput | None) -> str:
    shown = "".join(f"`{file.path}`:\n{file.text}\n" for file in files)
    printed = f"{output.stdout}{output.stderr}" if output else ""
    return f"The exercise; see train.csv and SPEC.md.\n{excerpt}{shown}{printed}"


def out(stdout: str, stderr: str = "") -> StageOutput:
    return StageOutput("python x.py", 0, "exit 0", (stdout,), (stderr,))


def room(tokens: int) -> Room:
    return Room(num_ctx=tokens + OVERHEAD_TOKENS + 1000, reserve=1000, ratio=1.0)


def test_what_fits_is_shown_whole() -> None:
    material = Material("a,b\n1,2\n", {"a.py": "A = 1\n"}, out("done\n"))
    prompt, plan = planned(fill, material, room(2000))
    assert prompt == fill(
        "a,b\n1,2\n",
        [PromptFile("a.py", "A = 1\n")],
        PromptOutput("python x.py", 0, "exit 0", "done\n", ""),
    )
    assert plan == PromptPlan(tokens=size(prompt), room=2000, ratio=1.0)


# What there is too much of → what is cut, in order of cutting.
TOO_MUCH = {
    "output": (Material("", {"a.py": WORDS}, out(WORDS * 3000)), 3000, ["stdout"]),
    "one file": (Material("", {"a.py": WORDS * 300, "b.py": WORDS}), 1500, ["file a.py"]),
    "output before files": (
        Material("", {"a.py": WORDS * 50}, out(WORDS * 200)), 1500, ["stdout"],
    ),
    "output and a file": (
        Material("", {"a.py": WORDS * 200, "b.py": WORDS}, out(WORDS * 200, WORDS * 200)),
        1200,
        ["file a.py", "stdout", "stderr"],
    ),
    "excerpt last": (
        Material("h1,h2\n" + "1,2\n" * 2000, {"a.py": WORDS * 9}, out(WORDS * 60)),
        500,
        ["file a.py", "stdout", "excerpt"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(TOO_MUCH))
def test_what_does_not_fit_is_cut_marked_and_recorded(kind: str) -> None:
    material, tokens, cut = TOO_MUCH[kind]
    prompt, plan = planned(fill, material, room(tokens))
    assert plan.tokens == size(prompt) <= tokens
    assert [f"{one.what} {one.name}".strip() for one in plan.cuts] == cut
    for one in plan.cuts:
        assert one.kept < one.size
        marker = f"({one.size} characters, not shown)" if one.what == "file" else "left out ...]"
        assert marker in prompt
    for path in material.files:
        assert f"`{path}`" in prompt
    again, _ = planned(fill, material, room(tokens))
    assert again == prompt


def test_the_room_that_is_left_goes_back_to_the_output() -> None:
    """A file that had to go leaves more than the output was cut to."""
    material = Material("", {"a.py": WORDS * 800}, out(WORDS * 400))
    prompt, plan = planned(fill, material, room(3000))
    assert plan.cuts[0] == PromptCut(what="file", name="a.py", size=len(WORDS) * 800, kept=0)
    assert "(22400 characters, not shown)" in prompt
    assert len(plan.cuts) == 1 or plan.cuts[1].kept > 3000


def test_an_excerpt_keeps_its_header_and_its_end() -> None:
    rows = "".join(f"{n},x\n" for n in range(500))
    prompt, plan = planned(fill, Material("id,text\n" + rows, {}), room(400))
    assert "\nid,text\n0,x\n" in prompt
    assert "lines left out ...]" in prompt
    assert prompt.endswith("499,x\n")
    assert plan.cuts[0].what == "excerpt"


def test_a_fixed_part_that_does_not_fit_is_the_harness_s_overflow() -> None:
    with pytest.raises(Overflow) as overflow:
        planned(lambda *_: WORDS * 1000, Material("", {}), room(500))
    failure = overflow.value.failure("explore")
    assert (failure.failure_class, failure.attribution) == ("context-overflow", "harness")
    assert failure.stage == "explore"
    assert "of the context of 2012, 1000 are kept for the reply" in failure.sentence


@pytest.mark.parametrize(
    "words", ["é" * 50_000, "日本語" * 20_000, "🙂" * 20_000, "a,b\n" * 20_000]
)
def test_any_script_fits(words: str) -> None:
    prompt, plan = planned(fill, Material(words, {"a.py": words}, out(words, words)), room(3000))
    assert size(prompt) <= 3000
    assert plan.cuts


# --- how much room -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_ctx", "budget", "reserve"),
    [(32768, 12288, 12288), (24576, 12288, 12288), (8192, 12288, 2048), (4096, 12288, 1024)],
)
def test_the_reply_has_its_reserve(num_ctx: int, budget: int, reserve: int) -> None:
    found = room_of(num_ctx, budget, None, None)
    assert (found.reserve, found.tokens) == (reserve, num_ctx - reserve - OVERHEAD_TOKENS)
    assert found.ratio == ASSUMED_RATIO


def test_what_a_server_counts_is_learnt_and_a_replay_counts_as_then() -> None:
    learnt = Gauge(known=Calibration((0.8, 0.8, 0.9, 1.0, 0.9)))
    assert room_of(8192, 1000, learnt, None).ratio == 0.99
    assert room_of(8192, 1000, Gauge(), None).ratio == ASSUMED_RATIO
    then = PromptPlan(tokens=1, room=1, ratio=0.7)
    assert room_of(8192, 1000, learnt, then).ratio == 0.7


def test_the_agents_own_words_have_room() -> None:
    assert size(SYSTEM_PROMPT) * ASSUMED_RATIO < OVERHEAD_TOKENS


def test_characters_for_an_agent_that_asks_again() -> None:
    text = WORDS * 10
    found = room(1000).chars(text)
    assert found == int(len(text) / size(text) * (1000 + OVERHEAD_TOKENS))


# --- what never enters ---------------------------------------------------------------------


def test_naming_a_file_never_loads_it() -> None:
    prompt, _ = planned(fill, Material("a,b\n", {"a.py": "open('train.csv')\n"}), room(2000))
    assert prompt.count("train.csv") == 2
    task = load_task(bundled("tasks") / "spam")
    shown = render(task, "prompts/explore.md", ("explore.py",), "the excerpt", [], None)
    assert "the excerpt" in shown
    assert "moderator_flagged," not in shown


def test_the_data_is_none_of_the_files_that_are_shown() -> None:
    tree = {
        "excerpt.csv": b"a,b\n1,2\n", "SPEC.md": b"spec", "a.py": b"A = 1\n", "m.bin": b"\xff\x00",
    }  # fmt: skip
    assert own_files(tree, {"excerpt.csv", "SPEC.md"}) == {"a.py": "A = 1\n", "m.bin": 2}


def test_a_stage_is_given_what_its_template_shows() -> None:
    task = load_task(bundled("tasks") / "spam")
    assert variables(task, "prompts/explore.md") == {"spec", "excerpt", "expected"}
    assert variables(task, "prompts/repair.md") == {"spec", "files", "output", "expected"}


@pytest.mark.parametrize("length", [9, 10, 11, 1000])
def test_a_clipped_text_says_how_much_is_gone(length: int) -> None:
    text = "".join(str(n % 10) for n in range(length))
    found = clip(text, 10)
    if length <= 10:
        assert found == text
    else:
        assert found == f"01234\n[... {length - 10} characters left out ...]\n{text[-5:]}"
