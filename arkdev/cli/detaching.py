"""A command that goes on in a process of its own, in the background, once it is up."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import typer

from arkdev.cli.streams import messages

T = TypeVar("T")

_LOOK_EVERY_S = 0.1
_ENDS_WITHIN_S = 30.0


@dataclass(frozen=True)
class Background:
    """A command line to start, in a session of its own."""

    command: Sequence[str]
    cwd: Path
    output: Path
    """The file that it writes to."""


def start_detached(background: Background, *, find: Callable[[int], T | None]) -> T:
    """Start it and show what it says until `find`, given its process id, finds it up.

    Raises `typer.Exit` with its exit code when it ends before. Ctrl-C meanwhile ends it.
    """
    with background.output.open("ab") as sink, background.output.open("rb") as said:
        process = subprocess.Popen(
            background.command,
            cwd=background.cwd,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
        try:
            found = _wait(process, find, said=said)
        except BaseException:
            _end(process)
            raise
        process.returncode = 0  # nobody waits for it any more
        return found


def _wait(
    process: subprocess.Popen[bytes], find: Callable[[int], T | None], *, said: BinaryIO
) -> T:
    while True:
        code = process.poll()
        found = find(process.pid)
        messages().write(said.read().decode("utf-8", "replace"))
        messages().flush()
        if found is not None:
            return found
        if code is not None:
            raise typer.Exit(code or 1)
        time.sleep(_LOOK_EVERY_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_WITHIN_S)
    if process.poll() is None:
        os.kill(process.pid, 9)
        process.wait()
