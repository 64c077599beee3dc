"""Code that is written against whoever reads it costs what a process of its own may use."""

from __future__ import annotations

from orchestrator.scoring.code import imports_read, listed_read
from orchestrator.scoring.imports import MAX_FILE_BYTES, imports
from orchestrator.scoring.worker import Worker, WorkerLost

LONG_NAME = b"import a" + b".a" * (MAX_FILE_BYTES // 2 - 20)
"""The interpreter's parser makes more gigabytes of it than a machine has."""


def test_what_the_child_reads_is_what_would_be_read_here():
    files = {
        "a.py": b"import x.y\ntry:\n    import z\nexcept ImportError:\n    pass\n",
        "b/latin.py": b"# coding: latin-1\nimport q # \xe9\n",
        "notes.md": b"import none\n",
        "large.py": b"import none\n" + b"#" * MAX_FILE_BYTES,
    }
    assert imports_read(files) == list(imports(files))
    assert len(imports_read(files)) == 3
    assert imports_read({"notes.md": b"import none"}) == []


def test_a_file_that_takes_too_much_to_parse_is_left_out():
    files = {"bomb.py": LONG_NAME, "train.py": b"import x"}
    assert imports_read(files) == list(imports({"train.py": b"import x"}))


def test_a_column_is_listed_by_any_mention_where_the_code_can_not_be_parsed():
    entries = ["python", "train.py"]
    told = b"print('flag')\n"
    assert listed_read({"train.py": told}, entries, "flag") is None
    assert (
        listed_read({"train.py": LONG_NAME + b"\n" + told}, entries, "flag") == "train.py, line 2"
    )


def test_reading_that_is_given_up_costs_what_it_would_have_found(monkeypatch):
    def lost(*_: object) -> None:
        raise WorkerLost("gone")

    monkeypatch.setattr(Worker, "ask", lost)
    files = {"train.py": b"import x\n", "predict.py": b"\nprint('flag')\n"}
    assert imports_read(files) == []
    assert listed_read(files, ["train.py", "predict.py"], "flag") == "predict.py, line 2"
    assert listed_read(files, ["train.py", "predict.py"], "other") is None


def test_the_programs_are_read_before_what_else_there_is():
    others = {f"a{n}.py": b"#" * MAX_FILE_BYTES for n in range(9)}
    files = others | {"train.py": b"X = ['flag']\n"}
    assert listed_read(files, ["train.py"], "flag") == "train.py, line 1"
