"""An event loop that stays responsive with hundreds of rollouts in flight."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque

MAX_EVENTS_PER_TURN = 2


class _FairSelector(selectors.DefaultSelector):
    """Reports a few ready sockets at a time.

    The standard loop handles everything that is ready before it looks at its timers again. When
    512 answers arrive together and each takes a millisecond of plugin and harness code, timers
    and cancellations wait for half a second. What is left over is reported in the next turns,
    without asking the system again, unless its socket was closed or is watched differently by then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[tuple[selectors.SelectorKey, int]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._waiting:
            self._waiting.extend(super().select(timeout))
        watched = self.get_map()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        while self._waiting and len(ready) < MAX_EVENTS_PER_TURN:
            key, events = self._waiting.popleft()
            if watched.get(key.fd) is key:
                ready.append((key, events))
        return ready


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop on which the harness runs."""
    return asyncio.SelectorEventLoop(_FairSelector())
