"""Inputs that broke systems of this kind, graded as the spam task has them graded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.records.failures import Attribution
from orchestrator.scoring.grade import grade
from orchestrator.scoring.steps import columns_of
from orchestrator.task import load_task

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
COLUMNS = columns_of(load_task(ROOT / "tasks" / "spam").scorer)
EXPECTED = json.loads((CASES / "06" / "EXPECT.json").read_text())
FILES = sorted(name for name in EXPECTED if name.endswith(".csv"))
LISTS = json.loads((CASES / "20" / "vectors.json").read_text())["reject"]


def of_spam(content: bytes) -> bytes:
    """With the task's name of the id column, in each case but the one that is about names."""
    return b"message_id" + content[2:] if content.startswith(b"id,") else content


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("key") / "labels.csv"
    found.write_bytes(of_spam((CASES / "06" / "key.csv").read_bytes()))
    return found


@pytest.mark.parametrize("name", FILES)
def test_case_06(key: Path, name: str) -> None:
    content = of_spam((CASES / "06" / name).read_bytes())
    found = grade(content, key, COLUMNS)
    if name in ("good.csv", "j_ids_as_float.csv"):
        assert found.metrics.f1 == pytest.approx(EXPECTED["good.csv"]["f1"], abs=1e-6)
        assert found.normalisations == ([] if name == "good.csv" else [
            "ids written as floats (1.0)"
        ])  # fmt: skip
        return
    assert found.failure_class == "output-schema"
    # The run counts, as the model's, with a score of 0.
    assert (found.valid, found.attribution) == (True, Attribution.MODEL)
    *problems, begins = [evidence.excerpt for evidence in found.evidence]
    assert found.sentence == f"predictions.csv: {'; '.join(problems)}"
    assert begins == f"it begins with {content[:120].decode()!a}"


@pytest.mark.parametrize("case", LISTS, ids=lambda case: case["name"])
@pytest.mark.parametrize("place", ["label", "score"])
def test_case_20_a_list_of_probabilities_is_no_label_and_no_score(
    key: Path, case: dict[str, object], place: str
) -> None:
    listed = json.dumps(case["p"]).replace('"', '""')
    ids = range(1, 21)
    row = '{0},"{1}",0.5' if place == "label" else '{0},1,"{1}"'
    rows = [row.format(one, listed if one == 7 else "1") for one in ids]
    content = "\n".join(["message_id,label,score", *rows, ""]).encode()
    found = grade(content, key, COLUMNS)
    assert (found.failure_class, found.valid) == ("output-schema", True)
    what = "labels are neither 1 nor 0" if place == "label" else "scores are no finite number"
    assert f"1 {what} ('[" in found.sentence
    assert "for 7)" in found.sentence


def test_scores_are_taken_and_set_against_the_labels(key: Path) -> None:
    true = dict(line.split(",") for line in key.read_text().split()[1:])
    rows = [f"{one},0,{0.9 if label == '1' else 0.1}" for one, label in true.items()]
    found = grade("\n".join(["message_id,label,score", *rows]).encode(), key, COLUMNS)
    assert (found.metrics.f1, found.metrics.pr_auc) == (0.0, 1.0)
