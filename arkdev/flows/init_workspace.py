"""`arkdev init`: make a workspace from a template (SURFACE CLI-05, WS).

A workspace appears whole or not at all: it is built in a staging folder and renamed. Nothing that
exists is ever overwritten.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import arkdev
from arkdev.errors import UsageError, WorkspaceError
from arkdev.flows.type_stubs import write_stubs
from arkdev.job.schema import SCHEMA_FILE, job_schema
from arkdev.plugin.ark_sdk import NAMES

TEMPLATES = {
    "rl_demo": "weather questions answered with a tool, over several turns (ark_sdk names)",
    "rl_search_mcp_demo": "questions that take several searches, with an LLM judge (ark_sdk names)",
    "minimal": "arithmetic in a single turn: the built-in rollout and one grader (arkdev names)",
}

# what running a template in place leaves behind, in a checkout or in site-packages
_LEFTOVERS = {"__pycache__", "runs", "typings"}


def templates_root() -> Path:
    """Return the folder of the templates: in the package (a wheel) or beside it (a checkout).

    Raises WorkspaceError when neither holds them.
    """
    package = Path(arkdev.__file__).parent
    for root in (package / "templates", package.parent / "templates"):
        if all((root / name / "job.yaml").is_file() for name in TEMPLATES):
            return root
    raise WorkspaceError(
        f"the templates are missing from this installation of arkdev ({package})",
        hint="install arkdev again: pip install --force-reinstall arkdev",
    )


def describe_templates() -> str:
    """One line for each template: its name and what it is."""
    width = max(map(len, TEMPLATES))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in TEMPLATES.items())


def create_workspace(directory: Path, *, template: str) -> tuple[Path, ...]:
    """Make a workspace in `directory` and return its files, relative to it and sorted.

    `directory` is a new path or an empty folder. Raises UsageError for an unknown template and
    WorkspaceError when the place is taken or cannot be written; nothing is left behind then.
    """
    if template not in TEMPLATES:
        raise UsageError(
            f"there is no template {template!r}", hint=f"the templates are:\n{describe_templates()}"
        )
    source = templates_root() / template
    target = directory.resolve()
    try:
        _check_free(target, shown=directory)
        _create(source, target)
    except OSError as error:
        raise WorkspaceError(
            f"cannot make a workspace in {directory}: {error.strerror or error}",
            hint="choose a folder that you may write to",
        ) from error
    return tuple(sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file()))


def _check_free(target: Path, *, shown: Path) -> None:
    """Raise WorkspaceError unless `target` is a new path or an empty folder."""
    if target.is_dir():
        if any(target.iterdir()):
            raise WorkspaceError(
                f"the folder {shown} is not empty; nothing was changed",
                hint="give the name of a new folder, or of an empty one",
            )
    elif os.path.lexists(target):
        raise WorkspaceError(
            f"{shown} exists and is not a folder; nothing was changed",
            hint="give the name of a new folder",
        )


def _create(source: Path, target: Path) -> None:
    """Build the workspace in a staging folder, then move it to `target` by renaming."""
    is_new = not target.exists()
    # an existing folder may be a mount point, or the shell's own: it is filled, not replaced
    place = target.parent if is_new else target
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=".arkdev-init-") as staging:
        workspace = Path(staging) / "workspace"
        _build(source, workspace)
        if is_new:
            workspace.rename(target)
        else:
            _move_entries(workspace, target)


def _build(source: Path, workspace: Path) -> None:
    """Copy the template's files and add what editors read: stubs of `ark_sdk`, the job's schema."""
    for file in _template_files(source):
        (workspace / file).parent.mkdir(parents=True, exist_ok=True)
        # without the modes: a read-only installation must not make a read-only workspace
        shutil.copyfile(source / file, workspace / file)
    (workspace / "gitignore").rename(workspace / ".gitignore")
    write_stubs(workspace / "typings", NAMES)
    schema = json.dumps(job_schema(), indent=1)
    (workspace / SCHEMA_FILE).write_text(schema + "\n", encoding="utf-8")


def _template_files(source: Path) -> list[Path]:
    """The files of a template, relative to `source`."""
    files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    return [
        file
        for file in files
        if not any(part in _LEFTOVERS or part.startswith(".") for part in file.parts)
    ]


def _move_entries(workspace: Path, target: Path) -> None:
    """Move the entries of `workspace` into the empty folder `target`; all of them or none."""
    moved: list[Path] = []
    try:
        for entry in sorted(workspace.iterdir()):
            moved.append(entry.rename(target / entry.name))
    except BaseException:
        for entry in moved:
            entry.rename(workspace / entry.name)
        raise
