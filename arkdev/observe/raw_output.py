"""What is written to descriptors 1 and 2 past Python, by libraries and by programs.

On a terminal it would go into the midst of what is drawn there. Elsewhere it is left alone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from arkdev.observe.log_lines import MAX_CHARS, OUTPUT, LogLine, Sink

_READ_BYTES = 65_536
_LAST_WAIT_S = 0.5
"""For what was written just before the end; a program that goes on keeps its pipe."""


@contextmanager
def raw_output_to(sink: Sink) -> Iterator[None]:
    """Send what is written past Python to `sink`, line by line, where descriptor 2 is a terminal.

    Whoever draws on the terminal meanwhile needs a copy of its descriptor, made before.
    """
    if not _is_terminal(2):
        yield
        return
    _flush()
    kept = [os.dup(1), os.dup(2)]
    read_end, write_end = os.pipe()
    for descriptor in (1, 2):
        os.dup2(write_end, descriptor)
    os.close(write_end)
    reader = threading.Thread(
        target=_read, args=(read_end, sink), name="arkdev-raw-output", daemon=True
    )
    reader.start()
    try:
        yield
    finally:
        _flush()
        for descriptor, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
        reader.join(_LAST_WAIT_S)


def _read(descriptor: int, sink: Sink) -> None:
    """Send lines until the last writer is gone. A line without an end is sent in pieces."""
    rest = b""
    while True:
        data = os.read(descriptor, _READ_BYTES)
        *lines, rest = (rest + data).split(b"\n")
        if rest and (not data or len(rest) > MAX_CHARS):
            lines.append(rest)
            rest = b""
        for line in lines:
            sink(LogLine(time.time(), OUTPUT, "", line.decode("utf-8", "replace").rstrip("\r")))
        if not data:
            os.close(descriptor)
            return


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _flush() -> None:
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
