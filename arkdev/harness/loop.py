"""An event loop that stays responsive with hundreds of rollouts in flight."""

from __future__ import annotations

import asyncio
import selectors

MAX_EVENTS_PER_TURN = 2


class _FairSelector(selectors.DefaultSelector):
    """Reports a few ready sockets at a time.

    The standard loop handles everything that is ready before it looks at its timers again. When
    512 answers arrive together and each takes a millisecond of plugin and harness code, timers
    and cancellations wait for half a second. What is left over is reported again at once.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout)[:MAX_EVENTS_PER_TURN]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop on which the harness runs."""
    return asyncio.SelectorEventLoop(_FairSelector())
