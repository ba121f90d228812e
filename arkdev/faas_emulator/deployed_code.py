"""The code of test instances: what was deployed last, until it is synced (SURFACE FT-02, FT-06).

The platform keeps a function between calls, and goes on with its code until it is told to take new
code. Here a copy of the plugins' package stands for that, in the user's state folder::

    test-instances/WORKSPACE/functions/FUNCTION.json   which code, since when, its limits then
    test-instances/WORKSPACE/code/DIGEST/package/      the files
    test-instances/WORKSPACE/code/DIGEST/requirements/ what it installs

A function that nobody called for `KEPT_S` is forgotten, and code that no function has is removed.
Values of variables are not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arkdev.errors import BuildError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.package import PackageFile, PluginPackage
from arkdev.faas_emulator.packages.package_files import REQUIREMENTS_FILE
from arkdev.faas_emulator.requirement_files.requirements import Requirements, read_requirements
from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.plugin.runtime import Runtime

KEPT_S = 7 * 24 * 3600.0
"""So long a function is kept that nobody calls, in seconds."""
_HALF_MADE_S = 24 * 3600.0
"""Code of this age, in seconds, that no function has: nobody is about to name it any more."""
_FORMAT = 1


@dataclass(frozen=True)
class CodeChanges:
    """How the code of a workspace differs from what is deployed: paths, sorted."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def __str__(self) -> str:
        """``plugins/a.py changed; plugins/b.py, plugins/c.py added``"""
        kinds = ((self.changed, "changed"), (self.added, "added"), (self.removed, "removed"))
        return "; ".join(f"{_named(paths)} {what}" for paths, what in kinds if paths)


_MAX_NAMED = 5


