"""What plugins log and print, attributed to their attempt (SURFACE OBS-03, GRADE-31).

Log records and printed lines of code that runs inside an attempt go to one sink, as lines
``<level> [<attempt>] <logger>: <text>``. Nothing that a plugin prints reaches the command's own
standard output. Output from outside an attempt is left alone.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from arkdev.observe.attempt import current_attempt

Sink = Callable[[str], None]


class _LogHandler(logging.Handler):
    def __init__(self, sink: Sink) -> None:
        super().__init__(logging.INFO)
        self._sink = sink
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        attempt = current_attempt.get()
        if attempt is not None:
            self._sink(f"{record.levelname} [{attempt.name}] {self.format(record)}")


class _Printed(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr while plugins run."""

    def __init__(self, sink: Sink, original: TextIO) -> None:
        self._sink = sink
        self._original = original
        self._pending = threading.local()

    def write(self, text: str) -> int:
        attempt = current_attempt.get()
        if attempt is None:
            return self._original.write(text)
        whole = getattr(self._pending, "text", "") + text
        *lines, self._pending.text = whole.split("\n")
        for line in lines:
            self._sink(f"PRINT [{attempt.name}] {line}")
        return len(text)

    def flush(self) -> None:
        self._original.flush()

    def isatty(self) -> bool:
        return self._original.isatty()

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding


@contextmanager
def plugin_output_to(sink: Sink) -> Iterator[None]:
    """Send what plugins log and print inside the block to `sink`, line by line."""
    root = logging.getLogger()
    handler, level = _LogHandler(sink), root.level
    stdout, stderr = sys.stdout, sys.stderr
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    sys.stdout, sys.stderr = _Printed(sink, stdout), _Printed(sink, stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        root.setLevel(level)
        root.removeHandler(handler)
