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
"""Kept of the lines of nobody, for each logger and each kind of output."""
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


_Source = tuple[AttemptPlace | None, str]
"""Of which lines are counted together. Of an attempt all: the text is empty then."""


def as_it_is(text: str) -> str:
    """Return `text`: nothing in it is a secret."""
    return text


class BoundedLog:
    """Passes lines on to `sink`: the first `MAX_LINES` of each attempt, `MAX_CHARS` of each.

    `mask` takes the secrets out of a text before it is cut, which would hide them from whoever
    looks for them later.
    """

    def __init__(self, sink: Sink, *, mask: Callable[[str], str] = as_it_is) -> None:
        self._sink = sink
        self._mask = mask
        self._lock = threading.Lock()
        self._num_lines: OrderedDict[_Source, int] = OrderedDict()

    def add(self, line: LogLine) -> None:
        """Pass a line on, or count it; from any thread."""
        forgotten: tuple[_Source, int] | None = None
        # one noisy program must not hide what other threads say
        source = (line.place, "" if line.place is not None else line.logger or line.level)
        with self._lock:
            count = self._num_lines.pop(source, 0) + 1
            self._num_lines[source] = count
            if len(self._num_lines) > _MAX_ATTEMPTS:
                forgotten = self._num_lines.popitem(last=False)
        if forgotten is not None:
            self._say_left_out(*forgotten)
        if count > _max_lines(line.place):
            return
        text = self._mask(line.text)
        num_cut = max(len(text) - MAX_CHARS, 0)
        if num_cut:
            text = f"{text[:MAX_CHARS]}… ({num_cut:,} more characters)"
        self._sink(replace(line, text=text, num_cut=num_cut))

    def finish(self) -> None:
        """Say of which attempts lines are missing, and how many."""
        with self._lock:
            counts, self._num_lines = self._num_lines, OrderedDict()
        for source, count in counts.items():
            self._say_left_out(source, count)

    def _say_left_out(self, source: _Source, count: int) -> None:
        place, name = source
        num_left_out = count - _max_lines(place)
        if num_left_out <= 0:
            return
        of = f" of {name}" if name else ""
        text = f"lines{of} left out: {num_left_out:,}, all after the first {_max_lines(place):,}"
        line = LogLine(time.time(), "WARNING", _OWN_LOGGER, text, place)
        self._sink(replace(line, num_left_out=num_left_out))


def _max_lines(place: AttemptPlace | None) -> int:
    return MAX_LINES if place is not None else MAX_LINES_OF_NOBODY
