"""A workspace for each test, away from the user's own configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workspace import Command, Workspace, away_from_the_user


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with away_from_the_user(tmp_path / "config", monkeypatch):
        yield


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
