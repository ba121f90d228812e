"""The JSON documents of `arkdev doctor`, as types (see `arkdev.cli.documents`)."""

from __future__ import annotations

from typing_extensions import TypedDict

from arkdev.backends.local.drift import DialogueDrift


class CheckRow(TypedDict):
    """One thing that `arkdev doctor` looked at."""

    name: str
    status: str
    """``ok``, ``note``, ``warning`` or ``error``."""
    detail: str
    fix: str
    """What to do; empty where there is nothing to do."""


class DoctorDocument(TypedDict):
    """``arkdev doctor --json``."""

    schema_version: int
    exit_code: int
    checks: list[CheckRow]


class TokenDriftDocument(TypedDict):
    """``arkdev doctor tokens --json``."""

    schema_version: int
    exit_code: int
    model: str
    rendering: str
    """Who writes: ``chat template``, or a renderer's name."""
    has_thinking_switch: bool
    stop_tokens: list[str]
    run: str | None
    """None: the built-in dialogues."""
    dialogues: list[DialogueDrift]
