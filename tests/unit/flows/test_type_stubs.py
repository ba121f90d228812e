"""The stubs of `ark_sdk` that `arkdev init` writes."""

from __future__ import annotations

import ast
from pathlib import Path

from arkdev.flows.type_stubs import write_stubs

NAMES = {
    "ark_sdk.types.pipeline_plugin": {"Runtime": "arkdev.plugin.runtime:Runtime"},
    "ark_sdk.types.pipeline_plugin.rollout": {
        "Trajectory": "arkdev.types:Trajectory",
        "OlderName": "arkdev.types:Trajectory",
        "CriticContext": "later:the critic",
    },
}


def test_every_module_and_every_package_above_it_gets_a_stub(tmp_path: Path) -> None:
    written = write_stubs(tmp_path / "typings", NAMES)
    assert [path.as_posix() for path in written] == [
        "ark_sdk/__init__.pyi",
        "ark_sdk/types/__init__.pyi",
        "ark_sdk/types/pipeline_plugin/__init__.pyi",
        "ark_sdk/types/pipeline_plugin/rollout/__init__.pyi",
    ]
    assert all((tmp_path / "typings" / path).is_file() for path in written)


def test_names_are_re_exported_from_their_homes(tmp_path: Path) -> None:
    write_stubs(tmp_path, NAMES)
    stub = tmp_path / "ark_sdk/types/pipeline_plugin/rollout/__init__.pyi"
    imports = [
        (node.module, alias.name, alias.asname)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    # without the "as", a type checker takes an import in a stub for a private one
    assert imports == [
        ("typing", "Any", None),
        ("arkdev.types", "Trajectory", "OlderName"),
        ("arkdev.types", "Trajectory", "Trajectory"),
    ]


def test_a_name_that_comes_later_can_be_called_and_used_as_a_type(tmp_path: Path) -> None:
    write_stubs(tmp_path, NAMES)
    stub = tmp_path / "ark_sdk/types/pipeline_plugin/rollout/__init__.pyi"
    classes = [
        node
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert [node.name for node in classes] == ["CriticContext"]
    assert "the critic" in (ast.get_docstring(classes[0]) or "")


def test_a_package_without_names_of_its_own_is_empty(tmp_path: Path) -> None:
    write_stubs(tmp_path, NAMES)
    tree = ast.parse((tmp_path / "ark_sdk/__init__.pyi").read_text(encoding="utf-8"))
    assert [type(node) for node in tree.body] == [ast.Expr]
