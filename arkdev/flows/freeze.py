"""`arkdev freeze`: requirements.txt, exact versions of what the plugins import (SURFACE FT-01)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from arkdev.errors import OutputError, RequirementsError, WorkspaceError
from arkdev.faas_emulator.freezing.freeze import Frozen, Pin, freeze
from arkdev.faas_emulator.freezing.frozen_hashes import with_hashes
from arkdev.faas_emulator.freezing.frozen_text import FrozenText, merged, read_author
from arkdev.faas_emulator.freezing.installed_packages import default_interpreter, read_environment
from arkdev.faas_emulator.freezing.plugin_imports import find_imports, own_files
from arkdev.faas_emulator.packages.package import plugin_package
from arkdev.faas_emulator.requirement_files.platforms import (
    DEFAULT_PLATFORM,
    DEFAULT_PYTHON,
    Target,
    target,
)
from arkdev.faas_emulator.requirement_files.requirement_lines import (
    RequirementsText,
    decoded_file,
    logical_lines,
)
from arkdev.faas_emulator.requirement_files.requirement_sources import shown
from arkdev.faas_emulator.requirement_files.requirements import (
    LineFinding,
    Requirements,
    judge_requirements,
)
from arkdev.job.paths import shown_path
from arkdev.job.problems import Problem, make_error
from arkdev.job.reader import find_job_file, read_job
from arkdev.job.workspace import PLUGIN_FOLDER, find_workspace

REQUIREMENTS_FILE = "requirements.txt"


@dataclass(frozen=True)
class FreezeRequest:
    """What to freeze, and for where."""

    start: Path
    """A folder in the workspace."""
    python: Path | None = None
    """The interpreter whose packages count; None: the workspace's ``.venv``, else the running one.
    """
    platform: str = DEFAULT_PLATFORM
    python_version: str = DEFAULT_PYTHON
    """The function's."""


@dataclass(frozen=True)
class FreezeOutcome:
    """What requirements.txt is, and what it should be."""

    file: Path
    interpreter: Path
    target: Target
    text: str
    """What to write, with ``\\n`` as the end of lines."""
    newline: str
    """The file's own end of lines."""
    is_changed: bool
    diff: str
    """From the file to `text`; without the credentials of URLs."""
    pins: tuple[Pin, ...]
    left_out: tuple[LineFinding, ...]
    """Lines of the file that are not taken over."""
    unused: tuple[str, ...]
    """Packages of the environment that the plugins do not need."""
    problems: tuple[LineFinding, ...]
    """Lines of the file that a function cannot install; `text` has none."""
    warnings: tuple[LineFinding, ...]
    notes: tuple[LineFinding, ...]


def freeze_workspace(request: FreezeRequest) -> FreezeOutcome:
    """Work out the requirements.txt of the workspace around `request.start`; nothing is written.

    Raises `RequirementsError` with every import that a function could not have (file:line), and for
    options in requirements.txt that it cannot use; `MissingExtraError` without uv; `WorkspaceError`
    where there are no plugins.
    """
    workspace = find_workspace(request.start)
    root = workspace.root
    if workspace.is_bare:
        raise _no_plugins(root)
    package = {file.source for file in plugin_package(workspace).files}
    goal = target(request.platform, python=request.python_version)
    file = root / REQUIREMENTS_FILE
    old, judged = _read(file, root=root, goal=goal)
    lines = logical_lines(old.text) if old else []
    author = read_author(lines, judged, shown_name=shown_path(file))
    imports = find_imports(root, _plugin_files(root, package))
    interpreter = request.python or default_interpreter(root, running=sys.executable)
    environment = read_environment(
        interpreter, modules=[imported.module for imported in imports.modules]
    )
    frozen = freeze(imports, environment, target=goal, author=author)
    _check_imports(frozen, root=root)
    pins = frozen.pins
    if judged.uses_hashes:
        pins = with_hashes(pins, judged, interpreter=interpreter, target=goal)
    new = merged(lines, pins, shown_name=shown_path(file))
    _check_kept(new, judged)
    is_changed = old is None or old.text != new.text or old.encoding == "UTF-16"
    return FreezeOutcome(
        file=file,
        interpreter=interpreter,
        target=goal,
        text=new.text,
        newline=old.newline if old else "\n",
        is_changed=is_changed,
        diff=_diff(old, new, name=shown_path(file)),
        pins=tuple(pins.values()),
        left_out=new.left_out,
        unused=tuple(sorted(environment.packages.keys() - pins.keys())),
        problems=judged.problems,
        warnings=(*_not_in_package(imports.files, package), *frozen.warnings),
        notes=(*_encoding(old, name=shown_path(file)), *frozen.notes),
    )


