"""Exact versions of what the plugins import, directly and transitively (SURFACE FT-01).

The versions are those of the environment that the plugins are written in; which of them the
function needs is worked out for its platform, not for this machine. A package index is read only
where the environment cannot tell: a package that is needed there and not here, or a version that
does not run on the function's Python. uv resolves then, for the function's platform.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from arkdev.faas_emulator.freezing.installed_packages import Environment, Package
from arkdev.faas_emulator.freezing.plugin_imports import ImportedModule, PluginImports
from arkdev.faas_emulator.packages.function_wheel import is_left_out
from arkdev.faas_emulator.requirement_files.platforms import Target
from arkdev.faas_emulator.requirement_files.requirement_line import (
    RequirementLine,
    parse_requirement,
)
from arkdev.faas_emulator.requirement_files.requirement_sources import (
    OWN_NAMES,
    VENDOR,
    of_url,
    shown,
)
from arkdev.faas_emulator.requirement_files.requirements import LineFinding
from arkdev.faas_emulator.requirement_files.uv_program import ask_uv

KEEP = "arkdev: keep"
"""What a comment at the end of a line says that is needed, though no import shows it."""

_OWN_MODULES = frozenset({"arkdev", "ark_sdk"})
_UNSEEN = "imports a module whose name is only known when it is run"
_KEEP_IT = f"if its package is left out, end that line of requirements.txt with `# {KEEP}`"


@dataclass(frozen=True)
class Author:
    """What the author's requirements.txt says beside versions."""

    extras: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Normalised name → the extras that its lines ask for."""
    commented: frozenset[str] = frozenset()
    """Names of lines that are commented out: packages that are optional, and left out."""
    kept: tuple[RequirementLine, ...] = ()
    """Lines that end with the comment `KEEP`."""
    pinned: tuple[str, ...] = ()
    """``name==1.2`` of each line with an exact version."""
    options: tuple[str, ...] = ()
    """Lines that say where packages come from."""


@dataclass(frozen=True)
class Pin:
    """One package that a function installs."""

    name: str
    """Normalised."""
    text: str
    """Its line: ``name==1.2`` or ``name @ URL``."""
    version: str
    imported_at: tuple[str, ...]
    """file:line of the imports; empty for what only others need."""
    required_by: tuple[str, ...]
    """Normalised names."""
    hashes: tuple[str, ...] = ()
    """``--hash=sha256:...``, where the author's file has hashes."""


@dataclass(frozen=True)
class Frozen:
    """What the plugins need, and what there is to say about it."""

    pins: Mapping[str, Pin]
    """By normalised name, sorted."""
    problems: tuple[LineFinding, ...]
    """Imports that a function could not have."""
    warnings: tuple[LineFinding, ...]
    notes: tuple[LineFinding, ...]


def freeze(
    imports: PluginImports, environment: Environment, *, target: Target, author: Author
) -> Frozen:
    """Work out what a function on `target` installs for `imports`. Raises as `ask_uv` does."""
    work = _Freeze(environment, target, author)
    work.notes += [LineFinding(place, _UNSEEN, _KEEP_IT) for place in imports.unseen]
    needed = work.without_own(imports.modules)
    work.add_roots(work.without_failed_attempts(needed))
    work.walk()
    pins = {} if work.problems else work.pins()
    return Frozen(pins, tuple(work.problems), tuple(work.warnings), tuple(work.notes))


