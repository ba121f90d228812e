"""Graders in any version: of the workspace, of another file, or of a commit of the workspace.

``plugins.grader:fn`` is today's, ``old/grader.py:fn`` that of a file, ``plugins.grader:fn@HEAD~1``
that of a commit. What such a file imports (other modules of the workspace) is today's.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from arkdev.errors import ConfigurationError, PluginLoadError
from arkdev.job.paths import readable
from arkdev.plugin.loading import (
    LoadedPlugin,
    import_failed,
    load_plugin,
    plugins_in,
    require_kind,
    use_workspace,
)

RECORDED = "recorded"
"""Stands for the rewards that the run has."""

_GIT_TIMEOUT_S = 30.0
_AT_COMMIT = re.compile(r"(?P<module>[\w.]+):(?P<name>\w+)@(?P<commit>.+)")
_IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")


def load_version(text: str, *, root: Path) -> LoadedPlugin:
    """Load the grader that `text` names.

    Raises `PluginLoadError` when it cannot be found, and `ConfigurationError` when git has no such
    commit or file.
    """
    at_commit = _AT_COMMIT.fullmatch(text)
    in_file = _IN_FILE.fullmatch(text)
    if at_commit:
        file = _checked_out(at_commit["module"], at_commit["commit"], root=root)
        loaded = _from_file(file, at_commit["name"], package=at_commit["module"], root=root)
    elif in_file:
        file = Path(in_file["file"])
        if not file.is_absolute() and not file.is_file():
            file = root / file
        loaded = _from_file(file, in_file["name"], package=_package_of(file, root), root=root)
    else:
        loaded = load_plugin(text, root=root)
    return require_kind(replace(loaded, reference=text), is_rollout=False)


def _package_of(file: Path, root: Path) -> str:
    """Return the dotted name that a file of the workspace has; its last part else."""
    path = file.resolve().with_suffix("")
    if path.is_relative_to(root.resolve()):
        return ".".join(path.relative_to(root.resolve()).parts)
    return path.name


def _from_file(file: Path, name: str, *, package: str, root: Path) -> LoadedPlugin:
    """Import a file under a name of its own in the package, so that relative imports work."""
    if not file.is_file():
        raise PluginLoadError("there is no such file", where=readable(str(file)))
    use_workspace(root)
    digest = hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    module_name = f"{package}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except ConfigurationError:  # a decorator's own words, with the user's file:line
        raise
    except (Exception, SystemExit) as error:  # a user's module can raise anything
        raise import_failed(readable(str(file)), error, root=root) from error
    for found in plugins_in(module):
        if found.reference == f"{module_name}:{name}":
            return found
    names = ", ".join(found.reference.partition(":")[2] for found in plugins_in(module))
    raise PluginLoadError(
        f"there is no plugin {name!r} in the file",
        where=readable(str(file)),
        hint=f"it has {names}" if names else "it has no decorated function",
    )


def _checked_out(module: str, commit: str, *, root: Path) -> Path:
    """Write a module of a commit into a temporary file; errors then show its lines."""
    path = Path(*module.split(".")).with_suffix(".py")
    git = ["git", "-C", str(root), "show", f"{commit}:./{path.as_posix()}"]
    try:
        shown = subprocess.run(git, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise ConfigurationError(
            "git is not installed", hint="name the older file itself: path/to/grader.py:function"
        ) from None
    if shown.returncode:
        said = shown.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
        raise ConfigurationError(
            f"git has no {path} at {commit}: {said}",
            where=str(root),
            hint="`git log --oneline` lists the commits; the file must be in them",
        )
    digest = hashlib.sha256(shown.stdout).hexdigest()[:12]
    folder = Path(tempfile.mkdtemp(prefix="arkdev-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / f"{path.stem}_{digest}.py"
    file.write_bytes(shown.stdout)
    return file