def _encoding(old: RequirementsText | None, *, name: str) -> list[LineFinding]:
    if old is None or old.encoding != "UTF-16":
        return []
    return [LineFinding(name, "the file is UTF-16; `arkdev freeze` writes UTF-8")]


def write_frozen(outcome: FreezeOutcome, path: Path) -> None:
    """Write what was frozen to `path`, as UTF-8. Raises `OutputError`."""
    try:
        path.write_text(outcome.text, encoding="utf-8", newline=outcome.newline)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=shown_path(path)) from error


def _read(file: Path, *, root: Path, goal: Target) -> tuple[RequirementsText | None, Requirements]:
    try:
        text = decoded_file(file)
    except FileNotFoundError:
        return None, Requirements()
    return text, judge_requirements(file, target=goal, root=root)


def _plugin_files(root: Path, package: Collection[Path]) -> list[Path]:
    """The files of the folder ``plugins``, and those of the plugins that the job names."""
    folder = root / PLUGIN_FOLDER
    files = [path for path in sorted(folder.rglob("*.py")) if path in package]
    files += [path for path in _named_by_job(root) if path not in files]
    if not files:
        raise _no_plugins(root)
    return files


def _no_plugins(root: Path) -> WorkspaceError:
    return WorkspaceError(
        "there are no plugins here", where=shown_path(root), hint="cd into a workspace"
    )


def _not_in_package(files: Iterable[Path], package: Collection[Path]) -> list[LineFinding]:
    """Warn of files that plugins import and that do not travel to the function."""
    advice = "name it in [plugin.package] include of arkworkspace.toml; see .dockerignore too"
    message = "plugins import it, and it is not in their package"
    return [LineFinding(shown_path(path), message, advice) for path in files if path not in package]


def _named_by_job(root: Path) -> Iterator[Path]:
    """Files of the plugins of the job. A job.py is not run: what it imports is read."""
    source = find_job_file(root)
    if source is None:
        return
    if source.suffix == ".py":
        yield from (path for path in find_imports(root, [source]).files if path != source)
        return
    job = read_job(root, source)
    for plugin in [job.rollout, *job.graders] if job else ():
        if plugin is not None and isinstance(plugin.reference, str):
            yield from own_files(root, plugin.reference.partition(":")[0])


def _check_imports(frozen: Frozen, *, root: Path) -> None:
    if not frozen.problems:
        return
    problems = [_problem(_with_sibling(finding, root=root)) for finding in frozen.problems]
    raise make_error(RequirementsError, problems, hint="nothing was written")


def _with_sibling(finding: LineFinding, *, root: Path) -> LineFinding:
    """Say so where a file of that name lies in the plugins' folder: its import lacks the folder."""
    name = finding.message.partition(" ")[0]
    for path in sorted((root / PLUGIN_FOLDER).rglob(f"{name}.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        return LineFinding(finding.where, finding.message, f"write `import {module}`")
    return finding


def _check_kept(new: FrozenText, judged: Requirements) -> None:
    """Refuse to write a file that still has lines that a function cannot install."""
    left = [_problem(finding) for finding in judged.problems if finding.where in new.kept]
    if left:
        raise make_error(RequirementsError, left, hint="nothing was written")


def _problem(finding: LineFinding) -> Problem:
    return Problem(finding.where, f"{finding.message}; {finding.advice}".removesuffix("; "))


def _diff(old: RequirementsText | None, new: FrozenText, *, name: str) -> str:
    before = old.text.splitlines() if old else []
    lines = unified_diff(before, new.text.splitlines(), name, f"{name} (frozen)", lineterm="", n=1)
    return "\n".join(map(shown, lines))
