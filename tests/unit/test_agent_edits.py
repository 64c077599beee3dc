"""Edits of files that exist: read out of replies, fitted to one place only, landed or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agents.builtin.edits import Edit
from orchestrator.agents.builtin.fitting import Elided, Unfit, fitted
from orchestrator.agents.builtin.landing import Landed, blob_id, land
from orchestrator.agents.builtin.replies import parse_reply
from orchestrator.agents.builtin.writer import Workspace

CASES = Path(__file__).parents[1] / "cases" / "03"
TRAIN = """\
import pandas as pd

def load(path):
    rows = pd.read_csv(path)
    return rows

def main():
    rows = load("train.csv")
    print(len(rows))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "predict.py").write_text('print("old")\n')
    (tmp_path / "README.md").write_text("# Gate\n\n```bash\nls\n```\n\nEnd.\n")
    return tmp_path


def landed(root: Path, reply: str, read_only: tuple[str, ...] = ()) -> Landed:
    with Workspace(str(root), read_only) as workspace:
        return land(parse_reply(reply), workspace)


def reasons(found: Landed) -> dict[str, str]:
    return {item.path: item.reason for item in found.refused}


SECTION = """<<<<<<< SEARCH
    print(len(rows))
=======
    print("rows:", len(rows))
>>>>>>> REPLACE
"""
DIFF = """--- a/train.py
+++ b/train.py
@@ -7,3 +7,3 @@ def load(path):
 def main():
     rows = load("train.csv")
-    print(len(rows))
+    print("rows:", len(rows))
"""
EDITED = TRAIN.replace("print(len(rows))", 'print("rows:", len(rows))')


@pytest.mark.parametrize(
    "reply",
    [
        f"train.py\n```python\n{SECTION}```\n",
        f"### FILE: train.py\n````python\n{SECTION}````\n",
        f"**train.py**\n\n```\n{SECTION}```\n",
        f"```python\ntrain.py\n{SECTION}```\n",
        f"```python\n# train.py\n{SECTION}```\n",
        f"```python title=train.py\n{SECTION}```\n",
        f"train.py\n{SECTION}",
        f"Print a label in `train.py`:\n\n```python\n{SECTION}```\nThat is all.\n",
        f"train.py\n```python\n{SECTION}```\n".replace("\n", "\r\n"),
        f"train.py\n```python\n{SECTION}```\n".replace("<<<<<<< SEARCH", "<<<<<<< ORIGINAL"),
        f"train.py\n```python\n{SECTION}```\n".replace("<<<<<<<", "<<<<<").replace("===", "=="),
        f"train.py\n```python\n{SECTION}".replace("    print", "print") + "```\n",
        f"train.py\n```python\n{SECTION}".replace("(rows))\n", "(rows))  \n", 1) + "```\n",
        f"```diff\n{DIFF}```\n",
        f"```patch\ndiff --git a/train.py b/train.py\nindex 1..2 100644\n{DIFF}```\n",
        f"```\n{DIFF}```\n",
        f"```diff\n{DIFF}```\n".replace("a/train.py", "train.py").replace("b/train", "train"),
        f"```diff\n{DIFF}```\n".replace("@@ -7,3 +7,3 @@", "@@ -70,9 +1,2 @@"),
        f"```diff\n{DIFF}```\n".replace("@@ -7,3 +7,3 @@ def load(path):", "@@ ... @@"),
        "train.py\n```diff\n" + DIFF.split("\n", 2)[2] + "```\n",
        f"### FILE: train.py\n````diff\n{DIFF}````\n<|im_end|>",
    ],
)
def test_one_edit_in_its_many_spellings(root: Path, reply: str) -> None:
    found = landed(root, reply)
    assert reasons(found) == {}
    after = (root / "train.py").read_text()
    # A replacement's own trailing space is the model's business.
    assert [line.rstrip() for line in after.split("\n")] == EDITED.split("\n")
    assert found.written == {"train.py": blob_id(after.encode())}


def test_git_s_name_for_a_content() -> None:
    assert blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


UNFIT = {
    "nowhere": ("x = 1", "x = 2", "does not match the file (it looks for 'x = 1')"),
    "no file": ("print(1)", "print(2)", "is for a file that does not exist"),
    "empty search": ("", "print(2)", "says nothing of where in the file it belongs"),
}


@pytest.mark.parametrize("kind", sorted(UNFIT))
def test_an_edit_that_does_not_fit_is_said_and_the_others_land(root: Path, kind: str) -> None:
    old, new, detail = UNFIT[kind]
    path = "none.py" if kind == "no file" else "train.py"
    section = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"
    found = landed(
        root, f"{path}\n```python\n{section}```\n\n### FILE: new.py\n````python\nA = 1\n````\n"
    )
    assert [(item.path, item.reason, item.detail) for item in found.refused] == [
        (path, "did-not-apply", detail)
    ]
    assert list(found.written) == ["new.py"]
    assert (root / "train.py").read_text() == TRAIN
    assert not (root / "none.py").exists()


