"""What the plugins import, read from their source: nothing of it is run (SURFACE FT-01).

Seen are imports at the top of a file and inside functions, and `import_module("name")`. Imports
that only type checkers see and those of ``if __name__ == "__main__"`` are not needed in a function.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arkdev.errors import PluginLoadError
from arkdev.job.paths import shown_path

_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})
_BY_NAME = frozenset({"import_module", "__import__", "importlib.import_module"})
_PLATFORM = ("sys.version_info", "sys.platform", "os.name", "platform.system")


@dataclass(frozen=True)
class ImportedModule:
    """One import of something that is not the workspace's own."""

    module: str
    """Dotted; with the imported name at its end, which may be a module or not."""
    where: str
    """file:line"""
    source: str
    """The module without the imported name."""
    attempt: str | None = None
    """The place of the `try` that an ImportError of it is caught by, or of the `if` that asks for
    the platform; None: it is always needed."""

    @property
    def top(self) -> str:
        """The name before the first dot."""
        return self.module.partition(".")[0]


@dataclass(frozen=True)
class PluginImports:
    """What a set of files imports, with the files of the workspace that they import in turn."""

    modules: tuple[ImportedModule, ...]
    unseen: tuple[str, ...]
    """file:line of imports whose name is only known when they are run."""
    files: tuple[Path, ...]
    """All files that were read."""


def find_imports(root: Path, files: Iterable[Path]) -> PluginImports:
    """Read `files` of the workspace at `root`, and what they import of it, for their imports.

    Of the standard library nothing is returned. Raises `PluginLoadError` with file:line for a file
    that is no Python.
    """
    todo, seen = [path.absolute() for path in files], dict[Path, None]()
    modules: list[ImportedModule] = []
    unseen: list[str] = []
    while todo:
        path = todo.pop(0)
        if path in seen:
            continue
        seen[path] = None
        found = _Imports(path, root)
        found.visit(_parsed(path))
        unseen += found.unseen
        for imported in found.modules:
            own = list(own_files(root, imported.module))
            todo += own
            if not own and imported.top not in sys.stdlib_module_names:
                modules.append(imported)
    return PluginImports(tuple(modules), tuple(unseen), tuple(seen))


def own_files(root: Path, module: str) -> Iterator[Path]:
    """Yield the files of the workspace that are run when `module` is imported, if it is its own.

    As for `arkdev.plugin.loading`: a name of the standard library is never the workspace's.
    """
    if module.partition(".")[0] in sys.stdlib_module_names:
        return
    folder = root
    for part in module.split("."):
        file = folder / f"{part}.py"
        folder = folder / part
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"
        elif file.is_file():
            yield file
            return
        elif not folder.is_dir():
            return


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise PluginLoadError(
            f"no valid Python: {error.msg}", where=f"{shown_path(path)}:{error.lineno or 1}"
        ) from error
    except (ValueError, OSError) as error:
        raise PluginLoadError(f"cannot be read: {error}", where=shown_path(path)) from error


@dataclass
class _Imports(ast.NodeVisitor):
    path: Path
    root: Path
    modules: list[ImportedModule] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    _attempts: list[str] = field(default_factory=list)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node, source=alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self.path.relative_to(self.root).parent.parts
            parts = parts[: len(parts) + 1 - node.level]
            base = ".".join([*parts, *([base] if base else [])])
        for alias in node.names:
            names = [base] if alias.name == "*" else [base, alias.name]
            self._add(".".join(name for name in names if name), node, source=base)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in _BY_NAME and node.args:
            name = getattr(node.args[0], "value", None)
            if not isinstance(name, str):
                self.unseen.append(self._place(node))
            elif name and not name.startswith("."):
                self._add(name, node, source=name)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        if test in ("TYPE_CHECKING", "typing.TYPE_CHECKING") or _is_main(node.test):
            self._visit_all(node.orelse)
        elif any(word in test for word in _PLATFORM):
            self._visit_all(node.body, attempt=f"{self._place(node)} if")
            self._visit_all(node.orelse, attempt=f"{self._place(node)} else")
        else:
            self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        catching = [handler for handler in node.handlers if _catches(handler.type)]
        if not catching:
            self.generic_visit(node)
            return
        self._visit_all(node.body, attempt=self._place(node))
        for handler in node.handlers:
            self._visit_all(handler.body, attempt=self._place(handler))
        self._visit_all([*node.orelse, *node.finalbody])

    def visit_With(self, node: ast.With) -> None:
        calls = [item.context_expr for item in node.items]
        is_caught = any(
            isinstance(call, ast.Call)
            and ast.unparse(call.func) in ("suppress", "contextlib.suppress")
            and any(_catches(argument) for argument in call.args)
            for call in calls
        )
        self._visit_all(node.body, attempt=self._place(node) if is_caught else None)

    def _visit_all(self, nodes: Iterable[ast.AST], *, attempt: str | None = None) -> None:
        if attempt:
            self._attempts.append(attempt)
        for node in nodes:
            self.visit(node)
        if attempt:
            self._attempts.pop()

    def _add(self, module: str, node: ast.AST, *, source: str) -> None:
        attempt = self._attempts[-1] if self._attempts else None
        self.modules.append(ImportedModule(module, self._place(node), source, attempt))

    def _place(self, node: ast.AST) -> str:
        return f"{shown_path(self.path)}:{getattr(node, 'lineno', 1)}"


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and ast.unparse(test.left) == "__name__"


def _catches(error: ast.expr | None) -> bool:
    names = error.elts if isinstance(error, ast.Tuple) else [error] if error else []
    return any(ast.unparse(name) in _IMPORT_ERRORS for name in names)
