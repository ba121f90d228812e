"""Type stubs of `ark_sdk`, so that editors know the names that arkdev serves at run time.

Pyright and Pylance look for stubs in `typings/` by themselves; mypy by `mypy_path = typings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from arkdev.plugin.ark_sdk import LATER

_HEADER = '"""Made by `arkdev init`: the names of this module that arkdev serves."""\n'

# a class, because it can be both called and used as a type
_LATER_CLASS = '''class {name}:
    """Comes later: {what}."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
'''


def write_stubs(directory: Path, names: Mapping[str, Mapping[str, str]]) -> tuple[Path, ...]:
    """Write one `__init__.pyi` for each module of `names` and each package above it.

    `names` maps a module path to its exports, each as "home.module:attribute" or "later:what it
    waits for". Returns the files written, relative to `directory` and sorted. The module of a path
    `a.b.c` becomes `a/b/c/__init__.pyi`, so that it may have modules of its own.
    """
    modules = {parent for module in names for parent in _with_parents(module)}
    written = []
    for module in sorted(modules):
        path = Path(*module.split("."), "__init__.pyi")
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(_stub(names.get(module, {})), encoding="utf-8")
        written.append(path)
    return tuple(written)


def _with_parents(module: str) -> list[str]:
    """`a.b.c` gives `a`, `a.b`, `a.b.c`."""
    parts = module.split(".")
    return [".".join(parts[: length + 1]) for length in range(len(parts))]


def _stub(exports: Mapping[str, str]) -> str:
    """The text of one stub: imports, then classes that stand for names that come later."""
    imports, classes = [], []
    for name, address in sorted(exports.items()):
        home, _, attribute = address.partition(":")
        if home == LATER:
            classes.append(_LATER_CLASS.format(name=name, what=attribute))
        else:
            # "as" marks a re-export; without it a type checker takes the name for a private one
            imports.append(f"from {home} import {attribute} as {name}\n")
    if classes:
        imports.insert(0, "from typing import Any\n")
    return "\n".join(filter(None, [_HEADER, "".join(imports), *classes]))
