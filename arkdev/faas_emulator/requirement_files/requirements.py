"""What a function installs: requirements.txt, read and judged before anything is built.

Everything that a function could not install is told at once with file:line (field cases 7.1, 7.2,
7.3; SURFACE FT-01). Lines for `ark_sdk` and arkdev are taken out: the function wheel stands for
both, and what a registry calls `ark-sdk` is an unrelated product.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from arkdev.errors import RequirementsError
from arkdev.faas_emulator.requirement_files import requirement_sources as sources
from arkdev.faas_emulator.requirement_files.platforms import (
    DEFAULT_PLATFORM,
    DEFAULT_PYTHON,
    Target,
    target,
)
from arkdev.faas_emulator.requirement_files.requirement_line import (
    RequirementLine,
    parse_requirement,
)
from arkdev.faas_emulator.requirement_files.requirement_lines import decoded_file, logical_lines
from arkdev.faas_emulator.requirement_files.requirement_sources import Finding
from arkdev.job.paths import filesystem_path, shown_path
from arkdev.job.problems import Problem, make_error

CONSTRAINTS_FILE = "constraints.txt"

_PASSED_ON = {
    "-i": True,
    "--index-url": True,
    "--extra-index-url": True,
    "-f": True,
    "--find-links": True,
    "--no-index": False,
    "--no-binary": True,
    "--only-binary": True,
    "--prefer-binary": False,
    "--require-hashes": False,
    "--pre": False,
    "--trusted-host": True,
    "--use-feature": True,
}
"""Options of the whole file → whether they take a value."""
_INCLUDES = ("-r", "--requirement", "-c", "--constraint")
_EDITABLE = ("-e", "--editable")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_SHORT = re.compile(r"(-[a-z])([^-\s=].*)", re.DOTALL)


@dataclass(frozen=True)
class LineFinding:
    """What is said of a line: a problem, a warning or a note."""

    where: str
    message: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"; {self.advice}" if self.advice else "")


@dataclass(frozen=True)
class Requirements:
    """What a function installs, beside arkdev's function wheel."""

    lines: tuple[RequirementLine, ...] = ()
    problems: tuple[LineFinding, ...] = ()
    """Lines that it cannot install; empty in what `read_requirements` returns."""
    warnings: tuple[LineFinding, ...] = ()
    """Lines that may give another version tomorrow, and an unusual encoding."""
    notes: tuple[LineFinding, ...] = ()
    """Lines that the function wheel stands for."""

    @property
    def install_text(self) -> str:
        """A requirements file of all lines, included ones too, without `ark_sdk` and arkdev.

        Where there are constraints its first line is ``-c constraints.txt``: see `install_files`.
        """
        own = [line.text for line in self.lines if not line.is_constraint]
        first = [f"-c {CONSTRAINTS_FILE}"] if self.constraints_text else []
        return "".join(f"{text}\n" for text in [*first, *own])

    @property
    def constraints_text(self) -> str:
        """The lines of all ``-c`` files; empty when there are none."""
        return "".join(f"{line.text}\n" for line in self.lines if line.is_constraint)

    @property
    def install_files(self) -> Mapping[str, str]:
        """File name → text of what an installer needs beside each other."""
        files = {"requirements.txt": self.install_text}
        if self.constraints_text:
            files[CONSTRAINTS_FILE] = self.constraints_text
        return files

    @property
    def needs_git(self) -> bool:
        """Whether git has to be there to install them."""
        return any("git+" in line.text for line in self.lines)

    @property
    def uses_hashes(self) -> bool:
        """Whether pip will ask for a hash of everything: install the function wheel apart then."""
        return any("--hash" in line.text or "--require-h" in line.text for line in self.lines)


def read_requirements(
    path: Path,
    *,
    platform: str = DEFAULT_PLATFORM,
    python: str = DEFAULT_PYTHON,
    root: Path | None = None,
) -> Requirements:
    """Read a requirements file; one that is not there asks for nothing.

    `platform` and `python` are the function's. What it includes has to lie in `root`, which is its
    folder when not given. Raises `RequirementsError` with every line that a function cannot
    install.
    """
    found = judge_requirements(path, target=target(platform, python=python), root=root)
    if found.problems:
        problems = [_problem(finding) for finding in found.problems]
        raise make_error(
            RequirementsError,
            problems,
            hint="`arkdev freeze` writes the file from what the plugins import",
        )
    return found


