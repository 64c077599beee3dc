"""Fences in fences, in every combination: the whole file or a refusal by name, never a stump, never
a file named after what stands inside, and the file that follows is there."""

from __future__ import annotations

from itertools import product

import pytest

from orchestrator.agents.builtin.replies import parse_reply

OUTER = ["```", "````", "``````", "~~~", "~~~~~"]
INFO = ["", "markdown", "md"]
INNER = {
    "bash": "```bash\npython train.py\n```",
    "bare": "```\npython train.py\n```",
    "tildes": "~~~\npip install x\n~~~",
    "long": "````text\nx\n````",
    "two": "```python\nimport a\n```\n\nand\n\n```bash\nls\n```",
    "nested": "````markdown\n```python\nimport a\n```\n````",
    "named": "train.py\n```python\nimport a\n```",
    "indented": "- so:\n\n  ```bash\n  ls\n  ```",
    "inline": "Use ``` for fences, `train.py` for names.",
}
BEFORE = ["Install:\n\n", "## Use\n", "Install\n"]
AFTER = ["\n\nThen it works.\n", "\n\n## Limits\n\n- few\n", "\n"]
FOLLOWING = ["", "\n### FILE: b.py\n````python\nB = 2\n````\n", "\nb.py\n```python\nB = 2\n```\n"]


@pytest.mark.parametrize("inner", sorted(INNER))
@pytest.mark.parametrize("outer", OUTER)
def test_a_readme_is_whole_or_refused(outer: str, inner: str) -> None:
    for info, before, after, following in product(INFO, BEFORE, AFTER, FOLLOWING):
        readme = f"# Title\n\n{before}{INNER[inner]}{after}"
        text = f"As asked.\n\nREADME.md\n{outer}{info}\n{readme}{outer}\n{following}"
        reply = parse_reply(text)
        refused = {item.path for item in reply.refused}
        assert reply.files.get("README.md", readme) == readme, text
        assert ("README.md" in reply.files) is not ("README.md" in refused), text
        assert set(reply.files) <= {"README.md", "b.py"}, text
        if following and "README.md" in reply.files:
            assert reply.files["b.py"] == "B = 2\n", text
        if len(outer) > 4 or (outer[0] == "~" and inner != "tildes"):
            assert "README.md" in reply.files, text


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("line", ['TEXT = """', "X = '''", 'def f():\n    """Doc.', "HELP = r'''"])
def test_a_fence_in_a_string_of_code_closes_nothing(outer: str, line: str) -> None:
    quote = "'''" if "'''" in line else '"""'
    indent = "    " if line.startswith("def") else ""
    code = f"{line}\n{indent}Use:\n```\npython x.py\n```\n{indent}{quote}\n"
    reply = parse_reply(f"x.py\n{outer}python\n{code}{outer}\nRun it:\n```bash\npython x.py\n```\n")
    assert reply.files == {"x.py": code}
    assert reply.refused == []


@pytest.mark.parametrize(
    ("outer", "closing", "at_budget", "kept"),
    [
        ("```", "```", False, True),
        ("```", "```", True, False),
        ("````", "````", True, True),
        ("````", "```", True, False),
        ("~~~", "~~~", True, False),
    ],
)
def test_a_last_fence_at_the_end_of_the_budget(
    outer: str, closing: str, at_budget: bool, kept: bool
) -> None:
    reply = parse_reply(f"README.md\n{outer}\n# T\n\nUse:\n{closing}\n", at_budget=at_budget)
    assert ("README.md" in reply.files) is kept
    assert [item.reason for item in reply.refused] == ([] if kept else ["truncated"])


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("cut", range(2, 14))
def test_a_readme_that_is_cut_anywhere_leaves_no_stump(outer: str, cut: int) -> None:
    readme = "# T\n\nInstall:\n\n```bash\nls\n```\n\nUse:\n\n~~~\nx\n~~~\n\nEnd.\n"
    whole = f"README.md\n{outer}markdown\n{readme}{outer}\n"
    lines = whole.split("\n")
    text = "\n".join(lines[:cut])
    found = parse_reply(text, at_budget=True).files.get("README.md")
    assert found in (None, readme), text
