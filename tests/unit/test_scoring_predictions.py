"""Predictions as people write them are read; whatever can't be graded is refused, all at once."""

from __future__ import annotations

import codecs
import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.scoring import grade as grading
from orchestrator.scoring import predictions
from orchestrator.scoring.grade import (
    Other,
    Verdict,
    check,
    compare,
    comparison,
    grade,
    read_key,
    verdict,
)
from orchestrator.scoring.predictions import MISSING, Columns, Read, Refused, read
from orchestrator.scoring.worker import Worker

CASES = Path(__file__).parents[1] / "cases" / "06"
COLUMNS = Columns(
    id="id", label="label", positive_words=("spam",), negative_words=("ham", "not spam")
)
IDS = ["1", "2", "3", "4"]
LABELS = [0, 1, 0, 1]


def labels(content: bytes, columns: Columns = COLUMNS) -> Read:
    result = read(content, IDS, columns)
    assert isinstance(result, Read), result
    assert result.labels == LABELS
    return result


def problems(content: bytes) -> list[str]:
    result = read(content, IDS, COLUMNS)
    assert isinstance(result, Refused), result
    return result.problems


def rows(*pairs: str, header: str = "id,label") -> bytes:
    return "\n".join((header, *pairs, "")).encode()


PLAIN = rows("1,0", "2,1", "3,0", "4,1")


def test_plain_labels_need_no_note():
    assert labels(PLAIN).normalisations == []


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (codecs.BOM_UTF8 + PLAIN, ["byte order mark"]),
        (PLAIN.replace(b"\n", b"\r\n"), ["line ends other than LF"]),
        (PLAIN.replace(b"\n", b"\r"), ["line ends other than LF"]),
        (PLAIN.rstrip(), []),
        (
            rows('"1","0"', '"2","1"', '"3","0"', '"4","1"', header='"id","label"'),
            ["quoted fields"],
        ),
        (rows("1,0", "", "2,1", "3,0", "4,1", ""), ["blank lines"]),
        (rows("0,1,0", "1,2,1", "2,3,0", "3,4,1", header=",id,label"), ["an index column"]),
        (
            rows("0,1,0", "1,2,1", "2,3,0", "3,4,1", header="Unnamed: 0,id,label"),
            ["an index column"],
        ),
        (rows("0,1", "1,2", "0,3", "1,4", header="label,id"), ["other column order"]),
        (
            rows(" 1 , 0", "2,1 ", "3,0", "4,1", header="id, label"),
            ["spaces around column names", "spaces around values"],
        ),
        (rows("1,0.0", "2,1.0", "3,0.0", "4,1.0"), ["labels written as floats (1.0)"]),
        (rows("1.0,0", "2.0,1", "3.0,0", "4.0,1"), ["ids written as floats (1.0)"]),
        (
            rows("1,False", "2,True", "3,False", "4,True"),
            ["labels written as 'False'", "labels written as 'True'"],
        ),
        (
            rows("1,ham", "2,Spam", "3,not spam", "4,spam"),
            [
                "labels written as 'ham'",
                "labels written as 'Spam'",
                "labels written as 'not spam'",
                "labels written as 'spam'",
            ],
        ),
        (rows("4,1", "3,0", "2,1", "1,0"), []),
    ],
)
def test_spellings_are_accepted_and_listed(content, notes):
    assert labels(content).normalisations == notes


def test_a_column_may_be_called_like_an_index():
    columns = Columns(id="index", label="label")
    assert labels(rows("1,0", "2,1", "3,0", "4,1", header="index,label"), columns)


