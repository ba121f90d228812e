"""Calls back when a library is imported, so that it can be patched wherever a plugin imports it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Collection, Sequence
from types import ModuleType


class ImportWatch:
    """Calls `on_import` with a module of `libraries`, after the module's own code ran.

    Modules that are imported already are passed on by `start`.
    """

    def __init__(
        self, libraries: Collection[str], *, on_import: Callable[[ModuleType], None]
    ) -> None:
        self._libraries = libraries
        self._on_import = on_import
        self._looked_for: set[str] = set()

    def start(self) -> None:
        """Watch from now on."""
        for library in self._libraries:
            if library in sys.modules:
                self._on_import(sys.modules[library])
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Watch no more."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the library's own spec, with a loader that calls back."""
        if fullname not in self._libraries or fullname in self._looked_for:
            return None
        self._looked_for.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looked_for.discard(fullname)
        if spec is None or spec.loader is None:
            return spec
        run: Callable[[ModuleType], None] = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self._on_import(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
