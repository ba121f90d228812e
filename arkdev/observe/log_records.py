"""Log records of plugins, each of them once, however the plugins configure logging."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from arkdev.observe.attempt import place_here
from arkdev.observe.log_lines import LogLine, Sink


class _LogHandler(logging.Handler):
    """Sends records to a sink.

    Other handlers of the root logger that write to one of `streams` leave them alone from then on:
    what they write would be in the log a second time.
    """

    def __init__(self, sink: Sink, streams: Collection[Any], *, own_thread: int | None) -> None:
        super().__init__(logging.INFO)
        self._sink = sink
        self._streams = streams
        self._own_thread = own_thread
        self._quiet: list[logging.Handler] = []
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        place = place_here()
        if place is None and threading.get_ident() == self._own_thread:
            return
        self.keep_others_quiet()  # one that a plugin has just added comes after this one
        try:
            line = LogLine(record.created, record.levelname, record.name, self.format(record))
            self._sink(line.of(place))
        except Exception:  # noqa: BLE001 (as in the library: a bad format never fails the plugin)
            self.handleError(record)

    def keep_others_quiet(self) -> None:
        for handler in logging.getLogger().handlers:
            if handler not in self._quiet and getattr(handler, "stream", None) in self._streams:
                handler.addFilter(self._is_not_taken)
                self._quiet.append(handler)

    def let_others_write(self) -> None:
        for handler in self._quiet:
            handler.removeFilter(self._is_not_taken)

    def _is_not_taken(self, record: logging.LogRecord) -> bool:
        is_own = place_here() is None and threading.get_ident() == self._own_thread
        return is_own or record.levelno < self.level


@contextmanager
def log_records_to(
    sink: Sink, *, streams: Collection[Any], has_own_thread: bool = True
) -> Iterator[None]:
    """Send what plugins log inside the block, from INFO up, to `sink`.

    `streams` are those that stand for descriptors 1 and 2. Plugins that configure logging anew
    (``basicConfig(force=True)``, ``dictConfig``) do not end it. What the thread of the block logs
    outside of attempts is left alone, unless `has_own_thread` is False.
    """
    root = logging.getLogger()
    own_thread = threading.get_ident() if has_own_thread else None
    handler, level = _LogHandler(sink, streams, own_thread=own_thread), root.level

    def remove_another(removed: logging.Handler) -> None:
        if removed is not handler:
            logging.Logger.removeHandler(root, removed)

    root.addHandler(handler)
    handler.keep_others_quiet()
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    root.removeHandler = remove_another  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del root.removeHandler
        root.setLevel(level)
        root.removeHandler(handler)
        handler.let_others_write()
