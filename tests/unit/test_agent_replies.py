"""The built-in agent's reading of replies: every spelling lands, nothing is guessed."""

from pathlib import Path

import pytest

from orchestrator.agents.builtin.replies import parse_reply
from orchestrator.agents.builtin.reply import Reply

CASES = Path(__file__).parents[1] / "cases"
PREDICT = 'print("v")\n'


def case(number: str, name: str) -> Reply:
    return parse_reply((CASES / number / name).read_text(encoding="utf-8"))


def refusals(reply: Reply) -> dict[str, str]:
    return {item.path: item.reason for item in reply.refused}


# --- where a file ends ---------------------------------------------------------------------


def test_a_readme_with_fences_of_its_own_length_is_whole() -> None:
    reply = case("01", "a_readme_triple.md")
    assert list(reply.files) == ["README.md"]
    readme = reply.files["README.md"]
    assert readme.count("```bash") == 2
    assert readme.endswith("## Limits\nScores arrive one message at a time.\n")
    assert readme.count("```") == 4
    assert not reply.refused


def test_a_longer_outer_fence_decides() -> None:
    reply = case("01", "b_readme_six.md")
    assert list(reply.files) == ["README.md"]
    assert reply.files["README.md"].endswith("## Limits\nLast line.\n")


def test_a_fence_inside_a_python_string_closes_nothing() -> None:
    reply = case("01", "c_code_with_fence_inside.md")
    assert list(reply.files) == ["predict.py"]
    assert not reply.refused
    exec(compile(reply.files["predict.py"], "predict.py", "exec"), {})
    assert reply.files["predict.py"].endswith("print(len(HELP))\n")


def test_tildes_outside_backticks() -> None:
    reply = case("01", "d_tilde_outer.md")
    assert reply.files == {"README.md": "# Title\n```bash\necho hi\n```\ntail line\n"}


NESTED_BARE = """README.md
```markdown
# Title

Install:

```
pip install -r requirements.txt
```

## Use
```
python predict.py
```
Done.
```
"""


def test_bare_inner_fences_are_told_by_the_lines_around_them() -> None:
    text = NESTED_BARE.replace("## Use\n", "Use:\n")
    assert parse_reply(text).files["README.md"].endswith("python predict.py\n```\nDone.\n")


def test_what_cannot_be_decided_is_refused_and_said() -> None:
    reply = parse_reply(NESTED_BARE.replace("Install:\n\n", "Install\n"))
    assert reply.files == {}
    assert refusals(reply) == {"README.md": "ambiguous-fences"}


def test_a_readme_closed_before_a_usage_hint_ends_there() -> None:
    reply = parse_reply(
        "README.md\n```markdown\n# T\ntext\n```\n\nRun it:\n\n```\npython train.py\n```\n"
    )
    assert reply.files == {"README.md": "# T\ntext\n"}


def test_a_file_name_inside_a_readme_opens_no_file() -> None:
    reply = parse_reply(
        "README.md\n```markdown\n# T\n\ntrain.py\n```python\nimport x\n```\n\nend\n```\n"
    )
    assert list(reply.files) == ["README.md"]
    assert reply.files["README.md"].endswith("```\n\nend\n")


@pytest.mark.parametrize("outer", ["````", "~~~~", "``````"])
def test_nested_fences_under_a_longer_fence_of_any_kind(outer: str) -> None:
    inner = "# T\n```bash\nls\n```\n~~~\nx\n~~~\n```\ny\n```\n"
    reply = parse_reply(f"### FILE: README.md\n{outer}markdown\n{inner}{outer}\n")
    assert reply.files == {"README.md": inner}


def test_json_with_a_fence_in_a_value_line_is_read_by_what_parses() -> None:
    reply = parse_reply('config.json\n```json\n{"a": 1}\n```\n\nsee\n```\nx\n```\n')
    assert reply.files == {"config.json": '{"a": 1}\n'}


# --- what cut replies leave ----------------------------------------------------------------


def test_a_cut_file_is_not_written_and_the_whole_ones_are() -> None:
    reply = parse_reply(
        "### FILE: a.py\n````python\nA = 1\n````\n\n### FILE: b.py\n````python\nB = "
    )
    assert reply.files == {"a.py": "A = 1\n"}
    assert refusals(reply) == {"b.py": "truncated"}


