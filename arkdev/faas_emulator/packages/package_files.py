"""The walk through a workspace that finds the files of the plugins' package."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from arkdev.faas_emulator.packages.path_rules import PathRules
from arkdev.job.paths import readable
from arkdev.runs.writer import MANIFEST

IGNORE_FILE = ".dockerignore"
REQUIREMENTS_FILE = "requirements.txt"
_JOB_YAML = ("job.yaml", "job.yml")
_DATA_FOLDERS = ("data", "datasets")
_MADE_BY_US = ("runs", "typings")
"""At the root: run folders, and the type stubs of `arkdev init`."""

NEVER_TRAVELS = (
    *(".env*", ".netrc", ".pypirc", ".git-credentials", ".ssh"),  # secrets
    *(".git", ".hg", ".svn", ".venv"),
    *("__pycache__", "*.pyc", ".*_cache", ".ipynb_checkpoints", ".tox", ".nox", "node_modules"),
    *(".DS_Store", ".idea", ".vscode"),
)
"""Names of files and folders that no package holds, at any depth, whatever include says."""
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What lies in the folder of a virtual environment, whatever its name."""
_RUN_MARK, _RUN_MARK_WITHIN = b'"run_id"', 256
"""What the manifest of a run has, and in how many of its first bytes."""
_MAX_NAMED = 5


@dataclass(frozen=True)
class PackageRules:
    """What a workspace says of its package."""

    include: tuple[str, ...]
    """Patterns; a pattern without a slash fits at any depth. Empty: everything."""
    ignore: PathRules
    datasets: frozenset[Path] = frozenset()
    """Files that stand for datasets: data, wherever they lie."""
    include_rules: PathRules = field(init=False)

    def __post_init__(self) -> None:
        """Read `include`. Raises `ValueError` for a pattern that cannot be read."""
        PathRules(self.include)  # as they are written, for the error
        object.__setattr__(self, "include_rules", PathRules(map(_at_any_depth, self.include)))

    def includes(self, path: str) -> bool:
        """Tell whether the file at `path` is asked for; ``.dockerignore`` left aside."""
        return not self.include or self.include_rules.match(path)

    def asks_for(self, name: str) -> bool:
        """Tell whether a pattern of `include` begins with a name at the root, such as ``data``."""
        return any(pattern.lstrip("/").split("/")[0] == name for pattern in self.include)


def _at_any_depth(pattern: str) -> str:
    sign = "!" if pattern.startswith("!") else ""
    plain = pattern.removeprefix("!").strip().rstrip("/")
    return f"{sign}**/{plain}" if plain and "/" not in plain else pattern