def test_text_ids_are_never_taken_as_numbers():
    result = read(b"id,label\na1.0,1\n", ["a1"], COLUMNS)
    assert isinstance(result, Refused)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ["the file is empty (0 bytes)"]),
        (b" \n\n", ["the file is empty (3 bytes)"]),
        (rows(), ["the file has a header and no rows; 4 are wanted"]),
        (b"\xef\xbb\xbf", ["the file is empty (3 bytes)"]),
        (PLAIN + b"\xff", ["the file is not UTF-8 (line 6)"]),
        (codecs.BOM_UTF16_LE + b"i\0d\0", ["the file is UTF-16; UTF-8 is wanted"]),
        (PLAIN + b"\0\0", ["the file holds 2 NUL bytes; it is no text"]),
        (rows("1;0", header="id;label"), ["separated by ';'"]),
        (rows("1,0", header="a,b"), ["the columns are 'a', 'b'; wanted are 'id', 'label'"]),
        (rows("1,0,0", header="id,label,label"), ["'id', 'label', 'label'"]),
        (rows("1,0,0.2", header="id,label,score"), ["'id', 'label', 'score'"]),
        (rows("1,0", "2,1", "3,0"), ["1 of 4 ids missing (4)"]),
        (rows("1,0", "2,1", "3,0", "4,1", "9,1"), ["1 ids that were not asked for (9)"]),
        (rows("1,0", "1,0", "2,1", "3,0", "4,1"), ["1 ids more than once (1)"]),
        (
            rows("1,0", "1,1", "2,1", "3,0", "4,1"),
            ["1 ids more than once (1), 1 with different labels"],
        ),
        (rows("1,", "2,NaN", "3,nan", "4,1"), ["3 labels empty or NaN (for 1, 2, 3)"]),
        (
            rows("1,0.1", "2,0.93", "3,0", "4,1e-3"),
            ["3 labels are probabilities where 1 or 0", "(0.1 for 1, 0.93 for 2, 1e-3 for 4)"],
        ),
        (
            rows("1,0", "2,maybe", "3,2", "4,1"),
            ["2 labels are neither 1 nor 0 ('maybe' for 2, '2' for 3)"],
        ),
        (
            rows("1,0", "2,1,7", "3", "4,1"),
            [
                "2 rows with another number of fields than the header's 2",
                "(line 3 has 3, line 4 has 1)",
            ],
        ),
        (rows("1,0", '2,"1', "3,0", "4,1"), ["it can't be read beyond row 1"]),
        (rows("1,0", '2,"' + "x" * (1 << 21) + '"', "3,0"), ["field larger than field limit"]),
        (b"<html><body>502 Bad Gateway</body></html>", ["the columns are '<html>"]),
        (b'{"1": 0}', ["the columns are"]),
    ],
)
def test_what_can_not_be_graded_is_named(content, expected):
    said = "; ".join(problems(content))
    for part in expected:
        assert part in said


def test_all_problems_come_in_one_message_with_counts_and_three_samples():
    ids = [str(n) for n in range(1, 21)]
    content = rows(*(f"{n},0.5" for n in range(1, 7)), "1,0", "77,1", "78,1", "79,1", "80,1", "5")
    result = read(content, ids, COLUMNS)
    assert isinstance(result, Refused)
    assert result.problems == [
        "1 rows with another number of fields than the header's 2 (line 13 has 1)",
        "1 ids more than once (1), 1 with different labels",
        "4 ids that were not asked for (77, 78, 79, …)",
        "14 of 20 ids missing (7, 8, 9, …)",
        "6 labels are probabilities where 1 or 0 is wanted (0.5 for 1, 0.5 for 2, 0.5 for 3, …)",
    ]
    assert result.sentence.count("; ") == 4


def test_a_file_that_goes_on_and_on_is_not_read_to_its_end():
    taken = predictions.SPARE_ROWS + len(IDS)
    said = problems(PLAIN + b"x\n" * (taken * 2))
    assert f"it goes on after {taken} rows" in said[0]
    assert f"{taken - len(IDS)} rows with another number of fields" in said[1]


def test_a_label_of_any_length_is_read_in_one_pass():
    # Tried digit by digit from each end, this takes hours.
    (said,) = problems(rows("1," + "1" * 1_000_000 + "x", "2,1", "3,0", "4,1"))
    assert "1 labels are neither 1 nor 0" in said


def test_samples_are_cut():
    (first, *_) = problems(rows("x" * 500 + ",1", "1,0", "2,1", "3,0", "4,1"))
    assert len(first) < 100


