"""What may be declared, and how what may not is refused."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import Failure
from orchestrator.sandbox.requirements import Declared, declared

CASES = Path(__file__).parents[1] / "cases" / "19"


def accepted(content: bytes, name: str = "requirements.txt") -> Declared:
    result = declared({name: content})
    assert isinstance(result, Declared), result
    return result


def refused(content: bytes, name: str = "requirements.txt") -> Failure:
    result = declared({name: content})
    assert isinstance(result, Failure), result
    assert result.failure_class is FailureClass.DEPENDENCY_REFUSED
    return result


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", ()),
        (b"# nothing but a comment\n\n", ()),
        (b"pandas\nscikit-learn>=1.5\n", ("pandas", "scikit-learn>=1.5")),
        (b"pandas\r\nnumpy\r\n", ("pandas", "numpy")),
        (codecs.BOM_UTF8 + b"pandas\n", ("pandas",)),
        (codecs.BOM_UTF16_LE + "pandas\r\nnumpy\r\n".encode("utf-16-le"), ("pandas", "numpy")),
        (codecs.BOM_UTF16_BE + "pandas\n".encode("utf-16-be"), ("pandas",)),
        (b"pandas # for the frames\n", ("pandas",)),
        (b"pandas  >= 2.0 , < 3\n", ("pandas<3,>=2.0",)),
        (b"pandas \\\n  >=2\n", ("pandas>=2",)),
        (b"pandas \\\n# a comment ends the continuation\n", ("pandas",)),
        (b"pandas==2.2.2 \\", ("pandas==2.2.2",)),
        (
            b'tomli>=2; python_version < "3.11"\n',
            ('tomli>=2; python_version < "3.11"',),
        ),
        (b"uvicorn[standard]\n", ("uvicorn[standard]",)),
        (b"pandas # caf\xe9\n", ("pandas",)),
        (
            b"six==1.17.0 \\\n    --hash=sha256:" + b"ab" * 32 + b"\n",
            ("six==1.17.0 --hash=sha256:" + "ab" * 32,),
        ),
    ],
)
def test_plain_requirements_are_read_as_people_write_them(content, lines):
    result = accepted(content)
    assert result.lines == lines
    assert result.source == "requirements.txt"


def test_names_are_canonical_and_without_extras():
    result = accepted(b"Scikit_Learn==1.5\nuvicorn[standard]\n")
    assert result.names == {"scikit-learn", "uvicorn"}


def test_no_file_declares_nothing():
    assert declared({"train.py": b"import os\n"}) == Declared()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("git+https://example.invalid/a/b.git", "repository"),
        ("tool @ git+ssh://example.invalid/a/b.git", "repository"),
        ("https://example.invalid/x-1.0.tar.gz", "URL"),
        ("tool @ https://example.invalid/x-1.0-py3-none-any.whl", "URL"),
        ("tool@file:///etc/passwd", "URL"),
        ("file:./tool", "URL"),
        ("./tool", "local path"),
        ("../tool", "local path"),
        (".", "local path"),
        ("/opt/tool", "local path"),
        ("~/tool", "local path"),
        ("vendored/tool", "local path"),
        (r"C:\tool", "local path"),
        ("tool-1.0-py3-none-any.whl", "local path"),
        ("tool-1.0.tar.gz", "local path"),
        ("-e .", "editable"),
        ("--editable=./x", "editable"),
        ("-r other.txt", "another file"),
        ("-rother.txt", "another file"),
        ("--requirement ../../../etc/passwd", "another file"),
        ("-c limits.txt", "another file"),
        ("--constraint=limits.txt", "another file"),
        ("-i https://example.invalid/simple", "package index"),
        ("--index-url=https://example.invalid/simple", "package index"),
        ("--extra-index-url https://example.invalid/simple", "package index"),
        ("--find-links=/wheels", "package index"),
        ("--trusted-host example.invalid", "package index"),
        ("--pre", "option"),
        ("--no-binary :all:", "option"),
        ("pip install pandas", "not a requirement"),
        ("- pandas", "option"),
        ("pandas=2.0", "not a requirement"),
        ("Here are the packages you need:", "not a requirement"),
        ("tool.whl[extra]", "local path"),
        ("tool @ ./tool", "URL"),
        ("tool[extra] @ file:///etc/passwd ; python_version > '3'", "URL"),
        ("pandas ; python_version > '3' --find-links /wheels", "not a requirement"),
        ("pandas --index-url https://example.invalid/simple", "not a requirement"),
        ("pandas===1.0/../../x", "not a requirement"),
        ("pandas===latest", "not a requirement"),
        (f"pandas==1.{'9' * 19}", "not a requirement"),
        ("${HOME}", "not a requirement"),
        ("pandas==${VERSION}", "not a requirement"),
        ("pandas; sys_platform != '} Failed to fetch {'", "not a requirement"),
    ],
)
def test_policy_lines_are_refused_and_quoted(line, reason):
    failure = refused(f"pandas\n{line}\n".encode())
    assert reason in failure.sentence
    assert failure.sentence.startswith("requirements.txt, line 2,")
    assert repr(line) in failure.sentence
    assert [(e.source, e.line, e.excerpt) for e in failure.evidence] == [
        ("requirements.txt", 2, line)
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"pandas; " + b"(" * 20_000 + b"python_version > '3'" + b")" * 20_000,
        b"p" * 60_000,
        b"numpy\\\n--index-url https://example.invalid/simple\n",
        b"num\\\npy\n",
        "numpy\u2028--index-url=https://example.invalid/simple".encode(),
        b"numpy\x0b-r /etc/passwd",
    ],
)
def test_what_hides_in_a_line_is_refused(content):
    assert refused(content).failure_class is FailureClass.DEPENDENCY_REFUSED


def test_the_number_of_other_refused_lines_is_told():
    assert "(and 1 more line)" in refused(b"./a\nb\n./c\n").sentence


def test_a_continued_line_is_numbered_by_its_start():
    assert "line 2," in refused(b"pandas\n-r \\\n  other.txt\n").sentence


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"name: env\nchannels:\n  - defaults\ndependencies:\n  - python=3.9\n", "conda"),
        (b"dependencies:\n  - pandas\n", "conda"),
        (b"```text\npandas\n```\n", "markdown"),
        (b"# Requirements\n\n~~~\npandas\n~~~\n", "markdown"),
        (b"pan\0das\n", "not a text file"),
        (codecs.BOM_UTF16_LE + b"p\0a", "not valid UTF-16"),
        (b"x" * 100_000, "at most"),
        (b" " * 60_000 + b"\n" + b"\\\n" * 2000, None),
    ],
)
def test_other_files_under_that_name(content, text):
    if text is None:
        assert accepted(content).lines == ()
    else:
        assert text in refused(content).sentence


def test_pyproject_dependencies_are_read():
    result = accepted(
        b'[project]\nname = "x"\ndependencies = [\n  "pandas>=2",\n  "numpy",\n]\n',
        "pyproject.toml",
    )
    assert (result.source, result.lines) == ("pyproject.toml", ("pandas>=2", "numpy"))


def test_a_pyproject_of_tools_declares_nothing():
    assert accepted(b"[tool.ruff]\nline-length = 100\n", "pyproject.toml").lines == ()
    assert accepted(b"[tool.uv]\npackage = false\n", "pyproject.toml").lines == ()


def test_requirements_win_over_pyproject():
    result = declared(
        {"requirements.txt": b"numpy\n", "pyproject.toml": b'[project]\ndependencies=["pandas"]\n'}
    )
    assert isinstance(result, Declared)
    assert result.lines == ("numpy",)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'[project]\ndependencies = ["x @ git+https://example.invalid/x"]\n', "line 2, names a"),
        (b"[project\n", "not valid TOML"),
        (b'[project]\ndynamic = ["dependencies"]\n', "dynamic"),
        (b'[project]\ndependencies = "pandas"\n', "not a list"),
        (b"project = 3\n", "not a table"),
        (b"[project]\ndynamic = 5\n", "dynamic is not a list"),
        (b"[project]\ndynamic = true\n", "dynamic is not a list"),
        (b"[project]\ndynamic = [1, 'dependencies']\n", "declares its dependencies as dynamic"),
        (b'[project]\ndependencies = ["numpy\\n-r /etc/passwd"]\n', "is not a requirement"),
        (b"a = " + b"[" * 30_000, "not valid TOML"),
        (b"a = " + b"{a=" * 10_000, "not valid TOML"),
        (b"a = " + b"1" * 6000, "not valid TOML"),
        (b"a." * 30_000 + b"a = 1", "line 1, has more than 200 dots"),
        (
            b'[project]\ndependencies = ["x"]\n[tool.uv.sources]\n'
            b'x = { git = "https://a.invalid" }\n',
            "line 3, says where packages come from ([tool.uv] sources), which is refused: "
            "'[tool.uv.sources]'",
        ),
        (
            b'[tool.uv]\nindex-url = "https://a.invalid/simple"\n',
            "line 2, says where packages come from ([tool.uv] index-url)",
        ),
        (b'[[tool.uv.index]]\nurl = "https://a.invalid/simple"\n', "([tool.uv] index)"),
        (b'[tool.poetry.dependencies]\npython = "^3.11"\npandas = "*"\n', "poetry"),
    ],
)
def test_pyproject_that_is_refused(content, text):
    assert text in refused(content, "pyproject.toml").sentence


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        ("a_import_names", ("sklearn", "bs4", "cv2", "yaml", "PIL")),
        ("b_stdlib_listed", ("argparse", "pickle", "csv", "re", "scikit-learn")),
        ("c_second_missing", ("beautifulsoup4",)),
        ("d_no_such_version", ("scikit-learn==99.0.0",)),
        ("e_conflict", ("pandas==2.2.2", "numpy==1.19.5")),
        ("p_unpinned", ("scikit-learn", "pandas")),
        ("s_utf16", ("scikit-learn", "pandas")),
    ],
)
def test_case_19_accepted(case, lines):
    assert accepted((CASES / f"requirements_{case}.txt").read_bytes()).lines == lines


@pytest.mark.parametrize(
    ("case", "quoted"),
    [
        ("g_vcs", "git+https://example.invalid/someone/tool.git"),
        ("i_include_outside", "-r ../../../etc/passwd"),
        ("l_markdown", "```text"),
    ],
)
def test_case_19_refused(case, quoted):
    assert quoted in refused((CASES / f"requirements_{case}.txt").read_bytes()).sentence
