"""Runs uv, which comes as a program in a package of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from arkdev.errors import MissingExtraError, RequirementsError
from arkdev.faas_emulator.requirement_files.requirement_sources import shown

_INSTALL = 'pip install "arkdev[faas]"'
_VARIABLES = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
_NOT_PASSED_ON = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "FORCE_COLOR")
"""Variables of the environment that arkdev itself runs in."""


def find_uv() -> str:
    """Return the path of uv's program. Raises `MissingExtraError`."""
    try:
        uv: Any = importlib.import_module("uv")
        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise MissingExtraError(
            "uv is not installed; it says what an environment has, and makes those of functions",
            hint=_INSTALL,
        ) from error


def ask_uv(*arguments: str, given: str = "") -> str:
    """Run uv to its end, `given` on its standard input, and return what it prints.

    Raises `RequirementsError` with uv's words when it refuses, and `MissingExtraError`.
    """
    done = subprocess.run(
        [find_uv(), "--quiet", *arguments],
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        env=_environment(),
    )
    if done.returncode:
        said = "\n  ".join(map(shown, done.stderr.strip().splitlines()[-8:]))
        raise RequirementsError(
            f"uv {' '.join(arguments[:2])} failed: {said or 'it does not say why'}",
            hint="--python names another environment",
        )
    return done.stdout


def _environment() -> dict[str, str]:
    environ = {name: text for name, text in os.environ.items() if name not in _NOT_PASSED_ON}
    return {**environ, **_VARIABLES}


async def run_uv(arguments: Sequence[str], *, on_line: Callable[[str], None]) -> int:
    """Run uv, tell `on_line` of each line that it writes, return its exit code.

    Of uv's settings those of the user and of the environment count, none of a folder: uv looks for
    them from where it runs upwards, so it runs in the root. Paths have to be absolute. When
    cancelled, uv and all that it started are ended.
    """
    process = await asyncio.create_subprocess_exec(
        find_uv(),
        *arguments,
        cwd="/",
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        await _read(process, on_line)
        return await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())


async def _read(process: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    waiting = b""
    while chunk := await process.stdout.read(65_536):
        *lines, waiting = (waiting + chunk).split(b"\n")
        for line in lines:
            on_line(line.decode("utf-8", "replace").rstrip())
    if waiting:
        on_line(waiting.decode("utf-8", "replace").rstrip())