EXPECTED = json.loads((CASES / "EXPECT.json").read_text())
KEY = read_key(CASES / "key.csv", COLUMNS)


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.endswith(".csv")))
def test_case_06(name):
    result = verdict((CASES / name).read_bytes(), KEY, COLUMNS)
    expected = EXPECTED[name]
    if isinstance(expected, dict) or name == "j_ids_as_float.csv":
        assert result.metrics is not None
        assert result.metrics.f1 == pytest.approx(0.666667, abs=1e-6)
    else:
        assert result.metrics is None
        assert result.problems


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a_dup_same.csv", ["1 ids more than once (3)"]),
        ("b_dup_conflict.csv", ["1 ids more than once (3), 1 with different labels"]),
        ("c_missing_one_negative.csv", ["1 of 20 ids missing (1)"]),
        ("d_only_rows_it_is_sure_of.csv", ["17 of 20 ids missing"]),
        ("e_one_right_row_20_times.csv", ["1 ids more than once (3)", "19 of 20 ids missing"]),
        ("f_extra_unknown_ids.csv", ["2 ids that were not asked for"]),
        ("g_header_only.csv", ["no rows; 20 are wanted"]),
        ("h_no_header.csv", ["the columns are '1', '0'"]),
        ("i_wrong_columns.csv", ["'message_id', 'is_spam'; wanted are 'id', 'label'"]),
        ("k_no_id_column.csv", ["the columns are 'label'"]),
        ("l_zero_bytes.csv", ["empty (0 bytes)"]),
        ("m_off_by_one_ids.csv", ["1 ids that were not asked for (0)", "1 of 20 ids missing (20)"]),
        ("n_right_count_wrong_ids.csv", ["not asked for (21)", "1 of 20 ids missing (20)"]),
    ],
)
def test_case_06_says_what_is_wrong(name, says):
    said = "; ".join(verdict((CASES / name).read_bytes(), KEY, COLUMNS).problems)
    for part in says:
        assert part in said


def test_the_share_of_changed_predictions_is_over_all_rows():
    others = [
        Other(rows("1,1", "2,1", "3,0", "4,1"), [0, 1]),
        Other(rows("1,1"), [0]),
        Other(PLAIN),
    ]
    result = comparison(PLAIN, others, IDS, COLUMNS)
    assert [one.changed for one in result.compared] == [0.25, None, 0.0]
    assert [one.changed_touched for one in result.compared] == [0.5, None, None]
    assert result.compared[1].problems == ["3 of 4 ids missing (2, 3, 4)"]
    assert compare(PLAIN, others, IDS, COLUMNS) == result.compared


def test_grading_in_a_child_process_gives_the_same_as_here():
    content = (CASES / "good.csv").read_bytes()
    result = grade(content, CASES / "key.csv", COLUMNS)
    assert isinstance(result, Verdict)
    assert result == verdict(content, KEY, COLUMNS)


def test_a_refused_file_comes_back_from_the_child_as_a_failure():
    result = grade(
        (CASES / "d_only_rows_it_is_sure_of.csv").read_bytes(), CASES / "key.csv", COLUMNS
    )
    assert not isinstance(result, Verdict)
    assert result.failure_class == "output-schema"
    assert result.sentence.startswith("predictions.csv: 17 of 20 ids missing (1, 2, 4, …)")


def test_a_file_can_be_looked_at_without_a_key():
    assert check(PLAIN, IDS, COLUMNS) is None
    found = check(rows("1,0"), IDS, COLUMNS)
    assert found is not None
    assert found.sentence == "predictions.csv: 3 of 4 ids missing (2, 3, 4)"


def test_a_key_that_is_none_is_our_failure(tmp_path):
    key = tmp_path / "key.csv"
    key.write_text("id,label\n1,2\n")
    result = grade(b"id,label\n1,1\n", key, COLUMNS)
    assert not isinstance(result, Verdict)
    assert result.failure_class == "scorer-error"
    assert "not a key with id, label" in result.sentence


SMALL_READER = """
from orchestrator.scoring import grade
from orchestrator.scoring.worker import serve
if __name__ == "__main__":
    serve(grade.answer, seconds=60, memory_bytes=MEMORY)
"""


