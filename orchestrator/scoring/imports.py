"""Modules that a submission's code imports and nothing declared provides, found without running it.

Pure. A crash shows the first module that is missing; this shows all of them at once.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.records.schema import MissingImport
from orchestrator.scoring.failure_rules import package_of

MAX_FILE_BYTES = 512 << 10
MAX_BYTES = 4 << 20
"""Of code, all files together: what parsing takes is many times that."""
MAX_FINDINGS = 50
MAX_NAME = 200
_CATCHES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_BY_NAME = frozenset({"import_module", "__import__"})


@dataclass(frozen=True)
class Import:
    """One import as written. `guarded`: the code says what to do where the module is missing."""

    module: str
    path: str
    line: int
    guarded: bool


def missing_imports(
    imported: Iterable[Import], own: Collection[str], provides: Callable[[str], bool]
) -> list[MissingImport]:
    """What is imported and neither the submission's own (`own_modules`) nor anything that
    `provides` knows, each module once.

    Told by its first unguarded import, else its first; in order of file and line.
    """
    found: dict[str, Import] = {}
    for each in imported:
        top = each.module.partition(".")[0]
        if top in own or len(each.module) > MAX_NAME or provides(each.module):
            continue
        # One package is missing once, however many of its submodules are imported.
        if top not in found or (found[top].guarded and not each.guarded):
            found[top] = each
    missing = sorted(found.values(), key=lambda each: (each.path, each.line))[:MAX_FINDINGS]
    return [
        MissingImport(
            module=each.module,
            package=package_of(each.module.partition(".")[0]),
            path=each.path,
            line=each.line,
            optional=each.guarded,
        )
        for each in missing
    ]


def own_modules(paths: Collection[str]) -> frozenset[str]:
    """Names under which a submission's own files can be imported, from whichever folder."""
    found: set[str] = set()
    for path in paths:
        if path.endswith(".py"):
            found.update(path.removesuffix(".py").split("/"))
    return frozenset(found)


def imports(files: Mapping[str, bytes]) -> Iterator[Import]:
    """Absolute imports of all `.py` files, in functions too; relative ones are the file's own.

    Files that do not parse, or are too large, are left out.
    """
    left = MAX_BYTES
    for path in sorted(files):
        content = files[path]
        if not path.endswith(".py") or len(content) > min(left, MAX_FILE_BYTES):
            continue
        left -= len(content)
        tree = parsed(content)
        if tree is not None:
            for module, line, guarded in _imports(tree):
                yield Import(module, path, line, guarded)


def parsed(content: bytes) -> ast.Module | None:
    """The syntax tree of a file of code, None where it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """(module, line, guarded). Without recursion: code may be nested as deep as it likes."""
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, guarded = todo.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, guarded
        elif isinstance(node, ast.ImportFrom):
            if not node.level and node.module:
                yield node.module, node.lineno, guarded
        elif isinstance(node, ast.Call) and (module := _called(node)) is not None:
            yield module, node.lineno, guarded
        for child in reversed(list(ast.iter_child_nodes(node))):
            todo.append((child, guarded or _guards(node, child)))


def _guards(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` of `node` may fail to import, or is never run."""
    if isinstance(node, ast.Try | ast.TryStar):
        return any(_catches(handler) for handler in node.handlers) and child not in node.finalbody
    if isinstance(node, ast.If):
        return _named(node.test) == "TYPE_CHECKING" and child in node.body
    if isinstance(node, ast.With | ast.AsyncWith):
        calls = [item.context_expr for item in node.items]
        return any(isinstance(c, ast.Call) and _named(c.func) == "suppress" for c in calls)
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(_named(kind) in _CATCHES for kind in kinds)


def _called(node: ast.Call) -> str | None:
    """The module of `import_module("x")` and `__import__("x")`."""
    if _named(node.func) not in _BY_NAME or not node.args:
        return None
    first = node.args[0]
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return None
    parts = first.value.split(".")
    return first.value if all(part.isidentifier() for part in parts) else None


def _named(node: ast.expr) -> str | None:
    """The last name of `a` or `x.a`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
