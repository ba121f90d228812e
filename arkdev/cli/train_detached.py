"""``arkdev train --detach``: the same command in the background, until its run has begun."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from arkdev.cli.detaching import Background, start_detached
from arkdev.errors import OutputError
from arkdev.flows.training_runs import OUTPUT_FILE, begun_run

_OWN = ("detach", "as_json", "output")
"""Parameters of this process; the other one is told the rest."""


def train_in_background(ctx: typer.Context, *, runs: Path, as_json: bool) -> None:
    """Start a training and say how to follow it.

    Raises `typer.Exit` with its exit code when it ends before its run has begun.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        waiting = Path(tempfile.mkdtemp(prefix=".detached-", dir=runs))
    except OSError as error:
        raise OutputError(
            f"the output of the training cannot be written: {error.strerror}", where=str(runs)
        ) from error
    output = waiting / OUTPUT_FILE
    command = [sys.executable, "-P", "-m", "arkdev", "train", *arguments_of(ctx)]
    command += ["--detached-output", str(output)]
    background = Background(command, cwd=Path.cwd(), output=output)
    try:
        pid, folder = start_detached(background, find=lambda pid: _found(pid, waiting))
    finally:
        shutil.rmtree(waiting, ignore_errors=True)
    _say(folder, pid=pid, as_json=as_json)


def arguments_of(ctx: typer.Context) -> list[str]:
    """Return the options that were given, as they can be typed again."""
    arguments: list[str] = []
    for parameter in ctx.command.params:
        name, value = parameter.name, ctx.params.get(parameter.name or "")
        if name in _OWN or value is None or value == parameter.get_default(ctx):
            continue
        option = next(text for text in parameter.opts if text.startswith("--"))
        for each in value if isinstance(value, (list, tuple)) else [value]:
            arguments += [option] if each is True else [option, str(each)]
    return arguments


def _found(pid: int, waiting: Path) -> tuple[int, Path] | None:
    folder = begun_run(waiting / OUTPUT_FILE)
    return None if folder is None else (pid, folder)


def _say(folder: Path, *, pid: int, as_json: bool) -> None:
    from arkdev.cli.output import console, print_json

    output = folder / OUTPUT_FILE
    if as_json:
        document: dict[str, Any] = {
            "run": folder.name,
            "folder": str(folder),
            "pid": pid,
            "output": str(output),
        }
        print_json(document)
        return
    out = console()
    out.print(f"run {folder.name} trains in the background (process {pid})", soft_wrap=True)
    out.print(f"  arkdev watch {folder.name}", soft_wrap=True)
    out.print(f"  arkdev stop {folder.name}", soft_wrap=True)
    out.print(f"  it writes to {output}", soft_wrap=True)
