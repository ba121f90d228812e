"""What plugins import, read from their source."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from arkdev.errors import PluginLoadError
from arkdev.faas_emulator.freezing.plugin_imports import PluginImports, find_imports


def found(root: Path, text: str, **others: str) -> PluginImports:
    for name, source in {"plugins/main.py": text, **others}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source), encoding="utf-8")
    return find_imports(root, [root / "plugins" / "main.py"])


def tops(imports: PluginImports) -> dict[str, bool]:
    """Top-level module → whether it is always needed."""
    return {imported.top: imported.attempt is None for imported in imports.modules}


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    imports = found(
        tmp_path,
        """
        import json, a1, b1.c as d
        from a2.sub import name
        from importlib import import_module
        def rollout():
            import a3
            a4 = import_module("a4.sub")
            class Inner:
                from a5 import *
            async def f():
                __import__("a6")
        """,
    )
    names = ("a1", "b1", "a2", "a3", "a4", "a5", "a6")
    assert tops(imports) == dict.fromkeys(names, True)
    lines = {imported.module: imported.where.rpartition(":")[2] for imported in imports.modules}
    assert (lines["a2.sub.name"], lines["a4.sub"]) == ("3", "7")


def test_imports_that_may_fail_are_told_from_those_that_may_not(tmp_path: Path) -> None:
    imports = found(
        tmp_path,
        """
        import contextlib, sys
        try:
            import maybe1
            from maybe2 import x
        except (ModuleNotFoundError, KeyError):
            import fallback
        else:
            import after
        with contextlib.suppress(ImportError):
            import maybe3
        if sys.version_info >= (3, 11):
            import maybe4
        try:
            import needed
        except Exception:
            raise
        """,
    )
    needed = {top for top, is_needed in tops(imports).items() if is_needed}
    assert needed == {"after", "needed"}
    attempts = {imported.top: imported.attempt for imported in imports.modules}
    assert attempts["maybe1"] == attempts["maybe2"] != attempts["fallback"]


def test_what_no_function_runs_is_passed_over(tmp_path: Path) -> None:
    imports = found(
        tmp_path,
        """
        import typing
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import only_types
        else:
            import at_run_time
        if __name__ == "__main__":
            import only_here
        """,
    )
    assert tops(imports) == {"at_run_time": True}


def test_modules_of_the_workspace_are_followed(tmp_path: Path) -> None:
    imports = found(
        tmp_path,
        "from . import beside\nfrom .deep.er import x\nimport shared\nimport datasets\n",
        **{
            "plugins/__init__.py": "import of_package\n",
            "plugins/beside.py": "import of_beside\nfrom plugins import main\n",
            "plugins/deep/er.py": "from ..beside import y\nimport of_deeper\n",
            "shared/__init__.py": "from shared.inner import z\n",
            "shared/inner.py": "import of_inner\n",
            "datasets/train.jsonl": "{}",
            "json.py": "import never\n",
        },
    )
    expected = {"of_package", "of_beside", "of_deeper", "of_inner", "datasets"}
    assert tops(imports).keys() == expected
    assert len(imports.files) == 6


def test_an_import_by_a_computed_name_is_told(tmp_path: Path) -> None:
    imports = found(tmp_path, "import importlib\n\nimportlib.import_module('a' + b)\n")
    assert [place.rpartition("plugins/")[2] for place in imports.unseen] == ["main.py:3"]


def test_a_file_that_is_no_python_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PluginLoadError) as told:
        found(tmp_path, "import a\n\ndef (:\n")
    assert told.value.where.endswith("plugins/main.py:3")