class Walk:
    """One walk: `files` finds them, `notes` says afterwards what was left out."""

    def __init__(self, root: Path, rules: PackageRules) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._rules = rules
        self._found: list[str] = []
        self._data: list[str] = []
        self._links_out: list[str] = []
        self._links_to_hidden: list[str] = []
        self._links_broken: list[str] = []
        self._special: list[str] = []

    def files(self) -> Iterator[tuple[str, Path, int]]:
        """Yield relative path, absolute path and size in bytes of each file, in no order."""
        for path, size in self._below("", above=(self._real_root,)):
            self._found.append(path)
            yield path, self._root / path, size

    def notes(self, *, include: Sequence[str]) -> Iterator[str]:
        """Tell what was left out that may be missed, and which patterns find nothing."""
        if self._data:
            yield (
                f"left out as data: {_listed(self._data)}; a pattern of include that begins with "
                "the name sends it"
            )
        if self._links_out:
            yield f"left out, links out of the workspace: {_listed(self._links_out)}"
        if self._links_to_hidden:
            yield f"left out, links to what never travels: {_listed(self._links_to_hidden)}"
        if self._links_broken:
            yield f"left out, links to nothing: {_listed(self._links_broken)}"
        if self._special:
            yield f"left out, no regular files: {_listed(self._special)}"
        for pattern in include:
            if not pattern.startswith("!") and not self._finds(pattern):
                yield f"include: {pattern!r} names no file that travels"

    def _finds(self, pattern: str) -> bool:
        rules = PathRules([_at_any_depth(pattern)])
        return any(rules.match(path) for path in self._found)

    def _below(self, folder: str, *, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """The files in a folder; `above` are the real paths of it and the folders it lies in."""
        with os.scandir(self._root / folder) as scanned:
            entries = list(scanned)
        if folder and (_is_environment(entries) or _is_run(entries)):
            return
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if _never_travels(path) or self._is_data(path, entry):
                continue
            kind = self._kind(path, entry)
            if kind is None:
                continue
            if stat.S_ISDIR(kind.st_mode):
                real = os.path.realpath(entry.path)
                if real not in above and not self._is_ignored_whole(path):
                    yield from self._below(path, above=(*above, real))
            elif self._travels(path):
                if stat.S_ISREG(kind.st_mode):
                    yield path, kind.st_size
                else:
                    self._special.append(path)

    def _is_data(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Whether it is data, or made by arkdev; noted when it is data."""
        if path in _MADE_BY_US:
            return entry.is_dir()
        is_data = (path in _DATA_FOLDERS and entry.is_dir()) or path in _JOB_YAML
        is_dataset = not self._rules.include and self._root / path in self._rules.datasets
        if (is_data and not self._rules.asks_for(path)) or is_dataset:
            if path not in _JOB_YAML and self._may_be_missed(path):
                self._note(self._data, path)
            return True
        return False

    def _may_be_missed(self, path: str) -> bool:
        """Whether to say that data is left out: when nothing says what travels, or it is code."""
        return not self._rules.include or (self._root / path / "__init__.py").exists()

    def _kind(self, path: str, entry: os.DirEntry[str]) -> os.stat_result | None:
        """What an entry is, links followed; None and noted for a link that leads astray."""
        if not entry.is_symlink():
            return entry.stat()
        real = os.path.realpath(entry.path)
        if not os.path.exists(real):
            self._note(self._links_broken, path)
            return None
        if os.path.commonpath((real, self._real_root)) != self._real_root:
            self._note(self._links_out, path)
            return None
        within = os.path.relpath(real, self._real_root)
        first = within.split("/")[0]
        if first in _DATA_FOLDERS and not self._rules.asks_for(first):
            self._note(self._data, path)
            return None
        if _never_travels(within) or first in _MADE_BY_US:
            self._note(self._links_to_hidden, path)
            return None
        return os.stat(real)

    def _note(self, notes: list[str], path: str) -> None:
        if not self._rules.ignore.match(path):
            notes.append(path)

    def _is_ignored_whole(self, folder: str) -> bool:
        return not self._rules.ignore.has_exceptions and self._rules.ignore.match(folder)

    def _travels(self, path: str) -> bool:
        if path == REQUIREMENTS_FILE:
            return True
        return self._rules.includes(path) and not self._rules.ignore.match(path)


def _never_travels(path: str) -> bool:
    names = path.split("/")
    return any(fnmatchcase(name, pattern) for name in names for pattern in NEVER_TRAVELS)


def _is_environment(entries: Sequence[os.DirEntry[str]]) -> bool:
    return any(entry.name in _ENVIRONMENT_MARKS for entry in entries)


def _is_run(entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether a folder is that of a run, which ``--out`` puts anywhere."""
    found = {entry.name: entry for entry in entries}
    if MANIFEST not in found or "logs" not in found:
        return False
    try:
        with open(found[MANIFEST].path, "rb") as file:
            return _RUN_MARK in file.read(_RUN_MARK_WITHIN)
    except OSError:
        return False


def _listed(paths: Sequence[str]) -> str:
    named = ", ".join(readable(path) for path in sorted(paths)[:_MAX_NAMED])
    more = len(paths) - _MAX_NAMED
    return f"{named} and {more} more" if more > 0 else named
