"""Hashes for frozen requirements, where the author's file has hashes: pip wants all or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from arkdev.faas_emulator.freezing.freeze import Pin
from arkdev.faas_emulator.requirement_files.platforms import Target
from arkdev.faas_emulator.requirement_files.requirement_line import (
    RequirementLine,
    parse_requirement,
)
from arkdev.faas_emulator.requirement_files.requirement_lines import logical_lines
from arkdev.faas_emulator.requirement_files.requirements import Requirements
from arkdev.faas_emulator.requirement_files.uv_program import ask_uv


def with_hashes(
    pins: Mapping[str, Pin], requirements: Requirements, *, interpreter: Path, target: Target
) -> dict[str, Pin]:
    """Return `pins` with hashes: those of the file, and the package index's for other versions.

    The index is read only when the file lacks a hash. Raises as `ask_uv` does.
    """
    known = {line.name: line for line in requirements.lines if _hashes(line)}
    hashes = {
        name: _hashes(known[name])
        for name, pin in pins.items()
        if name in known and _is_same(known[name], pin)
    }
    lacking = {name: pin for name, pin in pins.items() if name not in hashes}
    options = [line.text for line in requirements.lines if line.text.startswith("-")]
    if lacking:
        said = ask_uv(
            *("pip", "compile", "-", "--no-deps", "--generate-hashes"),
            *("--no-header", "--no-annotate", "--python", str(interpreter)),
            *("--python-platform", target.uv_platform, "--python-version", target.python),
            given="".join(f"{line}\n" for line in [*options, *(p.text for p in lacking.values())]),
        )
        lines = [line.text for line in logical_lines(said) if line.text[:1] not in ("-", "")]
        hashes |= {line.name: _hashes(line) for line in map(parse_requirement, lines)}
    return {name: replace(pin, hashes=hashes.get(name, ())) for name, pin in pins.items()}


def _hashes(line: RequirementLine) -> tuple[str, ...]:
    return tuple(word for word in line.text.split() if word.startswith("--hash"))


def _is_same(line: RequirementLine, pin: Pin) -> bool:
    try:
        return line.requirement is not None and (
            line.requirement.specifier == Requirement(pin.text).specifier
        )
    except InvalidRequirement:
        return False