def test_a_cut_readme_yields_none_of_its_inner_blocks() -> None:
    reply = parse_reply("README.md\n```markdown\n# T\n\ntrain.py\n```python\nimport x\n```\n\nand")
    assert reply.files == {}
    assert refusals(reply) == {"README.md": "truncated"}


def test_a_cut_readme_with_bare_inner_fences_is_no_stump() -> None:
    reply = parse_reply("README.md\n```markdown\n# T\nInstall:\n```\npip install x\n```\n\nThen")
    assert reply.files == {}
    assert refusals(reply) == {"README.md": "ambiguous-fences"}


def test_a_cut_python_file_with_a_fence_in_its_docstring_is_no_stump() -> None:
    reply = parse_reply("train.py\n```python\nHELP = '''\nUsage:\n```\npython train.py --data")
    assert reply.files == {}
    assert refusals(reply) == {"train.py": "truncated"}


@pytest.mark.parametrize("info", ["python", ""])
def test_an_unclosed_file_does_not_swallow_the_next(info: str) -> None:
    reply = parse_reply(f"a.py\n```{info}\nA = 1\n\nb.py\n```{info}\nB = 2\n```\n")
    assert reply.files == {"b.py": "B = 2\n"}
    assert refusals(reply) == {"a.py": "truncated"}


def test_an_unclosed_readme_ends_at_the_next_marked_file() -> None:
    reply = parse_reply(
        "### FILE: README.md\n````markdown\n# T\n\n### FILE: b.py\n````python\nB = 2\n````\n"
    )
    assert reply.files == {"b.py": "B = 2\n"}
    assert refusals(reply) == {"README.md": "truncated"}


def test_broken_code_is_still_the_models_file() -> None:
    reply = parse_reply("a.py\n```python\ndef f(:\n    pass\n```\n\nb.py\n```python\nB = 2\n```\n")
    assert reply.files == {"a.py": "def f(:\n    pass\n", "b.py": "B = 2\n"}


def test_an_unclosed_string_at_the_end_of_a_reply_is_written_as_it_is() -> None:
    reply = parse_reply("a.py\n```python\nx = '''open\n```\n")
    assert reply.files == {"a.py": "x = '''open\n"}


# --- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(p.name for p in (CASES / "14").glob("?_*.md")))
def test_every_spelling_of_one_name_means_that_file_and_nothing_else(name: str) -> None:
    reply = case("14", name)
    assert reply.files == {"predict.py": PREDICT}
    assert not reply.refused


@pytest.mark.parametrize(
    "text",
    [
        '```python predict.py\nprint("v")\n```\n',
        '```predict.py\nprint("v")\n```\n',
        '```python:predict.py\nprint("v")\n```\n',
        '```python title="predict.py"\nprint("v")\n```\n',
        '```{.python file=predict.py}\nprint("v")\n```\n',
        '**File:** `predict.py`\n```python\nprint("v")\n```\n',
        '**predict.py** (new)\n```python\nprint("v")\n```\n',
        '`predict.py` - scores one message:\n\n```python\nprint("v")\n```\n',
        '📄 `predict.py`\n```py\nprint("v")\n```\n',
        '## 2. `./predict.py`\n~~~python\nprint("v")\n~~~\n',
        '1. predict.py\n   ```python\n   print("v")\n   ```\n',
        '### FILE: `predict.py`\n````\nprint("v")\n````\n',
        'FILE: predict.py\r\n```python\r\nprint("v")\r\n```\r\n',
        '<think>\npredict.py\n```python\nprint("draft")\n```\n</think>\n'
        'predict.py\n```python\nprint("v")\n```\n',
        'predict.py\n```python\nprint("draft")\n```\nhmm.\n</think>\n'
        'predict.py\n```python\nprint("v")\n```\n',
        '```markdown\n### FILE: predict.py\n```python\nprint("v")\n```\n```\n',
        'predict.py\n```python\nprint("v")\n```\nRun it:\n```bash\npython predict.py\n```\n',
        'predict.py\n```python\nprint("v")\n```\nRun `predict.py`:\n```\npython predict.py\n```\n',
        'predict.py\n```python\nprint("v")\n```\nOutput\n```\nv\n```\n',
        '## `predict.py`\n\nScores each message.\nNothing else.\n\n```python\nprint("v")\n```\n',
        '**predict.py**\nScores it:\n```python\nprint("v")\n```\nRun:\n```bash\nls\n```\n',
        '**File 1: predict.py**\n```python\nprint("v")\n```\n',
        '### FILE: predict.py\n````python\nprint("v")\n```\n',
        'predict.py\n```python\nprint("v")\n```<|im_end|>\n',
        'predict.py\n```python\nprint("v")\n```<|end|><|return|>\n',
        'predict.py\n```python\nprint("old")\n```\nBetter:\n\npredict.py\n```python\nprint("v")\n```',
    ],
)
def test_more_spellings(text: str) -> None:
    files = {name.removeprefix("./"): body for name, body in parse_reply(text).files.items()}
    assert files == {"predict.py": PREDICT}


