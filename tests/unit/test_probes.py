"""How the holdout is altered, and what is concluded from the predictions on it."""

from __future__ import annotations

import csv
import io

import pytest

from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import Alteration, Failure, LeakProbe, ScoreRecord
from orchestrator.scoring.alterations import altered
from orchestrator.scoring.leak_verdict import bound, verdict_of
from orchestrator.scoring.listed import listed_in


def column(content: bytes, name: str) -> list[str | None]:
    rows = csv.DictReader(io.StringIO(content.decode(), newline=""))
    return [row.get(name) for row in rows]


def table(values: list[str]) -> bytes:
    rows = [["id", "flag", "body"], *([str(n), v, 'a, "b"\né'] for n, v in enumerate(values))]
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


@pytest.mark.parametrize(
    ("values", "value"),
    [
        (["0", "1", "0", "1", "0", "0"], "1"),
        (["1", "1", "1", "1"], "0"),
        (["1.0", "1", "1.00", "1"], "0"),
        (["3.5", "-2", "", "8e3"], "1"),
        (["refund", "two, with a comma", "", "a\nb"], "1"),
    ],
)
def test_a_column_of_any_type_is_set_shuffled_and_dropped(values: list[str], value: str) -> None:
    content = table(values)
    put, shuffled, dropped = altered(content, "flag")
    assert [one.kind for one in (put, shuffled, dropped)] == ["set", "shuffled", "dropped"]
    assert column(put.content, "flag") == [value] * len(values)
    assert set(column(dropped.content, "flag")) == {None}
    for one in (put, shuffled, dropped):
        assert column(one.content, "id") == column(content, "id")
        assert column(one.content, "body") == column(content, "body")
    if len(set(values)) > 1:
        assert sorted(column(shuffled.content, "flag")) == sorted(values)
    assert altered(content, "flag") == [put, shuffled, dropped]


def test_a_column_of_one_value_is_mixed_since_shuffling_it_would_alter_nothing() -> None:
    _, mixed, _ = altered(table(["0"] * 100), "flag")
    assert column(mixed.content, "flag").count("1") == 50
    assert column(mixed.content, "flag") != ["1"] * 50 + ["0"] * 50
    assert mixed.note == "flag set to 1 in a random half of the rows"


def test_a_column_that_is_withheld_is_added() -> None:
    put, mixed = altered(table(["0"] * 4), "other")
    assert (put.note, column(put.content, "other")) == ("other added and set to 1", ["1"] * 4)
    assert sorted(column(mixed.content, "other")) == ["0", "0", "1", "1"]
    assert column(mixed.content, "body") == column(table(["0"] * 4), "body")


def test_shuffling_moves_values() -> None:
    values = [str(n) for n in range(50)]
    _, shuffled, _ = altered(table(values), "flag")
    assert column(shuffled.content, "flag") != values


CRASH = Failure(failure_class=C.INPUT_SCHEMA, sentence="the input lacks: 'flag'")
OURS = Failure(failure_class=C.SCORER_ERROR, sentence="the probe could not be made: gone")


def results(
    put: float | Failure | None,
    shuffled: float | Failure | None,
    dropped: float | Failure | None,
    *repeated: float | Failure,
) -> list[Alteration]:
    kinds = ("set", "shuffled", "dropped", "repeated", "repeated")
    return [
        Alteration(
            kind=kind,
            note=f"flag {kind}",
            changed=None if isinstance(got, Failure) else got,
            failure=got if isinstance(got, Failure) else None,
        )
        for kind, got in zip(kinds, (put, shuffled, dropped, *repeated), strict=False)
        if got is not None
    ]


@pytest.mark.parametrize(
    ("made", "listed", "verdict", "says"),
    [
        (results(0.4, 0.2, CRASH, 0.0), None, "used", "40.00% of predictions change"),
        (results(0.0, 0.2, 0.0, 0.0), None, "used", "20.00% of predictions change with flag shuf"),
        (results(OURS, 0.2, CRASH, 0.0), None, "used", "shuffled"),
        (results(0.0, 0.0, 0.0), None, "not-used", "no prediction changes"),
        (results(0.0, 0.0, 0.0), "a.py, line 3", "declared-not-used", "lists it in a.py, line 3"),
        (results(0.0, 0.0, CRASH), None, "declared-not-used", "input-schema: the input lacks"),
        (results(0.0, 0.0, OURS), None, "not-used", "no prediction changes"),
        (results(0.0, 0.0, OURS), "a.py, line 3", "declared-not-used", "lists it"),
        (results(0.0, 0.0, 0.3, 0.0), None, "unclear", "but 30.00% do with flag dropped"),
        (results(CRASH, 0.0, 0.0), None, "unclear", "with flag set, input-schema"),
        (results(OURS, OURS, OURS), None, "unclear", "could not be made"),
        (results(0.3, 0.3, 0.0, 0.28), None, "unclear", "28.00% with nothing altered"),
        (results(0.9, 0.3, 0.0, 0.2), None, "used", "(20.00% with nothing altered)"),
        (results(0.5, 0.5, 0.0, 0.0, 0.5), None, "unclear", "50.00% with nothing altered"),
        (results(0.3, 0.3, 0.0, OURS), None, "unclear", "is not known"),
        (results(0.3, 0.3, 0.0, 0.0, OURS), None, "unclear", "is not known"),
        (results(0.002, 0.0, 0.0, 0.0), None, "unclear", "too few to tell"),
        (results(0.005, 0.0, 0.0, 0.0), None, "used", "0.50%"),
        (results(0.4, 0.2, None, 0.0), None, "used", "40.00%"),
        (results(0.0, 0.0, None), None, "not-used", "no prediction changes"),
        (results(0.0, 0.0, None), "a.py, line 3", "declared-not-used", "lists it"),
        (results(CRASH, CRASH, None), None, "unclear", "with flag set, input-schema"),
    ],
)
def test_the_verdict(made: list[Alteration], listed: str | None, verdict: str, says: str) -> None:
    probe = verdict_of("flag", made, listed, 1000)
    assert probe.verdict == verdict
    assert says in probe.evidence
    assert probe.alterations == made


