"""Which modules an environment provides, as JSON on stdout.

Runs as `python3 -I -S -c TEXT SITE_PACKAGES`: nothing of the environment runs. Prints `{"stdlib":
[...], "provided": [...]}`. A package is told by its top name, one without `__init__` (a namespace,
which several distributions may fill) by each package or module in it.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
from collections.abc import Iterator

SUFFIXES = tuple(importlib.machinery.all_suffixes())
DEPTH = 4
"""Of namespaces in one another."""


def module_of(name: str) -> str | None:
    suffix = next((s for s in SUFFIXES if name.endswith(s)), None)
    return name[: -len(suffix)].partition(".")[0] if suffix else None


def modules(folder: str, prefix: str = "", depth: int = 0) -> Iterator[str]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if not entry.is_dir():
            module = module_of(entry.name)
            if module and module.isidentifier():
                yield prefix + module
        elif entry.name.isidentifier() and entry.name != "__pycache__":
            with os.scandir(entry.path) as below:
                names = {module_of(file.name) for file in below}
            if "__init__" in names:
                yield prefix + entry.name
            elif depth < DEPTH:
                yield from modules(entry.path, f"{prefix}{entry.name}.", depth + 1)


if __name__ == "__main__":
    stdlib = sorted(sys.stdlib_module_names)
    json.dump({"stdlib": stdlib, "provided": sorted(set(modules(sys.argv[1])))}, sys.stdout)
