"""requirements.txt as `arkdev freeze` writes it: the author's file with other versions in it.

Comments, empty lines, options and the order of lines stay. What nothing imports is left out. What
only other packages need stands in a section of its own at the end, which is written anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from arkdev.faas_emulator.freezing.freeze import KEEP, Author, Pin
from arkdev.faas_emulator.requirement_files.requirement_line import (
    RequirementLine,
    parse_requirement,
)
from arkdev.faas_emulator.requirement_files.requirement_lines import Line
from arkdev.faas_emulator.requirement_files.requirement_sources import OWN_NAMES, shown
from arkdev.faas_emulator.requirement_files.requirements import LineFinding, Requirements

HEADER = "# Exact versions of what the plugins import, written by `arkdev freeze`."
SECTION = "# What the packages above require, written by `arkdev freeze`:"

_INCLUDES = ("-r", "-c", "--requirement", "--constraint")
_EDITABLE = ("-e", "--editable")


@dataclass(frozen=True)
class FrozenText:
    """A file's new text, and the lines that it does not take over."""

    text: str
    r"""With ``\n`` as the end of lines."""
    left_out: tuple[LineFinding, ...]
    kept: frozenset[str]
    """file:line of the options and requirements that it takes over as they are."""


def read_author(lines: Sequence[Line], requirements: Requirements, *, shown_name: str) -> Author:
    """Return what a file says beside versions; `requirements` is the same file, judged."""
    extras: dict[str, frozenset[str]] = {}
    for line in requirements.lines:
        if line.requirement is not None:
            more = extras.get(line.name, frozenset()) | line.requirement.extras
            extras[line.name] = more
    found = (
        (line, _requirement(line.text, where=f"{shown_name}:{line.number}"))
        for line in _parts(lines)[0]
    )
    return Author(
        extras={name: more for name, more in extras.items() if more},
        commented=frozenset(_commented(lines)) - extras.keys(),
        kept=tuple(wanted for line, wanted in found if wanted and KEEP in line.comment),
        pinned=tuple(
            f"{line.name}{line.requirement.specifier}"
            for line in requirements.lines
            if line.requirement is not None and line.is_pinned and line.requirement.specifier
        ),
        options=tuple(line.text for line in requirements.lines if line.text.startswith("-")),
    )


def merged(lines: Sequence[Line], pins: Mapping[str, Pin], *, shown_name: str) -> FrozenText:
    """Put `pins` into the lines of a file; without any, a file of its own is made."""
    work = _Merge(dict(pins), shown_name)
    own, section = _parts(lines)
    for line in own:
        work.add(line)
    for line in section:
        work.check_needed(line)
    return FrozenText(work.text(is_new=not lines), tuple(work.left_out), frozenset(work.kept))