def mixed(touched: float, changed_touched: float, changed: float) -> Alteration:
    return Alteration(
        kind="shuffled",
        note="flag shuffled",
        changed=changed,
        touched=touched,
        changed_touched=changed_touched,
    )


@pytest.mark.parametrize(
    ("shuffled", "verdict"),
    [
        (mixed(0.5, 1.0, 0.5), "used"),
        (mixed(0.5, 0.4, 0.3), "used"),
        (mixed(0.01, 1.0, 0.01), "used"),
        (mixed(1.0, 0.4, 0.4), "used"),
        # As many of the rows whose value stayed: the program differs from start to start.
        (mixed(0.5, 1.0, 1.0), "unclear"),
        (mixed(0.5, 0.3, 0.3), "unclear"),
        (mixed(0.5, 0.31, 0.3), "unclear"),
        (mixed(0.01, 0.0, 0.3), "unclear"),
    ],
)
def test_use_changes_predictions_where_the_value_changed(
    shuffled: Alteration, verdict: str
) -> None:
    whole = mixed(1.0, shuffled.changed or 0.0, shuffled.changed or 0.0)
    whole.kind = "set"
    again = results(None, None, None, 0.0, 0.0)
    probe = verdict_of("flag", [whole, shuffled, *again], None, 1000)
    assert probe.verdict == verdict


@pytest.mark.parametrize(("touched", "verdict"), [(0.5, "unclear"), (0.01, "used")])
def test_use_shows_in_some_rows_as_it_does_in_all(touched: float, verdict: str) -> None:
    whole = mixed(1.0, 0.8, 0.8)
    whole.kind = "set"
    still = [whole, mixed(touched, 0.0, 0.0), *results(None, None, None, 0.0, 0.0)]
    assert verdict_of("flag", still, None, 1000).verdict == verdict


def test_rows_whose_value_is_the_same_number_are_not_touched() -> None:
    put, shuffled, dropped = altered(table(["1", "1.0", "0", "x"]), "flag")
    assert (put.touched, put.share) == ((2, 3), 0.5)
    assert len(shuffled.touched) <= 4
    assert (dropped.touched, dropped.share) == ((), None)


def test_what_is_no_sign_of_use_grows_with_what_changes_anyway() -> None:
    assert bound(0.0, 50_000) == 3 / 50_000
    assert bound(0.1, 50_000) > 0.2
    assert bound(0.1, 100) > bound(0.1, 50_000)


CODE = {
    "list": ('FEATURES = ["a", "flag"]', 1),
    "row": ('x = 1\nprint(row["flag"])', None),
    "read": ('x = 1\ny = float(row["flag"])', 2),
    "attribute": ("y = frame.flag", 1),
    "in one string": ('NAMES = "a b flag c".split()', 1),
    "selection": ('frame[["a", "flag"]]', 1),
    "comment": ("# flag is left out\nx = 1", None),
    "docstring": ('"""flag"""\nx = 1', None),
    "for people": ('print("flag")', None),
    "a longer name": ('NAMES = ["flagged", "my flag column!"]', None),
    "dropped": ('frame = frame.drop(columns=["flag"])', None),
    "popped": ('row.pop("flag")', None),
    "deleted": ('del row["flag"]', None),
    "a list of what is left out": ('EXCLUDED = {"flag"}', None),
    "typed": ('DROP_COLS: list[str] = ["flag"]', None),
    "an argument": ('load(path, skip=["flag"])', None),
    "compared": ('names = [n for n in header if n != "flag"]', None),
    "set difference": ('names = set(header) - {"flag"}', None),
    "does not parse": ("def f(:\n  flag", 2),
}


@pytest.mark.parametrize("name", CODE)
def test_where_code_lists_a_column(name: str) -> None:
    code, line = CODE[name]
    found = listed_in({"train.py": code.encode()}, ["python", "train.py"], "flag")
    assert found == (None if line is None else f"train.py, line {line}")


def test_only_code_that_the_programs_reach_counts() -> None:
    use = b'COLUMNS = ["flag"]'
    files = {
        "train.py": b"import own\nfrom pack.deep import thing",
        "predict.py": b"from pack import other",
        "explore.py": use,
        "notes.md": use,
    }
    command = ["python", "train.py", "predict.py"]
    assert listed_in(files, command, "flag") is None
    for path in ("own.py", "pack/__init__.py", "pack/deep.py", "pack/other.py"):
        assert listed_in(files | {path: use}, command, "flag") == f"{path}, line 1"
    assert listed_in(files | {"own.py": b"import train, own\n" + use}, command, "flag")
    assert listed_in({"train.py": b"(" * 100_000 + b"flag"}, command, "flag")


def test_a_record_of_old_has_its_one_probe_and_the_gravest_is_told() -> None:
    old = ScoreRecord.model_validate(
        {"tree": "t", "score": 0.1, "leak": {"column": "a", "verdict": "not-used"}}
    )
    assert [probe.column for probe in old.leaks] == ["a"]
    assert ScoreRecord.model_validate({"tree": "t", "score": 0.1, "leak": None}).leak is None
    old.leaks.append(LeakProbe(column="b", verdict="used"))
    assert old.leak is not None
    assert old.leak.column == "b"
    assert ScoreRecord.model_validate_json(old.model_dump_json()) == old