def judge_requirements(path: Path, *, target: Target, root: Path | None = None) -> Requirements:
    """Read as `read_requirements` does, and return what is wrong in place of raising it.

    Raises `RequirementsError` for a file that cannot be decoded.
    """
    path = path.absolute()
    reader = _Reader((root or path.parent).resolve(), target)
    try:
        reader.read(path)
    except FileNotFoundError:
        return Requirements()
    reader.check_duplicates()
    return Requirements(
        lines=tuple(reader.lines),
        problems=tuple(reader.problems),
        warnings=(*reader.warnings, *reader.unpinned()),
        notes=tuple(reader.notes),
    )


def _problem(finding: LineFinding) -> Problem:
    return Problem(finding.where, f"{finding.message}; {finding.advice}".removesuffix("; "))


@dataclass
class _Reader:
    """Reads a file and those that it includes."""

    root: Path
    target: Target
    lines: list[RequirementLine] = field(default_factory=list)
    problems: list[LineFinding] = field(default_factory=list)
    warnings: list[LineFinding] = field(default_factory=list)
    notes: list[LineFinding] = field(default_factory=list)
    _open: list[Path] = field(default_factory=list)
    """The files that are being read, each included by the one before."""
    _loose: list[tuple[RequirementLine, Finding]] = field(default_factory=list)

    def read(self, path: Path, *, is_constraint: bool = False) -> None:
        """Read one file."""
        content = decoded_file(path)
        if content.encoding == "UTF-16":
            advice = "save it as UTF-8, for what else reads it"
            self.warnings.append(LineFinding(shown_path(path), "UTF-16 text", advice))
        self._open.append(path.resolve())
        for line in logical_lines(content.text):
            where = f"{shown_path(path)}:{line.number}"
            if line.text.startswith("-"):
                self._options(line.text, where=where, is_constraint=is_constraint)
            elif line.text:
                self._requirement(line.text, where=where, is_constraint=is_constraint)
        self._open.pop()

    # --- options -----------------------------------------------------------------------------

    def _options(self, text: str, *, where: str, is_constraint: bool) -> None:
        try:
            words = shlex.split(text)
        except ValueError:
            self._refuse(where, "a quotation mark is not closed", "close it")
            return
        while words:
            name, value = _split(words.pop(0))
            takes_value = _PASSED_ON.get(name, name in (*_INCLUDES, *_EDITABLE))
            if takes_value and value is None:
                value = words.pop(0) if words else ""
            if name in _EDITABLE:
                self._editable(value or "", where=where)
            elif name in _INCLUDES:
                is_bound = is_constraint or name in ("-c", "--constraint")
                self._include(value or "", where=where, is_constraint=is_bound)
            elif name not in _PASSED_ON:
                advice = "write one requirement a line; pip install --help lists the options"
                self._refuse(where, f"{name} is no option of a requirements file", advice)
            elif self._check_address(value or "", name=name, where=where):
                # each on its own line: uv reads no second one
                option = name if value is None else f"{name} {value}"
                self.lines.append(RequirementLine(where, option, is_constraint=is_constraint))

    def _editable(self, source: str, *, where: str) -> None:
        if self._stands_for_own(sources.name_of(source), where=where):
            return
        message = f"`-e {sources.shown(source)}` is an editable install"
        advice = "leave out -e" if source.startswith("git+https:") else sources.EDITABLE
        self._refuse(where, message, advice)

    def _include(self, name: str, *, where: str, is_constraint: bool) -> None:
        if "://" in name:
            shown = sources.shown(name)
            self._refuse(where, f"{shown} is read from the network", "copy it into the workspace")
            return
        path = self._open[-1].parent / filesystem_path(name)
        if not path.resolve().is_relative_to(self.root):
            self._refuse(where, f"{name} lies outside of the workspace", "copy it into it")
        elif path.resolve() in self._open:
            self._refuse(where, f"{name} includes itself", "take the line out")
        else:
            try:
                self.read(path, is_constraint=is_constraint)
            except FileNotFoundError:
                self._refuse(where, f"there is no {name}", "paths are relative to this file")

    def _check_address(self, value: str, *, name: str, where: str) -> bool:
        """Whether an option can be passed on; one with an address of this machine cannot."""
        if name not in ("-i", "--index-url", "--extra-index-url", "-f", "--find-links"):
            return True
        if _VARIABLE.search(value):
            self._refuse_variable(where)
            return False
        if not value.startswith(("https://", "http://")):
            advice = "name a package index that the function reaches"
            self._refuse(where, f"{name} {sources.shown(value)} is on this machine", advice)
            return False
        for finding in (found := list(sources.credentials(value))):
            self._refuse(where, f"{name} {finding.message}", finding.advice)
        return not found

    # --- requirements ------------------------------------------------------------------------

    def _requirement(self, text: str, *, where: str, is_constraint: bool) -> None:
        try:
            line = parse_requirement(text, where=where, is_constraint=is_constraint)
        except InvalidRequirement as error:
            reason = sources.shown(str(error).partition("\n")[0])
            message = f"`{sources.shown(text)}` is no requirement: {reason}"
            self._refuse(where, message, "write NAME==VERSION")
            return
        if self._stands_for_own(line.name, where=where, requirement=line.requirement):
            return
        if _VARIABLE.search(text):
            self._refuse_variable(where)
            return
        self._judge(line)

    def _judge(self, line: RequirementLine) -> None:
        requirement = line.requirement
        marker = requirement.marker if requirement else None
        if marker is not None and not marker.evaluate(dict(self.target.markers)):
            self.lines.append(line)  # not for this platform: never fetched there
            return
        findings = [*self._of_source(line.source), *_of_version(requirement)]
        subject = f"`{sources.shown(line.wanted)}`"
        problems = [finding for finding in findings if finding.is_problem]
        for finding in problems:
            self._refuse(line.where, f"{subject}: {finding.message}", finding.advice)
        if problems:
            return
        for finding in findings:
            line = replace(line, is_pinned=False)
            self._loose.append((line, finding))
        self.lines.append(line)

    def _of_source(self, source: str) -> Iterator[Finding]:
        if not source:
            return iter(())
        judge = sources.of_path if sources.is_path(source) else sources.of_url
        return judge(source, target=self.target)

    def _stands_for_own(
        self, name: str, *, where: str, requirement: Requirement | None = None
    ) -> bool:
        """Whether the function wheel stands for a line, which is noted and left out then."""
        if name not in sources.OWN_NAMES:
            return False
        message = "arkdev's function wheel is installed in place of this line"
        if name == "ark-sdk":
            message = (
                "arkdev's function wheel serves ark_sdk in place of this line; it is never taken "
                "from a package registry, where ark-sdk is another product"
            )
        self.notes.append(LineFinding(where, message))
        if requirement and requirement.extras:
            extras = ", ".join(sorted(requirement.extras))
            advice = "write the packages that plugins import, or run `arkdev freeze`"
            self.warnings.append(LineFinding(where, f"the extra {extras} is not installed", advice))
        return True

    # --- what is said -------------------------------------------------------------------------

    def check_duplicates(self) -> None:
        """Refuse a second line for a distribution that says something else, as pip does."""
        first: dict[str, RequirementLine] = {}
        for line in self.lines:
            wanted = line.requirement
            if not line.name or line.is_constraint or (wanted and wanted.marker):
                continue
            other = first.setdefault(line.name, line)
            if other.text != line.text:
                message = f"`{sources.shown(line.text)}`: {line.name} is named at {other.where} too"
                self._refuse(line.where, message, "keep one of the two")

    def unpinned(self) -> Iterable[LineFinding]:
        """Warn of lines that no version, commit or constraint pins."""
        bound = {line.name for line in self.lines if line.is_constraint and line.is_pinned}
        for line, finding in self._loose:
            if not line.is_constraint and line.name not in bound:
                subject = f"`{sources.shown(line.wanted)}`"
                yield LineFinding(line.where, f"{subject}: {finding.message}", finding.advice)

    def _refuse(self, where: str, message: str, advice: str) -> None:
        self.problems.append(LineFinding(where, message, advice))

    def _refuse_variable(self, where: str) -> None:
        message = "the function is built without this machine's variables"
        self._refuse(where, message, "write an address that needs none")


def _split(word: str) -> tuple[str, str | None]:
    """``--name=value``, ``--name``, ``-r`` or ``-rvalue`` as (name, value)."""
    if word.startswith("--"):
        name, separator, value = word.partition("=")
        return name, value if separator else None
    if found := _SHORT.fullmatch(word):
        return found[1], found[2]
    return word, None


def _of_version(requirement: Requirement | None) -> Iterator[Finding]:
    if requirement is None or requirement.url:
        return
    exact = any(
        clause.operator == "===" or (clause.operator == "==" and not clause.version.endswith("*"))
        for clause in requirement.specifier
    )
    if not exact:
        yield Finding(
            "no exact version, so another day may bring another one",
            "write NAME==VERSION; `arkdev freeze` does",
            is_problem=False,
        )
