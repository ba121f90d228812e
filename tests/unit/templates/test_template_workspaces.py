"""A workspace as its user has it: its own tests pass in it."""

from __future__ import annotations

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
