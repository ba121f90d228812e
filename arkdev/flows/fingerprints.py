"""What a run was made from, by content: a run that is gone on with must find it unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from arkdev.job.paths import readable

_APART = ("runs", "typings", "__pycache__", "site-packages", "node_modules")


def fingerprints(root: Path, *, files: Iterable[Path]) -> dict[str, str]:
    """Return SHA-256 of the Python files of the workspace at `root` and of `files`.

    A file of the workspace goes by its path in it, any other by its whole path.
    """
    paths = sorted({path.absolute() for path in (*_python_files(root), *files)})
    return {_name_in(root, path): _digest(path) for path in paths}


def text_fingerprint(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _python_files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*.py"):
        folders = path.relative_to(root).parts[:-1]
        if not any(folder.startswith(".") or folder in _APART for folder in folders):
            yield path


def _name_in(root: Path, path: Path) -> str:
    return readable(str(path.relative_to(root) if path.is_relative_to(root) else path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
