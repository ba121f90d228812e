"""One requirement as a file names it: by name and version, by URL or by path."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from arkdev.faas_emulator.requirement_files import requirement_sources as sources

_OF_A_LINE = re.compile(r"\s+(?=(--(hash|config-settings?|global-option)|-C)\b)")
"""Where the options of a single requirement begin."""


@dataclass(frozen=True)
class RequirementLine:
    """One line that a function installs by."""

    where: str
    """file:line"""
    text: str
    """The whole line, joined, without its comment."""
    name: str = ""
    """The distribution's normalised name; empty for an option and for a URL that tells none."""
    requirement: Requirement | None = None
    """None for an option and for a URL or path without a name before it."""
    is_constraint: bool = False
    is_pinned: bool = True
    """It gives the same version each time."""

    @property
    def wanted(self) -> str:
        """The line without its hashes and other options."""
        return _OF_A_LINE.split(self.text, maxsplit=1)[0].strip()

    @property
    def source(self) -> str:
        """The URL or path that it names; empty where it goes by name and version."""
        if self.requirement is not None:
            return self.requirement.url or ""
        return self.wanted.partition(" ;")[0].strip()


def parse_requirement(
    text: str, *, where: str = "", is_constraint: bool = False
) -> RequirementLine:
    """Read one line that is no option. Raises `packaging`'s `InvalidRequirement`."""
    line = RequirementLine(where, text, is_constraint=is_constraint)
    if sources.is_path(line.wanted) or sources.is_url(line.wanted):
        return replace(line, name=sources.name_of(line.source))
    requirement = Requirement(line.wanted)
    name = str(canonicalize_name(requirement.name))
    return replace(line, name=name, requirement=requirement)