def test_a_first_comment_names_the_file_and_stays_in_it() -> None:
    reply = parse_reply('Here:\n\n```python\n# predict.py\nprint("v")\n```\n')
    assert reply.files == {"predict.py": '# predict.py\nprint("v")\n'}


@pytest.mark.parametrize(
    "first",
    [
        "# predict.py - scores one message",
        "# predict.py: scores one message",
        '"""predict.py"""',
        "# File: predict.py",
        "#!/usr/bin/env python3\n# predict.py",
    ],
)
def test_first_lines_that_name_the_file(first: str) -> None:
    reply = parse_reply(f"Here:\n\n```python\n{first}\nX = 1\n```\n")
    assert reply.files == {"predict.py": f"{first}\nX = 1\n"}


@pytest.mark.parametrize(
    "first", ["# see train.py", "# data.csv: the input", "# e.g. a.py", "# Load a.py - quickly"]
)
def test_first_lines_that_name_none(first: str) -> None:
    assert parse_reply(f"Here:\n\n```python\n{first}\nX = 1\n```\n").files == {}


def test_a_snippet_under_a_title_does_not_replace_the_whole_file() -> None:
    reply = parse_reply(
        "### FILE: a.py\n````python\nA = 1\nB = 2\n````\n## a.py\nIn short:\n```python\nA\n```\n"
    )
    assert reply.files == {"a.py": "A = 1\nB = 2\n"}
    assert refusals(reply) == {"a.py": "mentioned-only"}


def test_a_long_fence_closed_by_a_short_one_before_the_next_file() -> None:
    reply = parse_reply(
        "### FILE: README.md\n````markdown\n# T\n```bash\nls\n```\nend\n```\n\n"
        "### FILE: b.py\n````python\nB = 2\n```\n"
    )
    assert reply.files == {"README.md": "# T\n```bash\nls\n```\nend\n", "b.py": "B = 2\n"}


def test_a_readme_cut_after_an_inner_block_is_no_stump() -> None:
    reply = parse_reply("### FILE: README.md\n````markdown\n# T\n```bash\nls\n```\n")
    assert reply.files == {}
    assert refusals(reply) == {"README.md": "truncated"}


@pytest.mark.parametrize(
    "line",
    [
        "Run it",
        "python",
        "bash",
        "Output:",
        "###",
        "Here is the new code:",
        "numpy",
        "scikit-learn==1.5",
        "Version 1.2",
        "example.com",
        "and/or",
        "e.g.",
        "Run `train.py` to see the output:",
        "np.array",
        "https://example.com/a.py",
        "N/A",
        "FILE: here is what you asked for",
    ],
)
def test_words_before_a_fence_never_become_files(line: str) -> None:
    reply = parse_reply(f"{line}\n```\nx\n```\n")
    assert reply.files == {}
    assert reply.refused == []
    assert reply.nothing == "no-file-name"


def test_a_shell_block_under_a_file_name_does_not_replace_the_file() -> None:
    reply = parse_reply("train.py\n```bash\npython train.py\n```\n")
    assert reply.files == {}
    assert refusals(reply) == {"train.py": "language-mismatch"}


def test_the_last_of_two_versions_wins_and_it_is_said() -> None:
    reply = parse_reply("a.py\n```python\nA = 1\n```\n\na.py\n```python\nA = 2\n```\n")
    assert reply.files == {"a.py": "A = 2\n"}
    assert reply.notes == ["a.py came more than once; the last was kept"]


