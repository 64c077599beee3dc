"""What of a submission is scored, and that reading it never leaves its folder."""

from __future__ import annotations

import os

import pytest

from orchestrator.errors import SubmissionNotFound
from orchestrator.sandbox.limits import Limits
from orchestrator.scoring import submission
from orchestrator.scoring.runtime import submission_env
from orchestrator.scoring.submission import is_built, read_folder, without_built


@pytest.mark.parametrize(
    ("path", "content", "built"),
    [
        ("train.py", b"import os\n", False),
        ("caf\xe9.py", "# caf\xe9\n".encode("latin-1"), False),
        ("requirements.txt", b"\xff\xfep\0a\0", False),
        ("words.json", b"[]", False),
        ("model.pkl", b"\x80\x04", True),
        ("model.PKL", b"", True),
        ("out/model.joblib", b"x", True),
        ("weights.safetensors", b"x", True),
        ("__pycache__/train.cpython-311.pyc", b"x", True),
        ("__pycache__/notes.txt", b"x", True),
        ("model", b"\x80\x04\x95\0\0", True),
        ("model", b"\x89PNG\r\n", True),
        ("Makefile", b"all:\n\tpython train.py\n", False),
        ("LICENSE", "é".encode() * 5000, False),
        ("LICENSE", b"x" + "é".encode() * 5000, False),
        ("vectorizer.dat", b"plain text", False),
    ],
)
def test_built_artifacts_are_told_from_what_was_written(path, content, built):
    assert is_built(path, content) is built


def test_scoring_starts_without_what_was_built():
    files = {"train.py": b"", "model.pkl": b"\x80", "a/b.npy": b"", "notes.md": b""}
    assert sorted(without_built(files)) == ["notes.md", "train.py"]


def test_a_folder_is_read_without_following_links(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    folder = tmp_path / "submission"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("x")
    (folder / "lib" / "text.py").write_text("y")
    (folder / "link.py").symlink_to(outside / "secret.txt")
    (folder / "linked").symlink_to(outside)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    os.mkfifo(folder / "pipe")
    found = read_folder(folder)
    assert found.files == {"lib/text.py": b"y", "train.py": b"x"}
    assert found.skipped == {
        ".git": "a folder that is not part of a submission",
        "link.py": "a symbolic link",
        "linked": "a symbolic link",
        "pipe": "no regular file",
    }


def test_a_folder_reached_by_a_link_may_be_scored(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "train.py").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_folder(tmp_path / "link").files == {"train.py": b"x"}


def test_the_tree_of_a_folder_is_its_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in "ab":
        (tmp_path / name / "train.py").write_text("x")
    assert read_folder(tmp_path / "a").tree == read_folder(tmp_path / "b").tree
    (tmp_path / "b" / "train.py").write_text("y")
    assert read_folder(tmp_path / "a").tree != read_folder(tmp_path / "b").tree


def test_what_can_not_be_laid_again_is_left_out(tmp_path):
    (tmp_path / "train.py").write_text("x")
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("x")
    deep = tmp_path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    (deep / "x").write_text("")
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("long" * 50, dir_fd=folder)
        inner = os.open("long" * 50, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    found = read_folder(tmp_path)
    assert list(found.files) == ["train.py"]
    assert sorted(found.skipped.values()) == [
        "its name is not UTF-8",
        "its path is longer than 2000 bytes",
        "lies deeper than 64 folders",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what is closed")
def test_what_is_closed_is_left_out(tmp_path):
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "closed").mkdir(mode=0)
    assert read_folder(tmp_path).skipped == {"closed": "permission denied"}


def test_a_folder_of_too_much_is_not_scored_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "MAX_FILES", 3)
    for name in "abcd":
        (tmp_path / name).write_text("x")
    with pytest.raises(SubmissionNotFound, match="more than 3 files"):
        read_folder(tmp_path)


def test_no_folder_and_an_empty_one_are_told(tmp_path):
    with pytest.raises(SubmissionNotFound, match="no such file"):
        read_folder(tmp_path / "none")
    with pytest.raises(SubmissionNotFound, match="not a directory"):
        (tmp_path / "file").write_text("")
        read_folder(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SubmissionNotFound, match="no file to score"):
        read_folder(tmp_path / "empty")


@pytest.mark.parametrize(("cpus", "threads"), [(0.5, "1"), (1.0, "1"), (2.0, "2"), (3.9, "3")])
def test_threads_follow_the_quota(cpus, threads):
    env = submission_env(Limits(cpus=cpus), 7)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT"):
        assert env[name] == threads
    assert (env["ORCH_SEED"], env["PYTHONHASHSEED"]) == ("7", "0")
