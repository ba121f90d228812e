"""The heartbeat of an event loop, as `stall_watch` reads it from another thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

from arkdev.harness.stalls import Stall
from arkdev.harness.thread_times import Reading

BEAT_S = 0.02
"""Between two heartbeats of a loop, and between two samples of a late one."""
_LATE_S = 0.02
"""So much later than it should be, a heartbeat is looked into."""
_ASK_EVERY_S = 0.1


class WatchedLoop:
    """An event loop, its heartbeat, and the stall that it may be in.

    The harness's loop beats by itself. The background loop answers to the watcher: would it beat
    too, its thread and the watcher's would compete for the moment when code that never let the
    interpreter go, as a large `json.loads`, comes to its end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_harness: bool) -> None:
        self.loop = loop
        self.is_harness = is_harness
        self.thread = self.native_id = 0
        self.beat_at = 0.0
        self.gaps: deque[tuple[float, float]] = deque(maxlen=64)
        self.stall: Stall | None = None
        self.reading: Reading | None = None
        self.leaf: tuple[int, int] | None = None
        """The innermost frame and its instruction when it was last sampled."""
        self._handle: asyncio.TimerHandle | None = None
        self._is_asked = False

    def start(self) -> None:
        """Begin the heartbeat; to be called on the loop."""
        self.thread, self.native_id = threading.get_ident(), threading.get_native_id()
        self.beat_at = time.perf_counter()
        if self.is_harness:
            self._handle = self.loop.call_later(BEAT_S, self._beat)

    def stop(self) -> None:
        """End it; to be called on the loop."""
        if self._handle is not None:
            self._handle.cancel()

    def ask(self, now: float) -> None:
        """Let a loop that does not beat by itself answer, if it has answered before."""
        if not self.is_harness and not self._is_asked and now - self.beat_at > _ASK_EVERY_S:
            self._is_asked = True
            self.beat_at = now - BEAT_S
            self.loop.call_soon_threadsafe(self._answer)

    def note_gap(self) -> None:
        """Note that the loop runs now, and did not since the beat before, if that is long ago."""
        now = time.perf_counter()
        if now - self.beat_at > BEAT_S + _LATE_S:
            self.gaps.append((self.beat_at, now))
        self.beat_at = now

    def is_late(self, now: float) -> bool:
        """True when a heartbeat is overdue."""
        is_expected = self.is_harness or self._is_asked
        return is_expected and now - self.beat_at > BEAT_S + _LATE_S

    def _beat(self) -> None:
        self.note_gap()
        self._handle = self.loop.call_later(BEAT_S, self._beat)

    def _answer(self) -> None:
        self._is_asked = False
        self.note_gap()
