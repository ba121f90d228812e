"""Variables that a function reads, that this machine has, and that nobody declared.

In process such a variable is simply there; in a function it is missing, here as in the cloud
(field case 7.4). What the code reads is found in its syntax; of the environment only names are
looked at, never values.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from arkdev.faas_emulator.functions import FunctionSpec

_ALWAYS_THERE = frozenset({"HOME", "HOSTNAME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "PWD"})
_READING_METHODS = ("get", "pop", "setdefault")


class PackageFiles(Protocol):
    """Of the plugins' package: its files, each as its path in the package and its place here."""

    @property
    def files(self) -> Sequence[tuple[str, Path]]:
        """Relative path and absolute path of each file."""
        ...


@dataclass(frozen=True)
class UndeclaredVariable:
    """A variable that is read, is set on this machine, and that functions do not have."""

    name: str
    place: str
    """file:line in the package, of the first that reads it."""
    functions: tuple[str, ...]
    """Names of those that do not declare it."""

    def __str__(self) -> str:
        return (
            f"{self.name} (read at {self.place}) is set on this machine, but not declared for "
            f"{', '.join(self.functions)}, which therefore does not have it"
        )


def undeclared_variables(
    package: PackageFiles,
    functions: Sequence[FunctionSpec],
    *,
    environment: Collection[str] | None = None,
) -> tuple[UndeclaredVariable, ...]:
    """Return what the package reads and the functions lack, sorted by name.

    Which function a line of the package serves is not known: every function that does not declare
    a variable is named. `environment` has the names that are set; None: this process's.
    """
    present = set(os.environ if environment is None else environment) - _ALWAYS_THERE
    first: dict[str, str] = {}
    for path, source in package.files:
        if path.endswith(".py"):
            for name, line in _variables_read(source):
                if name in present:
                    first.setdefault(name, f"{path}:{line}")
    return tuple(
        UndeclaredVariable(name, place, lacking)
        for name, place in sorted(first.items())
        if (lacking := tuple(each.name for each in functions if name not in each.envs))
    )


def undeclared_hint(variables: Sequence[UndeclaredVariable]) -> str:
    """Return what to add to the error of a function that failed; empty without variables."""
    if not variables:
        return ""
    told = "; ".join(map(str, variables))
    return (
        f"{told}. Declare what the function needs under `envs` of the plugin in job.yaml or job.py"
    )


def _variables_read(source: Path) -> Iterator[tuple[str, int]]:
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # its import says what is wrong with it
    reader = _Reader()
    reader.visit(tree)
    yield from reader.found


class _Reader(ast.NodeVisitor):
    """Finds the names that are read from `os.environ`, under whatever names `os` was imported."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self._os: set[str] = set()
        self._environ: set[str] = set()
        self._getenv: set[str] = set()
        self._texts: dict[str, str] = {}
        """Names that stand for a text."""

    def visit_Import(self, node: ast.Import) -> None:
        self._os |= {alias.asname or "os" for alias in node.names if alias.name == "os"}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module == "os" and not node.level:
            for alias in node.names:
                if alias.name == "environ":
                    self._environ.add(alias.asname or alias.name)
                elif alias.name == "getenv":
                    self._getenv.add(alias.asname or alias.name)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            self._texts |= dict.fromkeys(names, node.value.value)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load) and self._is_environ(node.value):
            self._note(node.slice, node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if node.args and self._reads(node.func):
            self._note(node.args[0], node.lineno)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if isinstance(node.ops[0], ast.In | ast.NotIn) and self._is_environ(node.comparators[0]):
            self._note(node.left, node.lineno)
        self.generic_visit(node)

    def _reads(self, called: ast.expr) -> bool:
        if isinstance(called, ast.Name):
            return called.id in self._getenv
        if not isinstance(called, ast.Attribute):
            return False
        if called.attr == "getenv":
            return self._is_os(called.value)
        return called.attr in _READING_METHODS and self._is_environ(called.value)

    def _is_environ(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._environ
        return (
            isinstance(node, ast.Attribute) and node.attr == "environ" and self._is_os(node.value)
        )

    def _is_os(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._os

    def _note(self, key: ast.expr, line: int) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self.found.append((key.value, line))
        elif isinstance(key, ast.Name) and key.id in self._texts:
            self.found.append((self._texts[key.id], line))
