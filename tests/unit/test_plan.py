from collections import Counter

import pytest

from orchestrator.trial.plan import make_plan, run_seed, slug


def test_runs_are_interleaved_by_index() -> None:
    plan = make_plan(["a", "b"], 3, seed=1)
    assert [(r.model, r.index) for r in plan] == [
        ("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2),
    ]  # fmt: skip


def test_a_seed_depends_on_index_not_on_model() -> None:
    plan = make_plan(["a", "b"], 5, seed=7)
    by_index = {r.index: {s.seed for s in plan if s.index == r.index} for r in plan}
    assert all(len(seeds) == 1 for seeds in by_index.values())
    assert len({run_seed(7, i) for i in range(5)}) == 5


def test_seeds_are_pinned_and_fit_a_positive_int32() -> None:
    assert run_seed(1, 0) == 1395928989
    assert all(0 <= run_seed(s, i) < 2**31 for s in range(20) for i in range(20))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("openai/gpt-4.1", "openai-gpt-4.1"),
        ("scripted/careful", "scripted-careful"),
        ("../../x", "x"),
        ("::", "model"),
    ],
)
def test_slug_is_a_safe_file_name(model: str, expected: str) -> None:
    assert slug(model) == expected


def test_models_whose_slugs_agree_keep_distinct_runs() -> None:
    plan = make_plan(["a:b", "a/b"], 2, seed=1)
    assert all(n == 1 for n in Counter(r.run_id for r in plan).values())