@pytest.mark.parametrize(("content", "memory_mb"), [(b"ab," * 3_000_000, 200), (PLAIN, 100)])
def test_a_file_that_its_reader_has_no_memory_for_is_not_our_failure(
    tmp_path, monkeypatch, content, memory_mb
):
    (tmp_path / "small.py").write_text(SMALL_READER.replace("MEMORY", str(memory_mb << 20)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(grading, "_worker", small := Worker("small", seconds=60))
    found = check(content, IDS, COLUMNS)
    small.stop()
    if content == PLAIN:
        assert found is None
    else:
        assert found is not None
        assert found.failure_class == "output-schema"
        assert "can't be read with" in found.sentence


def test_fifty_thousand_rows_do_not_need_more_than_the_child_may_use(tmp_path):
    key, content = tmp_path / "key.csv", ["id,label"]
    with key.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label"])
        for number in range(50_000):
            writer.writerow([f"m{number:06d}", int(number % 5 == 0)])
            content.append(f"m{number:06d},{int(number % 5 == 0 or number % 7 == 0)}")
    result = grade("\n".join(content).encode(), key, COLUMNS)
    assert isinstance(result, Verdict)
    assert result.metrics is not None
    assert result.metrics.recall == 1.0
    assert result.metrics.rows == 50_000


WRONG = replace(COLUMNS, missing_are_wrong=True)


def test_missing_rows_are_wrong_predictions_where_the_task_says_so():
    result = read(rows("2,1", "3,0"), IDS, WRONG)
    assert isinstance(result, Read)
    assert result.labels == [MISSING, 1, 0, MISSING]
    assert result.normalisations == ["2 of 4 ids missing (1, 4), each counted as wrong"]
    graded = verdict(rows("2,1", "3,0"), list(zip(IDS, LABELS, strict=True)), WRONG)
    assert graded.metrics is not None
    assert (graded.metrics.rows, graded.metrics.accuracy, graded.metrics.f1) == (4, 0.5, 0.5)
    assert verdict(PLAIN, list(zip(IDS, LABELS, strict=True)), WRONG).normalisations == []


@pytest.mark.parametrize(
    "content",
    [rows(), b"", rows("9,1"), rows("1,0", "1,1"), rows("1,0.5"), rows("1,"), rows("1,0", "2")],
)
def test_where_missing_rows_are_wrong_all_else_still_refuses(content):
    assert isinstance(read(content, IDS, WRONG), Refused)


def test_predictions_that_go_missing_have_changed():
    result = comparison(PLAIN, [Other(rows("1,0", "2,1"))], IDS, WRONG)
    assert [one.changed for one in result.compared] == [0.5]


SCORED = replace(COLUMNS, score="score")
WITH_SCORES = rows("1,0,0.1", "2,1,.9", "3,0,-2", "4,1,1e3", header="id,label,score")


def test_scores_are_read_where_the_task_has_a_column_for_them():
    result = labels(WITH_SCORES, SCORED)
    assert (result.scores, result.normalisations) == ([0.1, 0.9, -2.0, 1000.0], [])
    assert labels(PLAIN, SCORED).scores is None
    turned = rows("0.1,1,0", "0.9,2,1", "0.2,3,0", "0.7,4,1", header="score,id,label")
    assert labels(turned, SCORED).scores == [0.1, 0.9, 0.2, 0.7]
    graded = verdict(WITH_SCORES, list(zip(IDS, [0, 1, 1, 1], strict=True)), SCORED)
    assert graded.metrics is not None
    assert graded.metrics.pr_auc == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 3)


def test_scores_of_missing_rows_are_the_worst():
    both = replace(SCORED, missing_are_wrong=True)
    content = rows("1,0,0.1", "2,1,0.9", header="id,label,score")
    graded = verdict(content, list(zip(IDS, LABELS, strict=True)), both)
    assert graded.metrics is not None
    # 3, no spam, ranks first; 2 next; 1; then 4, which is spam
    assert graded.metrics.pr_auc == pytest.approx((1 / 2 + 2 / 4) / 2)


@pytest.mark.parametrize(
    "score", ["", "nan", "inf", "-Infinity", "high", "1e999", "0,5", "1_0", "7%"]
)
def test_a_score_that_is_no_number_refuses_the_file(score):
    content = rows("1,0,1", f'2,1,"{score}"', "3,0,1", "4,1,1", header="id,label,score")
    result = read(content, IDS, SCORED)
    assert isinstance(result, Refused)
    assert result.problems == [f"1 scores are no finite number ('{score}' for 2)"]


def test_other_columns_stay_refused_beside_scores():
    said = read(rows("1,0,1,1", header="id,label,score,extra"), IDS, SCORED)
    assert isinstance(said, Refused)
    assert said.problems[0].endswith("wanted are 'id', 'label', and 'score' if you like")
    twice = read(rows("1,0,1,1", header="id,label,score,score"), IDS, SCORED)
    assert isinstance(twice, Refused)