def _named(paths: tuple[str, ...]) -> str:
    more = len(paths) - _MAX_NAMED
    return ", ".join(paths[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class DeployedCode:
    """A function as it was deployed."""

    function: FunctionSpec
    """Without variables."""
    deployed_at: datetime
    folder: Path
    """Of its code."""
    digests: Mapping[str, str]
    """Path → SHA-256 of each file of the package."""

    @property
    def package_folder(self) -> Path:
        """Where the files of its package are."""
        return self.folder / "package"

    @property
    def plugin(self) -> Plugin:
        """The plugin as it was then, as far as the platform knows it."""
        function = self.function
        return Plugin(function.kind, function.name, runtime=function.runtime, place=function.place)

    def package(self) -> PluginPackage:
        """Return the deployed files. Raises `BuildError` when some are gone."""
        paths = [(path, self.package_folder / path) for path in sorted(self.digests)]
        try:
            sizes = tuple(source.stat().st_size for _, source in paths)
        except OSError as error:
            raise BuildError(
                f"the deployed code of {self.function.name} is damaged: {error.strerror}",
                where=str(error.filename or self.folder),
                hint="deploy it anew: --sync",
            ) from error
        files = tuple(PackageFile(path, source) for path, source in paths)
        return PluginPackage(root=self.function.root, files=files, sizes=sizes)

    def requirements(self) -> Requirements:
        """Return what the deployed code installs."""
        return read_requirements(self.folder / "requirements" / REQUIREMENTS_FILE)

    def changes(self, package: PluginPackage) -> CodeChanges:
        """Compare with the code that the workspace has now. Raises `BuildError`."""
        now, then = _digests(package), self.digests
        return CodeChanges(
            changed=tuple(sorted(p for p in now.keys() & then.keys() if now[p] != then[p])),
            added=tuple(sorted(now.keys() - then.keys())),
            removed=tuple(sorted(then.keys() - now.keys())),
        )


class CodeStore:
    """The deployed code of one workspace; `folder` is in the user's state folder."""

    def __init__(self, state: Path, *, workspace: Path) -> None:
        name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
        self._workspace = workspace
        self._folder = state / "test-instances" / name

    def find(self, reference: str) -> DeployedCode | None:
        """Return what is deployed for a plugin, and note that it is used; None: nothing is."""
        record = self._record(reference)
        try:
            fields = json.loads(record.read_text(encoding="utf-8"))
            if fields["format"] != _FORMAT or _is_older(record, KEPT_S):
                return None
            found = self._code(fields)
            for used in (record, found.folder):
                os.utime(used)
        except (OSError, ValueError, KeyError, TypeError):  # none, or cut short: deployed anew
            return None
        return found

    def deploy(
        self, function: FunctionSpec, package: PluginPackage, *, requirements: Requirements
    ) -> DeployedCode:
        """Keep this code for a function in place of what it had. Raises `BuildError`."""
        digests = _digests(package)
        digest = _digest(digests, requirements)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_whole(digest, digests, requirements):
                self._write_code(digest, package, requirements)
            fields = {
                "format": _FORMAT,
                "reference": function.reference,
                "name": function.name,
                "kind": function.kind.value,
                "runtime": function.runtime.model_dump(mode="json"),
                "place": function.place,
                "workspace": str(self._workspace),
                "deployed_at": datetime.now(UTC).isoformat(),
                "code": digest,
                "files": digests,
            }
            _replace(self._record(function.reference), json.dumps(fields, indent=1))
        except OSError as error:
            raise BuildError(
                f"the code cannot be deployed: {error.strerror}",
                where=str(error.filename or self._folder),
                hint="XDG_STATE_HOME names another folder for what arkdev keeps",
            ) from error
        self._prune()
        return self._code(fields)

    def forget(self, reference: str) -> None:
        """Remove what is deployed for a plugin. Idempotent."""
        self._record(reference).unlink(missing_ok=True)
        self._prune()

    def _record(self, reference: str) -> Path:
        name = hashlib.sha256(reference.encode()).hexdigest()[:16]
        return self._folder / "functions" / f"{name}.json"

    def _code(self, fields: Mapping[str, Any]) -> DeployedCode:
        function = FunctionSpec(
            name=fields["name"],
            reference=fields["reference"],
            root=self._workspace,
            kind=PluginKind(fields["kind"]),
            runtime=Runtime(**fields["runtime"]),
            place=fields["place"],
        )
        return DeployedCode(
            function=function,
            deployed_at=datetime.fromisoformat(fields["deployed_at"]),
            folder=self._folder / "code" / fields["code"],
            digests=fields["files"],
        )

    def _is_whole(
        self, digest: str, digests: Mapping[str, str], requirements: Requirements
    ) -> bool:
        """Whether the files of this code are all there as they were written."""
        code = self._folder / "code" / digest
        try:
            return all(
                hashlib.sha256((code / "package" / path).read_bytes()).hexdigest() == expected
                for path, expected in digests.items()
            ) and all(
                (code / "requirements" / name).read_text(encoding="utf-8") == text
                for name, text in requirements.install_files.items()
            )
        except (OSError, ValueError):
            return False

    def _write_code(self, digest: str, package: PluginPackage, requirements: Requirements) -> None:
        target = self._folder / "code" / digest
        half = target.with_name(f".{digest}-{secrets.token_hex(4)}")
        try:
            package.write_to(half / "package")
            (half / "requirements").mkdir()
            for name, text in requirements.install_files.items():
                (half / "requirements" / name).write_text(text, encoding="utf-8")
            shutil.rmtree(target, ignore_errors=True)  # it was damaged
            with contextlib.suppress(OSError):  # another arkdev has made the same
                half.rename(target)
        finally:
            shutil.rmtree(half, ignore_errors=True)

    def _prune(self) -> None:
        """Remove functions that nobody calls, and code that no function has."""
        used = set()
        for record in self._entries("functions"):
            if _is_older(record, KEPT_S):
                record.unlink(missing_ok=True)
                continue
            with contextlib.suppress(OSError, ValueError, KeyError):
                used.add(json.loads(record.read_text(encoding="utf-8"))["code"])
        for code in self._entries("code"):
            if code.name not in used and _is_older(code, _HALF_MADE_S):
                shutil.rmtree(code, ignore_errors=True)

    def _entries(self, name: str) -> Iterator[Path]:
        folder = self._folder / name
        return folder.iterdir() if folder.is_dir() else iter(())


def _is_older(path: Path, age_s: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime > age_s
    except OSError:
        return False


def _digests(package: PluginPackage) -> dict[str, str]:
    found = {}
    for file in package.files:
        try:
            found[file.path] = hashlib.sha256(file.source.read_bytes()).hexdigest()
        except OSError as error:
            raise BuildError(f"cannot be read: {error.strerror}", where=str(file.source)) from error
    return found


def _digest(digests: Mapping[str, str], requirements: Requirements) -> str:
    parts = [sorted(digests.items()), sorted(requirements.install_files.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