def test_one_file_s_edits_land_together_or_not_at_all(root: Path) -> None:
    bad = SECTION.replace("print(len(rows))", "print(len(lines))")
    other = '<<<<<<< SEARCH\nprint("old")\n=======\nprint("new")\n>>>>>>> REPLACE\n'
    found = landed(
        root,
        f"train.py\n```python\n{SECTION}```\n\npredict.py\n```python\n{other}```\n\n"
        f"train.py\n```python\n{bad}```\n",
    )
    assert list(found.written) == ["predict.py"]
    assert reasons(found) == {"train.py": "did-not-apply"}
    assert found.refused[0].detail.startswith("edit 2 of 2 does not match the file")
    assert (root / "train.py").read_text() == TRAIN


def test_several_files_in_one_diff(root: Path) -> None:
    found = landed(
        root,
        f"```diff\n{DIFF}"
        '--- a/predict.py\n+++ b/predict.py\n@@ -1 +1 @@\n-print("older")\n+print("new")\n'
        "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1,2 @@\n+A = 1\n+B = 2\n```\n",
    )
    assert list(found.written) == ["train.py", "pkg/new.py"]
    assert reasons(found) == {"predict.py": "did-not-apply"}
    assert (root / "pkg/new.py").read_text() == "A = 1\nB = 2\n"


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("--- a/train.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-import pandas as pd\n", "deletes"),
        ("--- a/train.py\n+++ b/fit.py\n@@ -1 +1 @@\n-import pandas as pd\n+x\n", "renames"),
        ("--- a/train.py\n+++ b/train.py\n", "no hunk"),
        ("--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\nimport x\n", "no sign before it"),
        ("--- a/train.py\n+++ b/train.py\n@@ -3,0 +3,1 @@\n+import os\n", "says nothing of where"),
    ],
)
def test_a_diff_that_can_t_be_honoured_is_refused_by_name(
    root: Path, diff: str, words: str
) -> None:
    found = landed(root, f"```diff\n{diff}```\n")
    assert found.written == {}
    assert [item.reason for item in found.refused] == ["did-not-apply"]
    assert words in found.refused[0].detail
    assert (root / "train.py").read_text() == TRAIN


def test_an_edit_of_a_readme_keeps_its_fences(root: Path) -> None:
    section = "<<<<<<< SEARCH\n```bash\nls\n```\n=======\n```bash\nls -l\n```\n>>>>>>> REPLACE\n"
    found = landed(root, f"README.md\n```markdown\n{section}```\nDone.\n")
    assert reasons(found) == {}
    assert (root / "README.md").read_text() == "# Gate\n\n```bash\nls -l\n```\n\nEnd.\n"
    diff = "--- a/README.md\n+++ b/README.md\n@@ -3,3 +3,3 @@\n ```bash\n-ls -l\n+ls\n ```\n"
    assert reasons(landed(root, f"```diff\n{diff}```\nDone.\n")) == {}
    assert (root / "README.md").read_text() == "# Gate\n\n```bash\nls\n```\n\nEnd.\n"


@pytest.mark.parametrize(
    "reply",
    [
        "train.py\n```python\n<<<<<<< SEARCH\n    print(len(rows))\n=======\n    print(1",
        "train.py\n```python\n" + SECTION,
        "train.py\n<<<<<<< SEARCH\n    print(len(rows))\n=======\n    pri",
        "```diff\n" + DIFF,
    ],
)
def test_an_edit_that_is_cut_changes_nothing(root: Path, reply: str) -> None:
    found = landed(root, "### FILE: a.py\n````python\nA = 1\n````\n\n" + reply)
    assert list(found.written) == ["a.py"]
    assert reasons(found) == {"train.py": "truncated"}
    assert (root / "train.py").read_text() == TRAIN


def test_an_edit_of_a_file_that_the_reply_itself_holds(root: Path) -> None:
    section = "<<<<<<< SEARCH\nA = 1\n=======\nA = 2\n>>>>>>> REPLACE\n"
    found = landed(root, f"a.py\n```python\nA = 1\n```\nThen:\n\na.py\n```python\n{section}```\n")
    assert (root / "a.py").read_text() == "A = 2\n"
    assert reasons(found) == {}
    later = landed(
        root, f"a.py\n```python\n{section}```\nBetter whole:\n\na.py\n```python\nA = 3\n```\n"
    )
    assert (root / "a.py").read_text() == "A = 3\n"
    assert later.notes == ["a.py came whole after edits of it, which were left"]


@pytest.mark.parametrize("old", ["A = 1", "A = 0"])
@pytest.mark.parametrize("new", ["A = 2", "A = 3"])
def test_a_diff_that_only_tells_what_the_whole_file_has(root: Path, old: str, new: str) -> None:
    diff = f"```diff\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-{old}\n+{new}\n```\n"
    found = landed(root, f"### FILE: a.py\n````python\nA = 2\n````\nThat is:\n{diff}")
    assert (root / "a.py").read_text() == "A = 2\n"
    told = new == "A = 2"
    assert found.notes == (["an edit of a.py tells what the whole file has already"] * told)
    assert reasons(found) == ({} if told else {"a.py": "did-not-apply"})
    # On disk, where no whole file says so, it stays an edit that does not fit.
    assert reasons(landed(root, diff)) == {"a.py": "did-not-apply"}


