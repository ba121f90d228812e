"""A workspace for each test, away from the user's own configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from arkdev.plugin import ark_sdk
from tests.integration.workspace import Command, Workspace


@pytest.fixture(autouse=True)
def apart_from_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No configuration, key or colour of the user's reaches a test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ARK_API_KEY", "ARK_BASE_URL", "ARKDEV_DEBUG", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    yield
    ark_sdk.uninstall()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A small workspace that passes."""
    return Workspace(tmp_path / "ws")


@pytest.fixture
def arkdev(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Command:
    """The command, typed in the workspace."""
    monkeypatch.chdir(workspace.root)
    return Command(capsysbinary)
