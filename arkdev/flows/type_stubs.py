"""Type stubs of `ark_sdk`, so that editors know the names that arkdev serves at run time.

Pyright and Pylance look for stubs in `typings/` by themselves; mypy by `mypy_path = typings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_HEADER = '"""Made by `arkdev init`: the names of this module that arkdev serves."""\n'


def write_stubs(directory: Path, names: Mapping[str, Mapping[str, str]]) -> tuple[Path, ...]:
    """Write one `__init__.pyi` for each module of `names` and each package above it.

    `names` maps a module path to its exports, each as "home.module:attribute". Returns the files
    written, relative to `directory` and sorted. The module of a path `a.b.c` becomes
    `a/b/c/__init__.pyi`, so that it may have modules of its own.
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
    """The text of one stub: `from home import attribute as name`, which marks a re-export."""
    imports = []
    for name, address in exports.items():
        home, attribute = address.split(":")
        imports.append(f"from {home} import {attribute} as {name}\n")
    return "\n".join([_HEADER, "".join(sorted(imports))]) if imports else _HEADER
