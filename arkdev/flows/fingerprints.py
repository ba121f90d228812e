"""What a run was made from, by content: a run that is gone on with must find it unchanged."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from arkdev import __version__
from arkdev.job.paths import readable
from arkdev.runs.writer import MANIFEST

_SUFFIXES = (
    ".py",
    ".txt",
    ".json",
    ".jsonl",
    ".yaml",
    ".yml",
    ".toml",
    ".csv",
    ".sql",
    ".md",
    ".j2",
    ".jinja",
)
"""What plugins are made of and commonly read: code, prompts, rubrics, settings, small data."""

_LARGEST_BYTES = 16 << 20
_MODEL_CONFIGS = ("config.json", "adapter_config.json")
_APART = ("runs", "typings", "__pycache__", "site-packages", "node_modules")


def fingerprints(root: Path, *, files: Iterable[Path]) -> dict[str, str]:
    """Return SHA-256 of the workspace's own files at `root` and of `files`.

    Of the workspace these are the files that a plugin may be made of or read (`_SUFFIXES`, up to
    16 MB), but no README and nothing of a model beside its weights, as `arkdev export` writes it,
    except code; what else a plugin reads is not seen.

    A file of the workspace goes by its path in it, any other by its whole path.
    """
    paths = sorted({path.absolute() for path in (*_own_files(root), *files)})
    return {fingerprinted_name(root, path): _digest(path) for path in paths}


def fingerprinted_name(root: Path, path: Path) -> str:
    """Return what a file is called in fingerprints of the workspace at `root`."""
    path = path.absolute()
    return readable(str(path.relative_to(root) if path.is_relative_to(root) else path))


def versions() -> dict[str, str]:
    """Return the versions of Python, arkdev and the packages that matter."""
    found = {"arkdev": __version__, "python": platform.python_version()}
    for name in ("openai", "pydantic", "aiohttp", "volcengine-ark-runtime"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def text_fingerprint(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _own_files(root: Path) -> Iterator[Path]:
    runs = {path.parent for path in root.rglob(MANIFEST) if _is_of_a_run(path)}
    models = {path.parent for path in root.rglob("*.safetensors") if _is_of_a_model(path)} - {root}
    for path in root.rglob("*"):
        folders = path.relative_to(root).parts[:-1]
        if any(folder.startswith(".") or folder in _APART for folder in folders):
            continue
        if not runs.isdisjoint(path.parents):  # of --out: a run's own files change
            continue
        if path.parent in models and path.suffix != ".py":
            continue
        is_own = path.suffix in _SUFFIXES and not path.name.upper().startswith("README")
        if is_own and path.is_file() and path.stat().st_size <= _LARGEST_BYTES:
            yield path


def _is_of_a_run(manifest: Path) -> bool:
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and {"run_id", "schema_version"} <= document.keys()


def _is_of_a_model(weights: Path) -> bool:
    return any((weights.parent / name).is_file() for name in _MODEL_CONFIGS)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
