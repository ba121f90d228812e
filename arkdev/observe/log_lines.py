"""Lines that plugins logged or printed, and how many of them are kept."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from arkdev.observe.attempt import AttemptPlace

PRINT = "PRINT"
"""The level of what is printed."""
OUTPUT = "OUTPUT"
"""The level of what is written to descriptor 1 or 2 past Python, by a library or a program."""

MAX_CHARS = 16_384
"""Kept of one line (a traceback and all)."""
MAX_LINES = 1_000
"""Kept of one attempt."""
MAX_LINES_OF_NOBODY = 10_000
"""Kept of a run's lines of which nobody knows whose they are."""
_MAX_ATTEMPTS = 8_192
"""Attempts that are counted at once; the one that was silent for longest is forgotten first."""
_OWN_LOGGER = "arkdev"


@dataclass(frozen=True)
class LogLine:
    """One log record, or one printed line."""

    at: float
    """Seconds since 1970."""
    level: str
    """A level of `logging`, `PRINT` or `OUTPUT`."""
    logger: str
    """Empty for what is printed."""
    text: str
    """The message, with the traceback of an exception below it."""
    place: AttemptPlace | None = None
    """None: nobody knows."""
    num_cut: int = 0
    """Characters left out of `text`."""
    num_left_out: int = 0
    """Lines of the attempt that this one stands for."""

    def of(self, place: AttemptPlace | None) -> LogLine:
        """Return the line as one of that attempt."""
        return replace(self, place=place)

    def __str__(self) -> str:
        """``INFO [7.1] plugins.weather: asked``"""
        logger = f"{self.logger}: " if self.logger else ""
        return f"{self.level} [{self.place.name if self.place else '-'}] {logger}{self.text}"


Sink = Callable[[LogLine], None]


class BoundedLog:
    """Passes lines on to `sink`: the first `MAX_LINES` of each attempt, `MAX_CHARS` of each."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._num_lines: OrderedDict[AttemptPlace | None, int] = OrderedDict()

    def add(self, line: LogLine) -> None:
        """Pass a line on, or count it; from any thread."""
        forgotten: tuple[AttemptPlace | None, int] | None = None
        with self._lock:
            count = self._num_lines.pop(line.place, 0) + 1
            self._num_lines[line.place] = count
            if len(self._num_lines) > _MAX_ATTEMPTS:
                forgotten = self._num_lines.popitem(last=False)
        if forgotten is not None:
            self._say_left_out(*forgotten)
        if count > _max_lines(line.place):
            return
        num_cut = len(line.text) - MAX_CHARS
        if num_cut > 0:
            text = f"{line.text[:MAX_CHARS]}… ({num_cut:,} more characters)"
            line = replace(line, text=text, num_cut=num_cut)
        self._sink(line)

    def finish(self) -> None:
        """Say of which attempts lines are missing, and how many."""
        with self._lock:
            counts, self._num_lines = self._num_lines, OrderedDict()
        for place, count in counts.items():
            self._say_left_out(place, count)

    def _say_left_out(self, place: AttemptPlace | None, count: int) -> None:
        num_left_out = count - _max_lines(place)
        if num_left_out <= 0:
            return
        text = f"lines left out: {num_left_out:,}, all after the first {_max_lines(place):,}"
        line = LogLine(time.time(), "WARNING", _OWN_LOGGER, text, place)
        self._sink(replace(line, num_left_out=num_left_out))


def _max_lines(place: AttemptPlace | None) -> int:
    return MAX_LINES if place is not None else MAX_LINES_OF_NOBODY
