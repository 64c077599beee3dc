"""Whether a submission's code lists a column among those it works with. Pure: nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.scoring.imports import MAX_BYTES, MAX_FILE_BYTES, parsed

_LEAVES_OUT = re.compile(
    r"drop|remov|pop|discard|exclu|ignor|skip|omit|leak|unused|forbid|banned|block|without",
    re.IGNORECASE,
)
"""In the name of a call, a variable or an argument: what is in it is left out."""
_NAMES_ONLY = re.compile(r"[\w\s,;|]+")


def listed_in(files: Mapping[str, bytes], entries: Sequence[str], column: str) -> str | None:
    """`path, line n` of the first place where the programs' code names the column to work with it.

    `entries` are the paths of the programs; what they import of the submission's own files counts
    too, other files don't. Comments, texts for people, and places that leave the column out
    (`drop("x")`, `EXCLUDED = ["x"]`, `!= "x"`, `- {"x"}`) don't count. In a file that does not
    parse any mention does.
    """
    for path in _reached(files, entries):
        line = _line(files[path], column)
        if line is not None:
            return f"{path}, line {line}"
    return None


def mentioned_in(files: Mapping[str, bytes], entries: Sequence[str], column: str) -> str | None:
    """`path, line n` of the first mention in the programs, whatever is meant by it."""
    for path in entries:
        line = _mention(files.get(path, b""), column)
        if line is not None:
            return f"{path}, line {line}"
    return None


def _mention(content: bytes, column: str) -> int | None:
    lines = content.split(b"\n")
    return next((n for n, line in enumerate(lines, 1) if column.encode() in line), None)


def _reached(files: Mapping[str, bytes], entries: Sequence[str]) -> list[str]:
    todo = [path for path in entries if path in files and path.endswith(".py")]
    found: dict[str, None] = {}
    left = MAX_BYTES
    while todo:
        path = todo.pop(0)
        if path in found or len(files[path]) > min(left, MAX_FILE_BYTES):
            continue
        left -= len(files[path])
        found[path] = None
        todo += [own for own in _imported(files[path], path) if own in files]
    return list(found)


def _imported(content: bytes, path: str) -> Iterator[str]:
    """Paths that its imports could mean: beside it, or from the top."""
    tree = parsed(content)
    folder = path.rpartition("/")[0]
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            top = node.module or ""
            modules = [top, *(f"{top}.{alias.name}".strip(".") for alias in node.names)]
        else:
            continue
        for module in filter(None, modules):
            parts = module.split(".")
            for base in {folder, ""}:
                for length in range(1, len(parts) + 1):
                    place = "/".join(filter(None, [base, *parts[:length]]))
                    yield f"{place}.py"
                    yield f"{place}/__init__.py"


def _line(content: bytes, column: str) -> int | None:
    tree = parsed(content)
    if tree is None:
        return _mention(content, column)
    return min((node.lineno for node in _named(tree, column)), default=None)


def _named(tree: ast.Module, column: str) -> Iterator[ast.expr]:
    """Without recursion: code may be nested as deep as it likes."""
    word = re.compile(rf"\b{re.escape(column)}\b")
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Attribute) and node.attr == column:
            yield node
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text == column or (_NAMES_ONLY.fullmatch(text) and word.search(text)):
                yield node
        todo += [child for child in ast.iter_child_nodes(node) if not _apart(node, child)]


def _apart(node: ast.AST, child: ast.AST) -> bool:
    """Whether what `child` of `node` names is left out, compared or told, not worked with."""
    if isinstance(node, ast.Call):
        called = _name(node.func)
        return child is not node.func and (called == "print" or bool(_LEAVES_OUT.search(called)))
    if isinstance(node, ast.Assign):
        return child is node.value and any(_LEAVES_OUT.search(_name(t)) for t in node.targets)
    if isinstance(node, ast.AnnAssign):
        return child is node.value and bool(_LEAVES_OUT.search(_name(node.target)))
    if isinstance(node, ast.keyword):
        return bool(_LEAVES_OUT.search(node.arg or ""))
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Sub) and child is node.right
    if isinstance(node, ast.Expr):
        return isinstance(child, ast.Constant)
    return isinstance(node, ast.Compare | ast.Delete)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
