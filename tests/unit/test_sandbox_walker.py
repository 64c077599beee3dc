"""The walker, and git's reading of what it writes, over trees laid to do harm."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from orchestrator.errors import RecordUnreadable, UnsafeOutput
from orchestrator.records.schema import Dropped, FileChange
from orchestrator.sandbox.history import WALK_LOG_KB, History, Tree
from orchestrator.sandbox.inside import walker

CODE = Path(walker.__file__).read_text()


def snapshot(history: History, folder: Path, **caps: int) -> Tree:
    """As History.snapshot, without a container; `caps` replace the walker's constants."""
    code = CODE
    for name, value in caps.items():
        assert f"\n{name} = " in code
        code = code.replace("\ndef main", f"\n{name} = {value}\n\n\ndef main")

    def pour(stream: IO[bytes]) -> list[Dropped]:
        command = [sys.executable, "-I", "-S", "-c", code, str(folder)]
        done = subprocess.run(command, capture_output=True, check=True)
        stream.write(done.stdout)
        told = json.loads(done.stderr)["skipped"]
        return [Dropped(path=path, reason=reason) for path, reason in told]

    return history.keep("a stage", pour)


def reasons(tree: Tree) -> dict[str, str]:
    return {dropped.path: dropped.reason for dropped in tree.skipped}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history.git")


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


def test_bytes_are_kept_exactly_whatever_attributes_say(history: History, ws: Path) -> None:
    content = b"a\r\nb\n$Id$\x00\xff\xfe"
    (ws / ".gitattributes").write_text("* text=auto eol=lf ident working-tree-encoding=UTF-16\n")
    (ws / ".gitignore").write_text("*\n")
    (ws / "sub").mkdir()
    (ws / "sub" / "train.py").write_bytes(content)
    tree = snapshot(history, ws)
    assert history.read(tree.id, "sub/train.py") == content
    assert history.extract(tree.id).keys() == {".gitattributes", ".gitignore", "sub/train.py"}
    assert tree.skipped == []


def test_odd_names_come_back_as_they_are(history: History, ws: Path) -> None:
    names = ['quote"d', "back\\slash", "new\nline", "tab\t", " lead", "ümläut", "-rf", "a b/c"]
    (ws / "a b").mkdir()
    for name in names:
        (ws / name).write_text(name)
    tree = snapshot(history, ws)
    assert history.extract(tree.id) == {name: name.encode() for name in names}


def test_equal_folders_give_equal_ids_and_any_difference_another(tmp_path: Path, ws: Path) -> None:
    (ws / "a").write_text("1")
    first = snapshot(History(tmp_path / "one"), ws)
    os.utime(ws / "a", (1, 1))
    second = snapshot(History(tmp_path / "two"), ws)
    assert (first.id, first.commit) == (second.id, second.commit)
    (ws / "a").chmod(0o755)
    assert snapshot(History(tmp_path / "three"), ws).id != first.id


def test_git_folders_of_any_case_are_skipped_and_told(history: History, ws: Path) -> None:
    for name in (".git", "sub/.GIT", "nested/.Git"):
        (ws / name).mkdir(parents=True)
        (ws / name / "config").write_text("[core]\n\tfsmonitor = touch /tmp/pwned\n")
    (ws / "nested" / "kept.py").write_text("x")
    tree = snapshot(history, ws)
    assert set(history.files(tree.id)) == {"nested/kept.py"}
    assert set(reasons(tree)) == {".git", "sub/.GIT", "nested/.Git"}


def test_links_are_kept_as_links_and_never_followed(history: History, ws: Path) -> None:
    (ws / "out").symlink_to("/etc")
    (ws / "loop").symlink_to("loop")
    (ws / "real").write_text("x")
    tree = snapshot(history, ws)
    assert history.files(tree.id)["out"].kind == "link"
    assert history.extract(tree.id) == {"real": b"x"}
    with pytest.raises(UnsafeOutput, match="link"):
        history.read(tree.id, "out")


def test_special_files_are_skipped_and_told(history: History, ws: Path) -> None:
    os.mkfifo(ws / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(ws / "sock"))
    listener.close()
    tree = snapshot(history, ws)
    assert set(reasons(tree)) == {"fifo", "sock"}
    assert history.files(tree.id) == {}


