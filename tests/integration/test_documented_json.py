"""docs/commands.md names every key of what `--json` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.workspace import Command

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


@pytest.mark.parametrize(
    "command",
    [
        "test plugin --json",
        "test plugin --sample 0 --json",
        "runs --json",
        "show --json",
        "show latest 0.0 --json",
        "show --failed --json",
        "endpoint list --json",
        "endpoint check scripted --json",
        "init new --template minimal --json",
        "init --list --json",
    ],
)
def test_every_key_of_a_json_document_is_named(arkdev: Command, command: str) -> None:
    arkdev("test", "plugin")
    document = arkdev(*command.split()).document
    lists = [value[0] for value in document.values() if isinstance(value, list) and value]
    rows = lists if command.split()[0] in ("runs", "endpoint", "init") else []
    keys = {*document, *(key for row in rows if isinstance(row, dict) for key in row)}
    assert keys - set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8"))) == set()
