"""The calls that one plugin call makes and that are held back before they are sent.

The time in which limits hold at least one back is not the plugin's: its clock stands still. When
the plugin's call has ended, those that are still held are ended too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from arkdev.errors import LateCallError


class HeldCalls:
    """Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_held = 0
        self._held_since = 0.0
        self._held_s = 0.0
        self._holds: set[Future[Any]] = set()
        self._is_open = True

    @property
    def is_holding(self) -> bool:
        """True while limits hold a call back."""
        return self._num_held > 0

    @property
    def held_s(self) -> float:
        """Seconds so far in which limits held at least one call back."""
        with self._lock:
            since = time.monotonic() - self._held_since if self._num_held else 0.0
            return self._held_s + since

    @contextmanager
    def timed(self) -> Iterator[None]:
        """A limit holds a call back inside."""
        with self._lock:
            if not self._num_held:
                self._held_since = time.monotonic()
            self._num_held += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_held -= 1
                if not self._num_held:
                    self._held_s += time.monotonic() - self._held_since

    @contextmanager
    def holding(self, hold: Future[Any]) -> Iterator[None]:
        """A call waits inside for `hold`, which is cancelled when the plugin's call ends.

        Raises `LateCallError` when that is over.
        """
        with self._lock:
            is_open = self._is_open
            if is_open:
                self._holds.add(hold)
        try:
            if not is_open:
                hold.cancel()
                raise late_call()
            yield
        finally:
            with self._lock:
                self._holds.discard(hold)

    def close(self) -> None:
        """The plugin's call has ended: end what is held, and refuse what comes."""
        with self._lock:
            self._is_open = False
            holds = list(self._holds)
        for hold in holds:
            hold.cancel()


def late_call() -> LateCallError:
    """Return the error of a call that was held back and came after the end of its attempt."""
    return LateCallError(
        "an HTTP call that was held back came after the end of its attempt and was not sent",
        hint="the attempt returned, timed out or was cancelled; await every call in it",
    )


current_held_calls: ContextVar[HeldCalls | None] = ContextVar("current_held_calls", default=None)
"""Set for a plugin's call; threads started for it inherit it."""