@pytest.mark.parametrize("path", ["../x.py", "/etc/passwd", ".git/config", "link/x.py"])
def test_an_edit_outside_the_workspace_is_refused_unread(root: Path, path: str) -> None:
    (root / "link").symlink_to("/etc")
    section = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"
    found = landed(root, f"### FILE: {path}\n````\n{section}````\n")
    assert found.written == {}
    assert set(reasons(found)) == {path}
    assert set(reasons(found).values()) <= {"unsafe-path", "did-not-apply"}


def test_a_link_is_not_read_through(root: Path, tmp_path: Path) -> None:
    (root / "copy.py").symlink_to("train.py")
    found = landed(root, f"copy.py\n```python\n{SECTION}```\n")
    assert reasons(found) == {"copy.py": "unsafe-path"}


def test_data_is_read_only_for_files_and_edits_alike(root: Path) -> None:
    (root / "excerpt.csv").write_text("a,b\n1,2\n")
    section = "<<<<<<< SEARCH\n1,2\n=======\n1,3\n>>>>>>> REPLACE\n"
    for reply in (
        f"excerpt.csv\n```csv\n{section}```\n",
        "### FILE: ./excerpt.csv\n````csv\na\n````\n",
    ):
        found = landed(root, reply + "\na.py\n```python\nA = 1\n```\n", ("excerpt.csv",))
        assert list(reasons(found).values()) == ["read-only-data"]
        assert list(found.written) == ["a.py"]
    assert (root / "excerpt.csv").read_text() == "a,b\n1,2\n"


def test_the_cases_of_edits(root: Path) -> None:
    no_match = landed(root, (CASES / "c_search_replace_no_match.md").read_text())
    assert (no_match.written, reasons(no_match)) == ({}, {"predict.py": "did-not-apply"})
    diff = landed(root, (CASES / "g_unified_diff.md").read_text())
    assert list(diff.written) == ["predict.py"]
    assert (root / "predict.py").read_text() == 'print("new")\n'
    assert not (root / "diff").exists()


# --- fitting -------------------------------------------------------------------------------


def edit(old: str, new: str, line: int | None = None) -> Edit:
    return Edit(tuple(old.split("\n")), tuple(new.split("\n")), line)


TWICE = "a\nx\nb\nx\nc\n"


@pytest.mark.parametrize(
    ("text", "made", "after"),
    [
        ("a\nb\nc\n", edit("b", "B"), "a\nB\nc\n"),
        ("a\nb", edit("b", "B"), "a\nB"),
        ("a\r\nb\r\n", edit("b", "B\nC"), "a\r\nB\r\nC\r\n"),
        ("if x:\n    a\n    b\n", edit("a\nb", "a\n\nc"), "if x:\n    a\n\n    c\n"),
        ("a\nb\n", edit("  a\n  b", "  a\n  c"), "a\nc\n"),
        ("\tx\n", edit("x", "y"), "\ty\n"),
        ("a  \nb\n", edit("a\nb", "a\nc"), "a\nc\n"),
        (TWICE, edit("x", "y", 4), "a\nx\nb\ny\nc\n"),
        ("", edit("", "new\nfile"), "new\nfile\n"),
        (None, edit("", "new"), "new\n"),
        ("\n\n", edit("", "x"), "x\n"),
    ],
)
def test_what_fits(text: str | None, made: Edit, after: str) -> None:
    assert fitted(text, [made], document=False) == after


@pytest.mark.parametrize(
    ("text", "made", "words"),
    [
        (TWICE, edit("x", "y"), "fits in 2 places"),
        (TWICE, edit("x", "y", 3), "fits in 2 places"),
        ("if a:\n  x\nif b:\n    x\n", edit("x", "y"), "fits in 2 places"),
        ("a\n  b\n", edit("a\nb", "c"), "does not match"),
        ("a\nb\n", edit("  a\n  b", " c"), "does not match"),
        ("a b\n", edit("a  b", "c"), "does not match"),
        ("A\n", edit("a", "b"), "does not match"),
        ("a\n", edit("a\nb", "b"), "does not match"),
    ],
)
def test_what_does_not_fit_is_never_guessed(text: str, made: Edit, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        fitted(text, [made], document=False)


def test_later_hunks_are_found_where_earlier_ones_moved_them() -> None:
    made = [edit("a", "a\na2\na3", 1), edit("x", "y", 4)]
    assert fitted(TWICE, made, document=False) == "a\na2\na3\nx\nb\ny\nc\n"


def test_an_edit_that_leaves_part_of_the_file_out_is_refused() -> None:
    with pytest.raises(Elided, match="existing code"):
        fitted("a\nb\n", [edit("a", "# ... existing code ...\nc")], document=False)
    kept = "# ... existing code ...\na\n"
    made = edit("# ... existing code ...\na", "# ... existing code ...\nb")
    assert fitted(kept, [made], document=False).endswith("b\n")
