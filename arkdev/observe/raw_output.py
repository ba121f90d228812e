"""What is written to descriptors 1 and 2 past Python, by libraries and by programs.

On a terminal it would go into the midst of what is drawn there: it becomes lines of the log.
Elsewhere it goes where it went, with its secrets masked.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from arkdev.observe.line_buffer import LineBuffer
from arkdev.observe.log_lines import OUTPUT, LogLine, Sink

_READ_BYTES = 65_536
_PIPE_BYTES = 2**20
"""Code that holds Python's lock while it writes more would wait for the reader for ever."""
_LAST_WAIT_S = 0.5
"""For what was written just before the end; a program that goes on keeps its pipe."""


@contextmanager
def raw_output_to(sink: Sink, *, mask: Callable[[str], str]) -> Iterator[None]:
    """Send what is written past Python to `sink`, line by line, where descriptor 2 is a terminal.

    Elsewhere write it, masked, to where descriptor 2 went. Descriptor 1 is taken too on a terminal
    and where it is the same file as descriptor 2. Whoever draws on the terminal meanwhile needs a
    copy of its descriptor, made before.
    """
    descriptors = _taken_descriptors()
    if not descriptors:
        yield
        return
    _flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in descriptors}
    if os.isatty(2):
        passed, errors = _to_sink(sink), "replace"
    else:
        passed, errors = _to_descriptor(os.dup(2), mask), "surrogateescape"
    read_end, write_end = os.pipe()
    with suppress(OSError, AttributeError):  # no Linux, or no more memory for pipes
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    for descriptor in descriptors:
        os.dup2(write_end, descriptor)
    os.close(write_end)
    reader = threading.Thread(
        target=_read,
        args=(read_end, LineBuffer(mask, errors=errors), passed),
        name="arkdev-raw-output",
        daemon=True,
    )
    reader.start()
    tells_of_crashes = faulthandler.is_enabled()
    if tells_of_crashes:  # nobody reads the pipe after a crash
        faulthandler.enable(kept[2])
    try:
        yield
    finally:
        _flush()
        for descriptor, copy in kept.items():
            os.dup2(copy, descriptor)
        if tells_of_crashes:
            faulthandler.enable(2)
        for copy in kept.values():
            os.close(copy)
        reader.join(_LAST_WAIT_S)


def _taken_descriptors() -> tuple[int, ...]:
    try:
        if os.isatty(2) or os.path.sameopenfile(1, 2):
            return (1, 2)
        return (2,)
    except OSError:  # one of them is closed
        return ()


def _to_sink(sink: Sink) -> Callable[[str | None], None]:
    def passed(line: str | None) -> None:
        if line is not None:
            sink(LogLine(time.time(), OUTPUT, "", line.rstrip("\r")))

    return passed


def _to_descriptor(descriptor: int, mask: Callable[[str], str]) -> Callable[[str | None], None]:
    def passed(line: str | None) -> None:
        if line is None:
            os.close(descriptor)
            return
        data = f"{mask(line)}\n".encode("utf-8", "surrogateescape")
        with suppress(OSError):  # nobody reads it any more
            while data:
                data = data[os.write(descriptor, data) :]

    return passed


def _read(descriptor: int, buffer: LineBuffer, passed: Callable[[str | None], None]) -> None:
    """Pass lines on until the last writer is gone, then None."""
    while data := os.read(descriptor, _READ_BYTES):
        for line in buffer.add_bytes(data):
            passed(line)
    if not buffer.is_empty:
        passed(buffer.rest())
    passed(None)
    os.close(descriptor)


def _flush() -> None:
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
