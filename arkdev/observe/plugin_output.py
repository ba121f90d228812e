"""What plugins log and print, attributed to their attempt (SURFACE OBS-03, GRADE-31).

Log records and printed lines of code that runs inside an attempt go to one sink, as lines
``<level> [<attempt>] <logger>: <text>``. Nothing that a plugin prints reaches the command's own
standard output. Output from outside an attempt is left alone.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from arkdev.observe.attempt import current_attempt

Sink = Callable[[str], None]


class _LogHandler(logging.Handler):
    def __init__(self, sink: Sink) -> None:
        super().__init__(logging.INFO)
        self._sink = sink
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        attempt = current_attempt.get()
        if attempt is None:
            return
        try:
            self._sink(f"{record.levelname} [{attempt.name}] {self.format(record)}")
        except Exception:  # noqa: BLE001 (as in the library: a bad format never fails the plugin)
            self.handleError(record)


class _Printed(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr while plugins run.

    What an attempt printed since its last line end waits for the rest of the line.
    """

    def __init__(self, sink: Sink, original: TextIO) -> None:
        self._sink = sink
        self._original = original
        self._pending: dict[str, str] = {}
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        attempt = current_attempt.get()
        if attempt is None:
            return self._original.write(text)
        with self._lock:
            *lines, rest = (self._pending.pop(attempt.name, "") + text).split("\n")
            if rest:
                self._pending[attempt.name] = rest
        for line in lines:
            self._sink(f"PRINT [{attempt.name}] {line}")
        return len(text)

    def flush_lines(self) -> None:
        """Send the lines that never ended."""
        with self._lock:
            pending, self._pending = self._pending, {}
        for name, line in pending.items():
            self._sink(f"PRINT [{name}] {line}")

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
        self._text.write(bytes(data).decode("utf-8", "replace"))
        return len(data)


def _where() -> str:
    attempt = current_attempt.get()
    return attempt.name if attempt is not None else "-"


def _warning_to(sink: Sink) -> Callable[..., None]:
    """Return what takes the place of `warnings.showwarning`: forgotten awaits tell there."""

    def show(message: Warning | str, category: type[Warning], filename: str, *place: Any) -> None:
        line = place[0] if place else 0
        sink(f"WARNING [{_where()}] {category.__name__}: {message} ({filename}:{line})")

    return show


def _loop_errors_to(sink: Sink) -> None:
    """Send what no task of the running loop awaited to `sink`, also when the block has ended.

    Such errors come when the garbage collector finds the task.
    """

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = f": {type(error).__name__}: {error}" if error is not None else ""
        sink(f"ERROR [{_where()}] asyncio: {context.get('message')}{text}")

    with suppress(RuntimeError):  # no loop is running
        asyncio.get_running_loop().set_exception_handler(handle)


@contextmanager
def plugin_output_to(sink: Sink) -> Iterator[None]:
    """Send what plugins log and print inside the block to `sink`, line by line."""
    root = logging.getLogger()
    handler, level = _LogHandler(sink), root.level
    stdout, stderr = sys.stdout, sys.stderr
    printed = _Printed(sink, stdout), _Printed(sink, stderr)
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    sys.stdout, sys.stderr = printed
    show_warning = warnings.showwarning
    warnings.showwarning = _warning_to(sink)
    _loop_errors_to(sink)
    try:
        yield
    finally:
        warnings.showwarning = show_warning
        sys.stdout, sys.stderr = stdout, stderr
        for stream in printed:
            stream.flush_lines()
        root.setLevel(level)
        root.removeHandler(handler)
