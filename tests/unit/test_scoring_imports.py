"""Imports that nothing declared provides, found in code of many shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.records.schema import MissingImport
from orchestrator.report.imports import import_lines
from orchestrator.sandbox import installed
from orchestrator.sandbox.installed import Importable
from orchestrator.scoring.imports import imports, missing_imports, own_modules

KNOWN = Importable(
    frozenset(sys.stdlib_module_names), frozenset({"pandas", "google.protobuf", "sklearn"})
)


def missing(code: str | bytes, **others: str) -> list[tuple[str, bool]]:
    files = {"train.py": code if isinstance(code, bytes) else code.encode()}
    files |= {name.replace("__", "/") + ".py": text.encode() for name, text in others.items()}
    return [(each.module, each.optional) for each in unprovided(files)]


def unprovided(files: Mapping[str, bytes]) -> list[MissingImport]:
    return missing_imports(imports(files), own_modules(files), KNOWN.provides)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os, sys, xml.dom\nfrom __future__ import annotations\n", []),
        ("import pandas as pd\nfrom sklearn.linear_model import LogisticRegression\n", []),
        ("import bs4", [("bs4", False)]),
        ("import lxml.html, lxml.etree", [("lxml.html", False)]),
        ("def main():\n    class A:\n        import numpy\n", [("numpy", False)]),
        ("async def f():\n    async with x:\n        from a.b import c\n", [("a.b", False)]),
        ("match x:\n    case 1:\n        import numpy\n", [("numpy", False)]),
        ("from . import near\nfrom .near import x\nfrom .. import up\n", []),
        ("import google.protobuf.message, google\n", []),
        ("import google.cloud.storage\n", [("google.cloud.storage", False)]),
        ("import importlib\nm = importlib.import_module('torch.nn')\n", [("torch.nn", False)]),
        ("__import__('torch')\n__import__(name)\nf().import_module('.x')\n", [("torch", False)]),
        ("try:\n    import x\nexcept ImportError:\n    x = None\n", [("x", True)]),
        ("try:\n    import x\nexcept (KeyError, ModuleNotFoundError):\n    pass\n", [("x", True)]),
        ("try:\n    import x\nexcept:\n    import y\n", [("x", True), ("y", True)]),
        ("try:\n    import x\nexcept KeyError:\n    pass\n", [("x", False)]),
        ("try:\n    pass\nexcept ImportError:\n    pass\nfinally:\n    import x\n", [("x", False)]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x\n", [("x", True)]),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import x", [("x", True)]),
        ("try:\n    import x\nexcept ImportError:\n    pass\nimport x\n", [("x", False)]),
        ("'import x'\n# import y\n", []),
        ("import x\nimport (\n", []),
        (b"import x\0\n", []),
        (b"\xef\xbb\xbfimport x\r\n", [("x", False)]),
        (b"# -*- coding: latin-1 -*-\nimport x # \xe9\n", [("x", False)]),
        ("x = '\\d'\nimport y\n", [("y", False)]),
        ("-" * 100_000 + "1", []),
        ("a" + "()" * 100_000, []),
        ("#" * (600 << 10) + "\nimport x", []),
        (f"import {'x' * 300}", []),
    ],
)
def test_what_is_missing_is_found(code, found):
    assert missing(code) == found


def test_what_the_submission_brings_is_not_missing():
    code = "import features, src.model, model, helpers.text\n"
    assert missing(code, features="", src__model="", helpers__text__clean="") == []


def test_other_files_of_the_submission_are_read_too():
    found = unprovided({"a/b.py": b"\nimport x", "notes.md": b"import y"})
    assert found == [MissingImport(module="x", package="x", path="a/b.py", line=2)]


def test_a_package_that_is_called_otherwise_is_named():
    (found,) = unprovided({"a.py": b"from bs4 import BeautifulSoup"})
    assert found.package == "beautifulsoup4"


def test_all_code_together_has_a_limit():
    files = {f"{n}.py": b"import x" + b"\n" * (500 << 10) for n in range(20)}
    assert len(list(imports(files))) == 8


def test_they_are_told_in_two_lines():
    files = {"a.py": b"import bs4, numpy\ntry:\n    import x\nexcept ImportError:\n    pass\n"}
    found = unprovided(files)
    assert import_lines(found * 2) == [
        "imported and provided by nothing declared: bs4 (package beautifulsoup4; a.py, line 1), "
        "numpy (a.py, line 1)",
        "the same, but the code goes on without: x (a.py, line 3)",
    ]
    assert import_lines([]) == []


def test_the_modules_of_an_environment_are_listed(tmp_path: Path):
    for path in (
        "six.py", "pkg/__init__.py", "pkg/deep/__init__.py", "google/protobuf/__init__.py",
        "google/one.py", "native.cpython-311-x86_64-linux-gnu.so" if sys.version_info[:2] ==
        (3, 11) else "native.abi3.so", "six-1.0.dist-info/RECORD", "__pycache__/six.pyc",
        "data/table.csv", "a-b.py", "notes.txt",
    ):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    argv = [sys.executable, "-I", "-S", "-c", installed.SCRIPT, str(tmp_path)]
    told = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    assert "json" in told["stdlib"]
    assert told["provided"] == ["google.one", "google.protobuf", "native", "pkg", "six"]
