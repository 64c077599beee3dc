"""Writing a reply's files: what leaves the workspace is refused with path and reason."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.builtin.chat import Answer
from orchestrator.agents.builtin.paths import UnsafePath, safe_path
from orchestrator.agents.builtin.replies import parse_reply
from orchestrator.agents.builtin.work import first, report
from orchestrator.agents.builtin.writer import Refused, Workspace

CASES = Path(__file__).parents[1] / "cases" / "13"
HOSTILE = {
    "a_dotdot.md": "leaves the workspace",
    "b_deep.md": "leaves the workspace",
    "c_abs.md": "absolute",
    "d_home.md": "home folder",
    "e_githook.md": "inside .git",
    "f_gitconfig.md": "inside .git",
    "g_symlink.md": "a symbolic link (link_out)",
    "h_win.md": "leaves the workspace",
    "i_file_as_dir.md": "a file (notes.txt)",
    "j_long.md": "longer than 255 bytes",
    "k_rtl.md": "invisible or control character",
    "l_aiderconf.md": "agent's own configuration",
    "m_dir.md": "names a folder",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    outside = tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link_out").symlink_to(outside)
    (root / "notes.txt").write_text("plain\n")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]\n")
    return root


def apply(answer: Answer, root: Path, read_only: tuple[str, ...] = ()) -> dict[str, Any]:
    with Workspace(str(root), read_only) as workspace:
        return report(first(answer, workspace))


def tree(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir() or p.is_symlink()}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_the_good_block_lands_and_the_hostile_one_is_refused(name: str, workspace: Path) -> None:
    answer = Answer(text=(CASES / name).read_text(encoding="utf-8"), done_reason="stop")
    told = apply(answer, workspace)
    assert list(told["written"]) == ["inside.txt"]
    assert (workspace / "inside.txt").read_text() == "fine\n"
    assert len(told["refused"]) == 1
    refused = told["refused"][0]
    assert refused["path"]
    assert refused["reason"] == "unsafe-path"
    assert HOSTILE[name] in refused["detail"]
    assert tree(workspace) == {"inside.txt", "link_out", "notes.txt", ".git/config"}
    assert (workspace / "notes.txt").read_text() == "plain\n"
    assert (workspace / ".git" / "config").read_text() == "[core]\n"
    assert tree(workspace.parent / "outside") == set()
    assert sorted(p.name for p in workspace.parent.iterdir()) == ["outside", "workspace"]
    json.dumps(told)


def test_cases_are_all_there() -> None:
    assert sorted(p.name for p in CASES.glob("*.md") if p.name != "EXPECT.md") == sorted(HOSTILE)


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "a/", "/etc/passwd", "C:/x", "C:\\x", ".git\\config", "\\\\host\\x",
        "..", "a/../../b", "a\\..\\..\\b", "~/x", "a\nb", "a\0b",
        ".GIT/config", ".git /x", "sub/.git/hooks/x", "git~1/config", "x" * 256, "a/" * 600 + "b",
        ".aider.conf.yml", ".Claude/settings.json", "AGENTS.md", "-rf", "a/ b", "a\u202eb",
        "\ud800",
    ],
)  # fmt: skip
def test_unsafe_paths(path: str) -> None:
    with pytest.raises(UnsafePath):
        safe_path(path)


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("train.py", "train.py"),
        ("./a//b/./c.py", "a/b/c.py"),
        (".gitignore", ".gitignore"),
        (".github/workflows/ci.yml", ".github/workflows/ci.yml"),
        ("src\\app\\main.py", "src/app/main.py"),
        (".\\train.py", "train.py"),
        ("my notes.md", "my notes.md"),
        ("größe.py", "größe.py"),
        ("a..b/..c", "a..b/..c"),
    ],
)
def test_safe_paths(path: str, normal: str) -> None:
    assert safe_path(path) == normal


def test_existing_files_are_replaced_and_folders_made(workspace: Path) -> None:
    with Workspace(str(workspace)) as files:
        assert files.write("a/b/c.py", "1\n") == "a/b/c.py"
        assert files.write("./a/b/c.py", "2\n") == "a/b/c.py"
    assert (workspace / "a/b/c.py").read_text() == "2\n"
    assert [p.name for p in (workspace / "a/b").iterdir()] == ["c.py"]


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "loop", "dangling"])
def test_what_is_no_regular_file_is_not_replaced(kind: str, workspace: Path) -> None:
    target = workspace / "train.py"
    outside = workspace.parent / "outside" / "secret"
    outside.write_text("keep")
    match kind:
        case "link":
            target.symlink_to(outside)
        case "folder":
            target.mkdir()
        case "fifo":
            os.mkfifo(target)
        case "loop":
            target.symlink_to("train.py")
        case "dangling":
            target.symlink_to(workspace.parent / "outside" / "new")
    with Workspace(str(workspace)) as files, pytest.raises(Refused) as refused:
        files.write("train.py", "x\n")
    assert refused.value.reason == "unsafe-path"
    assert outside.read_text() == "keep"
    assert not (workspace.parent / "outside" / "new").exists()
    assert not list(workspace.glob(".*.part"))


def test_a_workspace_that_is_a_link_is_not_entered(workspace: Path) -> None:
    link = workspace.parent / "ws"
    link.symlink_to(workspace)
    with pytest.raises(OSError), Workspace(str(link)):
        pass


def test_what_is_listed_and_not_given_is_said(workspace: Path) -> None:
    text = (
        "I wrote:\n\n- `train.py`: fits it\n- **helpers.py** - small things\n- notes.txt\n"
        "1. `../x.py`\n- Run it\n- numpy\n- see `other.py` for more\n\n"
        "train.py\n```python\nA = 1\n```\n"
    )
    told = apply(Answer(text=text, done_reason="stop"), workspace)
    assert told["notes"] == ["helpers.py was listed and not given"]
    assert told["refused"] == []


def test_half_an_answer_is_never_applied(workspace: Path) -> None:
    text = "train.py\n```python\nA = 1\n```\n"
    answer = Answer(text=text, error="model-server-error: cut", error_class="model-server-error")
    told = apply(answer, workspace)
    assert told["written"] == {}
    assert not (workspace / "train.py").exists()
    assert "train.py" in parse_reply(text).files


def test_thinking_alone_is_told_apart_from_an_empty_reply(workspace: Path) -> None:
    assert apply(Answer(done_reason="stop"), workspace)["nothing"] == "empty"
    thought = Answer(thinking_chars=10, done_reason="length")
    assert apply(thought, workspace)["nothing"] == "only-thinking"
