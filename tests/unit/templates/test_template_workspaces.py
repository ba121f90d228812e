"""A workspace as its user has it: its own tests pass in it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import arkdev
from arkdev.flows.init_workspace import TEMPLATES, create_workspace


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_the_workspaces_own_tests_pass(tmp_path: Path, template: str) -> None:
    create_workspace(tmp_path / "工作区", template=template)
    # plain pytest: a user need not have the plugins that arkdev's own tests use
    command = [sys.executable, "-m", "pytest", "-p", "no:asyncio", "-p", "no:cacheprovider", "-q"]
    result = subprocess.run(
        command,
        cwd=tmp_path / "工作区",
        env={**os.environ, "PYTHONPATH": str(Path(arkdev.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_every_ark_sdk_name_of_a_workspace_is_in_its_stubs(tmp_path: Path, template: str) -> None:
    create_workspace(tmp_path, template=template)
    missing = []
    for source in tmp_path.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ark_sdk."):
                stub = tmp_path.joinpath("typings", *node.module.split("."), "__init__.pyi")
                text = stub.read_text(encoding="utf-8")
                known = [(f" as {a.name}\n", f"class {a.name}:") for a in node.names]
                missing += [forms[1] for forms in known if not any(f in text for f in forms)]
    assert missing == []
