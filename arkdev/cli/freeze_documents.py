"""The JSON document of `arkdev freeze`, as types."""

from __future__ import annotations

from typing_extensions import TypedDict


class FindingRow(TypedDict):
    """One thing that is wrong with a file, or may be."""

    where: str
    """file:line; "" where there is none."""
    message: str
    fix: str


class PinRow(TypedDict):
    """One package that a function installs."""

    name: str
    """Normalised."""
    version: str
    line: str
    """``name==1.2``, or ``name @ URL``."""
    imported_at: list[str]
    """file:line; empty for what only others require."""
    required_by: list[str]


class FreezeDocument(TypedDict):
    """``arkdev freeze --json``."""

    schema_version: int
    exit_code: int
    file: str
    is_changed: bool
    """The file is not what `arkdev freeze` writes."""
    is_written: bool
    python: str
    """The interpreter whose packages counted."""
    platform: str
    python_version: str
    """Of the function."""
    pins: list[PinRow]
    left_out: list[FindingRow]
    """Lines of the file that are not taken over."""
    unused: list[str]
    """Packages of the environment that the plugins do not need."""
    diff: str
    problems: list[FindingRow]
    """Lines of the file that a function cannot install."""
    warnings: list[FindingRow]
    notes: list[FindingRow]