@dataclass
class _Freeze:
    environment: Environment
    target: Target
    author: Author
    problems: list[LineFinding] = field(default_factory=list)
    warnings: list[LineFinding] = field(default_factory=list)
    notes: list[LineFinding] = field(default_factory=list)
    _roots: dict[str, list[str]] = field(default_factory=dict)
    """Name → places of its imports."""
    _required_by: dict[str, set[str]] = field(default_factory=dict)
    """Name → who requires it, of all that is needed."""

    def without_own(self, modules: Iterable[ImportedModule]) -> list[ImportedModule]:
        """Leave out what is there anyway: the standard library, arkdev and `ark_sdk`."""
        needed, host_side = [], dict[str, LineFinding]()
        for imported in modules:
            if imported.top not in _OWN_MODULES | self.environment.stdlib:
                needed.append(imported)
            elif imported.top == "arkdev" and is_left_out(imported.module):
                message = f"{imported.module} is not in a function: only what plugins use is"
                advice = "import it under `if __name__ == '__main__':`, or not at all"
                host_side[imported.where] = LineFinding(imported.where, message, advice)
        self.warnings += host_side.values()
        return needed

    def without_failed_attempts(self, modules: list[ImportedModule]) -> list[ImportedModule]:
        """Leave out a `try` of which one import is missing: the function goes the other way too."""
        failed: dict[str, tuple[ImportedModule, str]] = {}
        for imported in modules:
            if imported.attempt is not None and (reason := self._absence(imported)):
                failed.setdefault(imported.attempt, (imported, reason))
        for imported, reason in failed.values():
            message = f"optional import of {imported.top}: {reason}, so it is left out"
            self.notes.append(LineFinding(imported.where, message))
        return [imported for imported in modules if imported.attempt not in failed]

    def _absence(self, imported: ImportedModule) -> str:
        owners = self.environment.modules[imported.module]
        if not owners:
            return "it is not installed"
        if self.author.commented.issuperset(owners):
            return "its line in requirements.txt is a comment"
        return ""

    def add_roots(self, modules: Iterable[ImportedModule]) -> None:
        """Find whose the modules are; what nobody's is, is a problem."""
        for imported in modules:
            owners = self.environment.modules[imported.module]
            for name in owners:
                places = self._roots.setdefault(name, [])
                if imported.where not in places:
                    places.append(imported.where)
            if not owners and all(imported.where != told.where for told in self.problems):
                self.problems.append(self._unowned(imported))
        for line in self.author.kept:
            if line.name in self.environment.packages:
                self._roots.setdefault(line.name, [])

    def _unowned(self, imported: ImportedModule) -> LineFinding:
        origin = self.environment.origins[imported.top]
        if origin is not None:
            message = f"{imported.top} comes from {origin}, which is of no installed package"
            return LineFinding(imported.where, message, VENDOR)
        message = (
            f"{imported.source} is imported and not installed in {self.environment.interpreter}"
        )
        advice = (
            "install its package there and freeze again; if plugins can do without it, catch "
            "ImportError"
        )
        return LineFinding(imported.where, message, advice)

    def walk(self) -> None:
        """Follow what packages require on the function's platform, extras included."""
        todo = [(name, extra) for name in self._roots for extra in self._extras(name)]
        self._required_by = {name: set() for name in self._roots}
        done: set[tuple[str, str]] = set()
        while todo:
            name, extra = todo.pop()
            package = self.environment.packages.get(name)
            if (name, extra) in done or package is None:
                continue
            done.add((name, extra))
            self._check_source(name, package)
            for wanted in self._requirements(package, extra=extra):
                other = str(canonicalize_name(wanted.name))
                if other not in OWN_NAMES:
                    self._required_by.setdefault(other, set()).add(name)
                    todo += [(other, more) for more in ("", *wanted.extras)]

    def _extras(self, name: str) -> tuple[str, ...]:
        return ("", *sorted(self.author.extras.get(name, ())))

    def _requirements(self, package: Package, *, extra: str) -> Iterator[Requirement]:
        for text in package.requires:
            try:
                wanted = Requirement(text)
            except InvalidRequirement:  # of an old package; uv passes over it too
                continue
            marker = wanted.marker
            if marker is None or marker.evaluate({**self.target.markers, "extra": extra}):
                yield wanted

    def _check_source(self, name: str, package: Package) -> None:
        source = package.line.removeprefix("-e ").rpartition(" @ ")[2]
        if source == package.line:  # by its version
            return
        place = next(iter(self._roots.get(name, ())), str(self.environment.interpreter))
        users = ", ".join(sorted(self._required_by.get(name, ())))
        used = f"{package.name}, which {users} requires," if users else package.name
        for finding in of_url(source, target=self.target):
            if finding.is_problem:
                message = f"{used} is installed from {shown(source)}: {finding.message}"
                told = LineFinding(place, message, finding.advice)
                self.problems += [] if told in self.problems else [told]

    def pins(self) -> dict[str, Pin]:
        """Pin what is needed to the environment's versions, or to those that uv finds."""
        packages, fit = self.environment.packages, dict[str, str]()
        lacks = []
        for name in sorted(self._required_by):
            package = packages.get(name)
            if package is None:
                lacks.append(f"{name} (not installed here)")
            elif not self._runs(package):
                wanted = f"needs Python {package.requires_python}"
                lacks.append(f"{package.name} ({package.version} {wanted})")
            else:
                fit[name] = self._text(name, package)
                self._warn_of_local_version(package)
        if lacks:
            fit = self._resolved(fit, lacks=lacks)
        return {name: self._pin(name, fit[name]) for name in sorted(fit)}

    def _runs(self, package: Package) -> bool:
        try:  # of the newest patch release: which one the base image has is not known here
            return SpecifierSet(package.requires_python).contains(f"{self.target.python}.99")
        except InvalidSpecifier:
            return True

    def _text(self, name: str, package: Package) -> str:
        extras = ",".join(sorted(self.author.extras.get(name, ())))
        spelling, separator, rest = package.line.partition(" @ ")
        if separator:
            return f"{spelling}[{extras}] @ {rest}" if extras else package.line
        return f"{package.name}{f'[{extras}]' if extras else ''}=={package.version}"

    def _warn_of_local_version(self, package: Package) -> None:
        if "+" in package.version and " @ " not in package.line and not self.author.options:
            message = f"{package.name} {package.version} is not on the usual package index"
            advice = "name its index in requirements.txt: --extra-index-url URL"
            self.warnings.append(LineFinding("requirements.txt", message, advice))

    def _resolved(self, fit: Mapping[str, str], *, lacks: list[str]) -> dict[str, str]:
        """Ask uv for versions for the function's platform, keeping to those that are `fit`."""
        self.notes.append(
            LineFinding(
                "requirements.txt",
                f"uv chose versions from the package index for {self.target}, since the "
                f"environment has none that fit: {', '.join(lacks)}",
            )
        )
        roots = [fit.get(name) or f"{name}{self._suffix(name)}" for name in self._roots]
        with tempfile.TemporaryDirectory() as folder:
            constraints, answer = Path(folder, "constraints.txt"), Path(folder, "answer.txt")
            # without extras, which a constraint may not have
            bound = (name + text[text.index("==") :] for name, text in fit.items() if "==" in text)
            constraints.write_text("".join(f"{text}\n" for text in bound), encoding="utf-8")
            # uv keeps to the versions that its output has already
            before = "".join(f"{text}\n" for text in self.author.pinned)
            answer.write_text(before, encoding="utf-8")
            ask_uv(
                *("pip", "compile", "-", "--no-header", "--no-annotate", "--no-strip-extras"),
                *("--python", str(self.environment.interpreter)),
                *("--python-platform", self.target.uv_platform),
                *("--python-version", self.target.python),
                *("--constraints", str(constraints), "--output-file", str(answer)),
                given="".join(f"{line}\n" for line in [*self.author.options, *roots]),
            )
            said = answer.read_text(encoding="utf-8")
        lines = [parse_requirement(text) for text in said.splitlines() if text[:1] not in ("-", "")]
        return {line.name: line.text for line in lines if line.name not in OWN_NAMES}

    def _suffix(self, name: str) -> str:
        extras = self.author.extras.get(name)
        return f"[{','.join(sorted(extras))}]" if extras else ""

    def _pin(self, name: str, text: str) -> Pin:
        package = self.environment.packages.get(name)
        version = text.partition("==")[2].partition(";")[0].strip()
        return Pin(
            name=name,
            text=text,
            version=version or (package.version if package else ""),
            imported_at=tuple(self._roots.get(name, ())),
            required_by=tuple(sorted(self._required_by.get(name, ()))),
        )
