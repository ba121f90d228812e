"""Where output goes: results to stdout, everything else to stderr; JSON as UTF-8 bytes.

This module imports rich only when a console is asked for, so that `--version` stays fast.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arkdev.cli.streams import drop_output, results

if TYPE_CHECKING:
    from rich.console import Console

    from arkdev.errors import ArkdevError

JSON_SCHEMA_VERSION = 1


def configure_streams() -> None:
    """Let stdout and stderr replace what their encoding cannot carry, instead of failing.

    Called by `console`; the entry point calls it too, for output that is not ours (``--help``).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if os.environ.get("COLUMNS") == "0":  # as some CI runners set it: no width, not a width of 0
        del os.environ["COLUMNS"]


def console(*, is_stderr: bool = False) -> Console:
    """Make a console on stdout (results) or stderr (all else).

    Honours NO_COLOR, FORCE_COLOR, COLUMNS and dumb terminals. When the reader of a pipe goes away
    (``| head``), output is dropped and the command goes on to its own exit code.
    """
    from arkdev.cli.terminal import PipeConsole

    configure_streams()
    return PipeConsole(
        file=sys.stderr if is_stderr else results(),
        width=None if is_stderr else _width_of_results(),
        markup=False,
        highlight=False,
        emoji=False,
    )


def _width_of_results() -> int | None:
    """The width of the results' terminal, which rich no longer finds at descriptor 1."""
    if os.environ.get("COLUMNS") or not results().isatty():
        return None
    return os.get_terminal_size(results().fileno()).columns or None


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document with its ``schema_version``; UTF-8 whatever the locale, no colour."""
    versioned = {"schema_version": JSON_SCHEMA_VERSION, **document}
    text = json.dumps(versioned, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    from arkdev.job.paths import readable

    text = readable(text)  # file names under a locale that is not UTF-8
    stream = results()
    stream.flush()
    try:
        stream.buffer.write(text.encode("utf-8", "replace"))
        stream.buffer.flush()
    except BrokenPipeError:
        drop_output(stream.fileno())


def print_error(error: ArkdevError) -> None:
    """Print what happened, where, and what to do, to stderr; never a traceback."""
    from rich.text import Text

    from arkdev.cli.terminal import printable

    target = console(is_stderr=True)
    rows = [("error", "bold red", error.message), ("where", "dim", error.where)]
    rows.append(("hint", "cyan", error.hint))
    for label, style, text in rows:
        if text:
            line = Text.assemble((f"{label}: ", style), printable(text))
            target.print(line, soft_wrap=True)
