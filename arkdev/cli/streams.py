"""The process's own streams: what is closed is opened, and results have a descriptor of their own.

Plugins may write to descriptor 1 past Python, or start programs that do. A command that runs
plugins therefore takes descriptor 1 away from them before the first one is imported: it becomes
stderr until the process ends, and results go to a copy of what it was.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterable
from typing import NoReturn, TextIO

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class _Results:
    """The stream of results, once it is apart from sys.stdout."""

    stream: TextIO | None = None


class _Messages:
    """The stream of messages, once it is apart from sys.stderr."""

    stream: TextIO | None = None


def open_missing_streams() -> None:
    """Open /dev/null where the process was started with a closed stdin, stdout or stderr."""
    for descriptor, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(descriptor)
        except OSError:
            drop_output(descriptor)
        stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 (as long as the process)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def keep_results_apart() -> None:
    """Point descriptor 1 at stderr to the end of the process; `results` keeps the old one.

    Nothing happens where sys.stdout is not descriptor 1: somebody else looks after it then.
    """
    if _Results.stream is not None or not _is_descriptor(sys.stdout, 1):
        return
    sys.stdout.flush()
    encoding = sys.stdout.encoding
    _Results.stream = open(  # noqa: SIM115 (as long as the process)
        os.dup(1), "w", encoding=encoding, errors="replace"
    )
    os.dup2(2, 1)
    # a new stream: the old one believes that its descriptor is what it was, a terminal or a file
    sys.stdout = sys.__stdout__ = open(  # type: ignore[misc]  # noqa: SIM115
        1, "w", buffering=1, encoding=encoding, errors="replace", closefd=False
    )


def results() -> TextIO:
    """Return the stream that results are written to."""
    return _Results.stream or sys.stdout


def messages() -> TextIO:
    """Return the stream of a command's own messages while plugins run.

    Descriptor 2 is taken away from plugins meanwhile, so this is a copy.
    """
    if _Messages.stream is None and _is_descriptor(sys.stderr, 2):
        _Messages.stream = open(  # noqa: SIM115 (as long as the process)
            os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding, errors="replace"
        )
    return _Messages.stream or sys.stderr


def _is_descriptor(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError, io.UnsupportedOperation):
        return False


def drop_output(descriptor: int) -> None:
    """Point a descriptor at /dev/null, so that no later write or flush to it fails."""
    devnull = os.open(os.devnull, os.O_RDWR)
    if devnull != descriptor:
        os.dup2(devnull, descriptor)
        os.close(devnull)


def leave_behind(what: Iterable[object]) -> None:
    """Keep what plugins left and would not end; `end_process` then ends without cleaning up."""
    _left_behind.extend(what)


_left_behind: list[object] = []


def end_process(exit_code: int) -> NoReturn:
    """End the process with `exit_code`; what plugins left behind is not waited for.

    Python would wait for their threads, and a daemon thread that prints while the interpreter
    takes itself apart can bring it down.
    """
    threads = [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    if _Results.stream is not None and (threads or _left_behind or _has_abandoned_calls()):
        for stream in (_Results.stream, _Messages.stream or sys.stderr, sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


def _has_abandoned_calls() -> bool:
    plugin_threads = sys.modules.get("arkdev.plugin.threads")  # a command without plugins has none
    return plugin_threads is not None and bool(plugin_threads.abandoned_calls())
