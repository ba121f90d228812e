"""What plugins log and print, attributed to their attempt (SURFACE OBS-03, GRADE-31).

Log records and printed lines of code that runs inside an attempt go to one sink as `LogLine`s, and
so do those of threads of which nobody knows whose they are. Nothing that a plugin prints reaches
the command's own standard output. What the thread of the block itself prints outside of attempts is
the command's own and is left alone.
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from arkdev.observe.attempt import AttemptPlace, place_here
from arkdev.observe.line_buffer import LineBuffer
from arkdev.observe.log_lines import PRINT, BoundedLog, LogLine, Sink, as_it_is
from arkdev.observe.log_records import log_records_to
from arkdev.observe.raw_output import raw_output_to

_MAX_PENDING_CHARS = 2_000_000
"""Kept of a printed line before its end: a longer one than is kept in the log is cut once."""


class _Printed(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr while plugins run.

    What an attempt printed since its last line end waits for the rest of the line.
    """

    def __init__(self, sink: Sink, original: TextIO, *, mask: Callable[[str], str]) -> None:
        self._sink = sink
        self._original = original
        self._mask = mask
        self._own_thread = threading.get_ident()
        self._pending: dict[tuple[AttemptPlace | None, int], LineBuffer] = {}
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        place = place_here()
        if place is None and threading.get_ident() == self._own_thread:
            return self._original.write(text)
        self._add(place, lambda buffer: buffer.add(text))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Write text in UTF-8, of which a character may be split between two calls."""
        place = place_here()
        if place is None and threading.get_ident() == self._own_thread:
            self._original.write(data.decode("utf-8", "replace"))
            return
        self._add(place, lambda buffer: buffer.add_bytes(data))

    def _add(self, place: AttemptPlace | None, add: Callable[[LineBuffer], list[str]]) -> None:
        # the parts of an attempt's line may come from several threads
        key = (place, 0 if place is not None else threading.get_ident())
        with self._lock:
            buffer = self._pending.pop(key, None) or LineBuffer(
                self._mask, max_chars=_MAX_PENDING_CHARS
            )
            lines = add(buffer)
            if not buffer.is_empty:
                self._pending[key] = buffer
        for line in lines:
            self._send(line, place)

    def flush_lines(self) -> None:
        """Send the lines that never ended."""
        with self._lock:
            pending, self._pending = self._pending, {}
        for (place, _), buffer in pending.items():
            self._send(buffer.rest(), place)

    def _send(self, text: str, place: AttemptPlace | None) -> None:
        self._sink(LogLine(time.time(), PRINT, "", text).of(place))

    def flush(self) -> None:
        self._original.flush()

    def isatty(self) -> bool:
        return self._original.isatty()

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    @property
    def buffer(self) -> io.RawIOBase:
        """For ``sys.stdout.buffer.write(b"...")``."""
        return _PrintedBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)  # reconfigure, mode, ...


class _PrintedBytes(io.RawIOBase):
    def __init__(self, text: _Printed) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write_bytes(bytes(data))
        return len(data)


def _warning_to(sink: Sink) -> Callable[..., None]:
    """Return what takes the place of `warnings.showwarning`: forgotten awaits tell there."""

    def show(message: Warning | str, category: type[Warning], filename: str, *place: Any) -> None:
        line = place[0] if place else 0
        text = f"{message} ({filename}:{line})"
        sink(LogLine(time.time(), "WARNING", category.__name__, text).of(place_here()))

    return show


def _loop_errors_to(sink: Sink) -> None:
    """Send what no task of the running loop awaited to `sink`, also when the block has ended.

    Such errors come when the garbage collector finds the task.
    """

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = f": {type(error).__name__}: {error}" if error is not None else ""
        text = f"{context.get('message')}{text}"
        sink(LogLine(time.time(), "ERROR", "asyncio", text).of(place_here()))

    with suppress(RuntimeError):  # no loop is running
        asyncio.get_running_loop().set_exception_handler(handle)


@contextmanager
def plugin_output_to(sink: Sink, *, mask: Callable[[str], str] = as_it_is) -> Iterator[None]:
    """Send what plugins log and print inside the block to `sink`, line by line.

    Where descriptor 2 is a terminal that includes what is written past Python, which would disturb
    what is drawn there. `mask` takes secrets out of a text, also of what is written past Python and
    goes on to where descriptor 2 went.
    """
    log = BoundedLog(sink, mask=mask)
    stdout, stderr = sys.stdout, sys.stderr
    printed = [_Printed(log.add, stream, mask=mask) for stream in (stdout, stderr)]
    show_warning = warnings.showwarning
    streams = [stdout, stderr, sys.__stdout__, sys.__stderr__, *printed]
    with raw_output_to(log.add, mask=mask), log_records_to(log.add, streams=streams):
        sys.stdout, sys.stderr = printed
        warnings.showwarning = _warning_to(log.add)
        _loop_errors_to(log.add)
        try:
            yield
        finally:
            warnings.showwarning = show_warning
            sys.stdout, sys.stderr = stdout, stderr
            for stream in printed:
                stream.flush_lines()
    log.finish()