def test_a_snippet_in_the_explanation_does_not_replace_the_whole_file() -> None:
    reply = parse_reply(
        "### FILE: a.py\n````python\nA = 1\nB = 2\n````\nIn `a.py`:\n```python\nA = 1\n```\n"
    )
    assert reply.files == {"a.py": "A = 1\nB = 2\n"}
    assert refusals(reply) == {"a.py": "mentioned-only"}


def test_an_elided_later_version_leaves_the_whole_one() -> None:
    reply = parse_reply(
        "a.py\n```python\nA = 1\n```\n\na.py\n```python\n# ... existing code ...\nB = 2\n```\n"
    )
    assert reply.files == {"a.py": "A = 1\n"}
    assert refusals(reply) == {"a.py": "elided"}


def test_several_files_and_empty_ones() -> None:
    reply = parse_reply(
        "Plan.\n\n### FILE: pkg/__init__.py\n````python\n````\n\n### FILE: requirements.txt\n"
        "````\npandas\nscikit-learn\n````\n### FILE: Dockerfile\n````dockerfile\nFROM x\n````\n"
    )
    assert reply.files == {
        "pkg/__init__.py": "",
        "requirements.txt": "pandas\nscikit-learn\n",
        "Dockerfile": "FROM x\n",
    }


# --- thinking ------------------------------------------------------------------------------


def test_a_file_that_speaks_of_thinking_tags_stays_whole() -> None:
    text = 'TAG = "<think>"\nEND = """\n</think>\n"""\n'
    assert parse_reply(f"a.py\n```python\n{text}```\n").files == {"a.py": text}


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK"])
def test_unclosed_thinking_holds_no_files(tag: str) -> None:
    reply = parse_reply(f"<{tag}>\nI would write\na.py\n```python\nA = 1\n```\n")
    assert reply.files == {}
    assert reply.nothing == "only-thinking"
    assert "never closed" in reply.notes[0]


# --- replies that change nothing -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        ("a_empty.md", "empty"),
        ("b_prose_only.md", "prose-only"),
        ("d_no_filename.md", "no-file-name"),
        ("e_tool_call_json.md", "tool-call"),
        ("f_please_add.md", "prose-only"),
    ],
)
def test_nothing_is_written_and_the_reason_is_named(name: str, nothing: str) -> None:
    reply = case("03", name)
    assert reply.files == {}
    assert reply.nothing == nothing


@pytest.mark.parametrize(
    "body",
    [
        "# ... rest of the code unchanged ...\nB = 2",
        "A = 1\n# (unchanged)\n",
        "// ... existing code ...",
        "# The rest of the function stays the same",
        "# imports unchanged",
        "/* remainder of the file omitted */",
    ],
)
def test_elided_bodies_are_refused(body: str) -> None:
    assert refusals(parse_reply(f"a.py\n```\n{body}\n```\n")) == {"a.py": "elided"}


@pytest.mark.parametrize(
    "body",
    [
        "class P(Protocol):\n    def f(self) -> int:\n        ...",
        "# same as above, but for the body",
        "# keep the rest of the columns in memory",
        "x = [1, ...]  # existing ... things",
        "# Load data...",
    ],
)
def test_ordinary_comments_are_no_elision(body: str) -> None:
    assert parse_reply(f"a.py\n```python\n{body}\n```\n").files == {"a.py": body + "\n"}


def test_a_marked_file_without_a_fence_is_said() -> None:
    reply = parse_reply("### FILE: a.py\nprint(1)\n")
    assert reply.files == {}
    assert refusals(reply) == {"a.py": "no-fence"}


@pytest.mark.parametrize(
    "text",
    [
        "```",
        "~~~~",
        "```\n```\n```",
        "<think>",
        "</think>",
        "### FILE:",
        "\x00\ufffe",
        "`" * 9999,
        "a.py\n```python\n" + "(" * 5000 + "\n```\n",
        "a.json\n```json\n" + "[" * 99999 + "\n```\n",
        "FILE: a.md\n" + "```\n" * 2000,
        *(
            start + fill * 50_000 + "\n```\nx\n```\n"
            for start in ("FILE: x", "# x", "- `")
            for fill in ("* ", "` ", "a ", ": - ")
        ),
        "a.py\n```\n# " + " " * 100_000 + "x\n```\n",
    ],
)
def test_odd_replies_do_not_crash(text: str) -> None:
    parse_reply(text)
