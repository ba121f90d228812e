"""The templates' Python files: clean, portable, and needing only what they declare."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from arkdev.flows.init_workspace import TEMPLATES, templates_root

SOURCES = sorted(
    path.relative_to(templates_root())
    for path in templates_root().rglob("*.py")
    if "typings" not in path.parts
)
OPTIONAL = {
    "rl_search_mcp_demo": {"arkitect", "volcenginesdkarkruntime", "cozeloop"},
}
"""Imported by files that say what to install when it is missing."""

READERS = {"open", "read_text", "write_text"}


def parse(path: Path) -> ast.Module:
    # the platform's function environment is Python 3.10
    text = (templates_root() / path).read_text(encoding="utf-8")
    return ast.parse(text, filename=str(path), feature_version=(3, 10))


def called_name(call: ast.Call) -> str:
    return getattr(call.func, "id", None) or getattr(call.func, "attr", "")


def imported_packages(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


def test_templates_are_lint_clean() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", str(templates_root())]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_text_files_are_opened_with_an_encoding(path: Path) -> None:
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    for call in calls:
        if called_name(call) in READERS:
            assert "encoding" in {keyword.arg for keyword in call.keywords}, f"{path}:{call.lineno}"


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_requirements_are_exactly_what_the_plugins_import(template: str) -> None:
    plugins = [path for path in SOURCES if path.parts[:2] == (template, "plugins")]
    imported = set().union(*(imported_packages(parse(path)) for path in plugins))
    imported -= {*sys.stdlib_module_names, "ark_sdk", "arkdev", "plugins"}
    imported -= OPTIONAL.get(template, set())
    text = (templates_root() / template / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {line.split("==")[0] for line in lines} == imported
    assert all(re.fullmatch(r"[a-z0-9-]+==[\d.]+", line) for line in lines)


def test_the_demos_can_go_to_the_platform_as_it_is() -> None:
    for path in SOURCES:
        on_platform = path.parts[0] != "minimal" and path.parts[1] != "tests"
        if on_platform:
            assert "arkdev" not in imported_packages(parse(path)), path


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_plugin_files_are_packaged(template: str) -> None:
    text = (templates_root() / template / "arkworkspace.toml").read_text(encoding="utf-8")
    include = tomllib.loads(text)["plugin"]["package"]["include"]
    assert include == ["*.py", *(["mcp_config.json"] if template == "rl_search_mcp_demo" else [])]