def test_large_files_cost_nothing_and_are_told(history: History, ws: Path) -> None:
    with (ws / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (ws / "b").write_bytes(b"x" * 100)
    (ws / "c").write_bytes(b"x" * 100)
    tree = snapshot(history, ws, MAX_TOTAL=150)
    assert set(history.files(tree.id)) == {"b"}
    assert "1099511627776 bytes" in reasons(tree)["sparse"]
    assert "150 bytes" in reasons(tree)["c"]


def test_many_files_and_deep_folders_come_to_an_end(history: History, ws: Path) -> None:
    deep = ws / "d"
    for _ in range(6):
        deep = deep / "d"
    deep.mkdir(parents=True)
    for number in range(30):
        (ws / f"f{number:02}").write_text("")
    tree = snapshot(history, ws, MAX_DEPTH=3, MAX_ENTRIES=20)
    assert "more entries than the 20" in reasons(tree)["."]
    assert len(history.files(tree.id)) <= 20
    assert snapshot(history, ws, MAX_DEPTH=3).skipped == [
        Dropped(path="d/d/d/d", reason="lies deeper than 3 folders")
    ]


def test_names_that_are_no_text_are_skipped_and_told(history: History, ws: Path) -> None:
    (Path(os.fsdecode(os.fsencode(ws) + b"/bad\xff"))).write_text("x")
    tree = snapshot(history, ws)
    assert tree.skipped[0].path == "bad\\xff"
    json.dumps(tree.skipped[0].model_dump())


def test_a_long_list_of_skipped_is_cut(history: History, ws: Path) -> None:
    for number in range(9):
        os.mkfifo(ws / f"p{number}")
    tree = snapshot(history, ws, MAX_TOLD=5)
    assert [dropped.path for dropped in tree.skipped[-1:]] == ["..."]
    assert tree.skipped[-1].reason == "and 4 more"


@pytest.mark.parametrize("name", ["\U0001f4a9" * 60, "\x01" * 250, "\\" * 250, "\xff" * 120])
def test_what_is_told_fits_into_what_is_kept_of_it(ws: Path, name: str) -> None:
    folder = ws.joinpath(name, name, name, name)
    folder.mkdir(parents=True)
    for number in range(walker.MAX_TOLD + 10):
        os.mkfifo(folder / f"{number}")
    command = [sys.executable, "-I", "-S", "-c", CODE, str(ws)]
    told = subprocess.run(command, capture_output=True, check=True).stderr
    assert len(json.loads(told)["skipped"]) == walker.MAX_TOLD + 1
    assert len(told) < WALK_LOG_KB * 1024


def test_what_can_not_be_laid_again_is_skipped(history: History, ws: Path) -> None:
    folder = ws.joinpath(*["long" * 50] * 15)
    folder.mkdir(parents=True)
    (folder / "x").write_text("x")
    tree = snapshot(history, ws)
    assert history.files(tree.id) == {}
    assert set(reasons(tree).values()) == {"has a path of more than 2000 bytes"}


def test_names_that_git_guards_elsewhere_are_files_like_others(history: History, ws: Path) -> None:
    names = ("git~1/config", ".git .", ".g\u200cit", ".git::$INDEX_ALLOCATION", "a\\.git\\b", "-c")
    for name in names:
        (ws / name).parent.mkdir(exist_ok=True)
        (ws / name).write_text("x")
    (ws / ".gitModules").symlink_to("/etc/passwd")
    tree = snapshot(history, ws)
    assert set(history.files(tree.id)) == set(names)
    assert set(reasons(tree)) == {".gitModules"}


def test_changes_between_snapshots(history: History, ws: Path) -> None:
    (ws / "same").write_text("s")
    (ws / "gone").write_text("g")
    (ws / "new-mode").write_text("m")
    (ws / "text").write_text("1")
    old = snapshot(history, ws)
    (ws / "gone").unlink()
    (ws / "text").write_text("22")
    (ws / "new-mode").chmod(0o755)
    (ws / "added").write_text("333")
    new = snapshot(history, ws)
    assert history.changes(old.id, new.id) == [
        FileChange(path="added", change="added", size=3),
        FileChange(path="gone", change="deleted", size=0),
        FileChange(path="new-mode", change="modified", size=1),
        FileChange(path="text", change="modified", size=2),
    ]
    assert [change.change for change in history.changes(None, old.id)] == ["added"] * 4


def test_an_empty_workspace_is_a_snapshot(history: History, ws: Path) -> None:
    tree = snapshot(history, ws)
    assert history.files(tree.id) == {} and history.extract(tree.id) == {}


def test_a_stream_that_broke_off_is_not_imported(history: History, ws: Path) -> None:
    (ws / "a").write_text("1")
    first = snapshot(history, ws)

    def pour(stream: IO[bytes]) -> list[Dropped]:
        stream.write(b'M 100644 inline "a"\ndata 1000\nhalf')
        return []

    with pytest.raises(RecordUnreadable):
        history.keep("broken", pour)
    assert history.changes(first.id, snapshot(history, ws).id) == []


def test_the_users_own_git_settings_do_not_reach_it(
    history: History, ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, hook = tmp_path / "ran", tmp_path / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[core]\n\thooksPath = {hook.parent}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    (ws / "a").write_text("1")
    snapshot(history, ws)
    assert not marker.exists()
    # The hook would have run where those settings do reach:
    monkeypatch.delenv("GIT_DIR")
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "plain")], check=True)
    tree = subprocess.run(
        ["git", f"--git-dir={tmp_path / 'plain'}", "hash-object", "-wt", "tree", "/dev/null"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    subprocess.run(
        [
            "git",
            f"--git-dir={tmp_path / 'plain'}",
            "-c",
            "user.name=x",
            "-c",
            "user.email=x",
            "update-ref",
            "refs/tags/t",
            tree,
        ],
        check=True,
    )
    assert marker.exists()


def test_limits_of_reading(history: History, ws: Path) -> None:
    (ws / "a").write_text("12345")
    tree = snapshot(history, ws)
    with pytest.raises(UnsafeOutput, match="5 bytes"):
        history.read(tree.id, "a", max_bytes=4)
    with pytest.raises(UnsafeOutput, match="missing"):
        history.read(tree.id, "b")
    with pytest.raises(RecordUnreadable):
        history.files("--output=/tmp/x")
    with pytest.raises(RecordUnreadable):
        history.files("0" * 40)
