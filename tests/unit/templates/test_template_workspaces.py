"""The type stubs of a workspace; its own tests run in tests/integration/test_pytest_plugin.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from arkdev.flows.init_workspace import TEMPLATES, create_workspace


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