def _parts(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """(the author's part, our section); what the author added to our section is the author's."""
    end = next((i for i, line in enumerate(lines) if line.raw.strip() == SECTION), None)
    if end is None:
        return list(lines), []
    before, after = list(lines[:end]), lines[end + 1 :]
    if before and not before[-1].raw.strip():  # it sets our section off
        before.pop()
    own = [line for line in after if line.comment or line.text.startswith("-")]
    return before + own, [line for line in after if line.text and line not in own]


def _commented(lines: Sequence[Line]) -> Iterator[str]:
    """Names of requirements that are commented out, with a version or a URL."""
    for line in lines:
        if line.text or not line.comment:
            continue
        try:
            wanted = Requirement(line.comment.lstrip("# "))
        except InvalidRequirement:
            continue
        if wanted.specifier or wanted.url:
            yield str(canonicalize_name(wanted.name))


def _requirement(text: str, *, where: str) -> RequirementLine | None:
    """A line's requirement; None for an option, an empty line and what is none."""
    if not text or text.startswith("-"):
        return None
    try:
        return parse_requirement(text, where=where)
    except InvalidRequirement:
        return None


class _Merge:
    def __init__(self, pins: dict[str, Pin], shown_name: str) -> None:
        self.left_out: list[LineFinding] = []
        self.kept: list[str] = []
        self._pins = pins
        """Those that are not written yet."""
        self._all = dict(pins)
        self._shown_name = shown_name
        self._lines: list[str] = []
        self._end_of_requirements: int | None = None

    def add(self, line: Line) -> None:
        """Take over one line of the author's part, with another version, or not at all."""
        where = f"{self._shown_name}:{line.number}"
        if not line.text:
            self._lines.append(line.raw)
        elif line.text.startswith("-"):
            self._add_option(line, where=where)
        else:
            self._add_requirement(line, where=where)

    def check_needed(self, line: Line) -> None:
        """Tell of a line of our section that is needed no more."""
        where = f"{self._shown_name}:{line.number}"
        wanted = _requirement(line.text, where=where)
        if wanted is None or wanted.name not in self._all:
            self._leave_out(line, self._reason(wanted), where=where)

    def _add_option(self, line: Line, *, where: str) -> None:
        if line.text.startswith(_INCLUDES):
            self._leave_out(line, "what it includes stands in this file now", where=where)
        elif line.text.startswith(_EDITABLE):
            self._leave_out(line, "an editable install", where=where)
        else:
            self._take_over(line, where=where)

    def _take_over(self, line: Line, *, where: str) -> None:
        self._lines.append(line.raw)
        self.kept.append(where)

    def _add_requirement(self, line: Line, *, where: str) -> None:
        wanted = _requirement(line.text, where=where)
        name = wanted.name if wanted else ""
        pin = self._pins.pop(name, None)
        if pin is not None and wanted is not None:
            self._lines.append(_pinned(line, wanted, pin))
        elif KEEP in line.comment:
            self._take_over(line, where=where)
        else:
            self._leave_out(line, self._reason(wanted), where=where)
            return
        self._end_of_requirements = len(self._lines)

    def _reason(self, wanted: RequirementLine | None) -> str:
        if wanted is None:
            return "no requirement"
        if wanted.name in OWN_NAMES:
            return "the platform and arkdev provide it"
        if wanted.name in self._all:
            return "named twice"
        return "nothing imports it"

    def _leave_out(self, line: Line, reason: str, *, where: str) -> None:
        self.left_out.append(LineFinding(where, f"`{shown(line.text)}`: {reason}"))

    def text(self, *, is_new: bool) -> str:
        """The whole file."""
        lines = [HEADER] if is_new else self._lines
        imported = [_with_hashes(pin.text, pin) for pin in self._pins.values() if pin.imported_at]
        required = [
            _with_hashes(pin.text, pin) for pin in self._pins.values() if not pin.imported_at
        ]
        end = len(lines) if self._end_of_requirements is None else self._end_of_requirements
        lines = [*lines[:end], *imported, *lines[end:]]
        if required:
            lines += ["", SECTION, *required]
        return "".join(f"{line}\n" for line in lines)


def _pinned(line: Line, wanted: RequirementLine, pin: Pin) -> str:
    """The line with the pin's version, in the author's spelling, extras, marker and comment."""
    exact, asked = pin.text, wanted.requirement
    if asked is not None:
        extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
        exact = asked.name + extras + _version_of(pin.text)
        if asked.marker is not None and ";" not in exact:
            exact += f" ; {asked.marker}"
        if _is_same(asked, exact):
            return line.raw
    return _with_hashes(exact, pin) + (f"  {line.comment}" if line.comment else "")


def _with_hashes(text: str, pin: Pin) -> str:
    return " \\\n    ".join([text, *pin.hashes])


def _version_of(text: str) -> str:
    """``==1.2`` or `` @ URL``, with what follows."""
    return text[min(text.index(sign) for sign in ("==", " @ ") if sign in text) :]


def _is_same(wanted: Requirement, text: str) -> bool:
    try:
        return wanted == Requirement(text)
    except InvalidRequirement:
        return False
