"""How many calls an endpoint takes at once, found out while calling it.

Additive increase, multiplicative decrease, as TCP does it: until the first decrease every answer
adds one (which doubles the limit in each round trip), afterwards a whole round of answers adds one.
A 429, a 503 or a timeout halves the limit, once for all calls that were sent before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from arkdev.errors import EndpointError, EndpointResponseError, EndpointUnreachableError

_OVERLOADED = (429, 503)


def is_overload(error: EndpointError) -> bool:
    """Whether an error says that the endpoint had too much to do."""
    if isinstance(error, EndpointUnreachableError):
        return error.is_timeout
    return isinstance(error, EndpointResponseError) and error.status in _OVERLOADED


@dataclass(frozen=True)
class Sustained:
    """What an endpoint sustained, over the time in which the limit held calls back.

    That time begins anew with the first decrease: before it the limit was only being looked for.
    """

    settled_at: int
    """The limit at the end."""
    num_decreases: int
    in_flight: float | None
    """Calls under way, on average; None when the limit never held a call back."""
    requests_per_s: float | None
    """Answers in a second."""


class AdaptiveLimit:
    """A limit between 1 and `most`. Not thread-safe: one event loop uses it.

    `clock` gives seconds. Each call is `sent`, then `answered`, `overloaded` or `dropped`, with
    what `sent` returned.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._level = 1.0
        self._num_decreases = 0
        self._in_flight = 0
        self._is_holding_back = False
        self._last_change = clock()
        self._busy_s = 0.0
        self._in_flight_s = 0.0
        self._num_answers = 0

    @property
    def limit(self) -> int:
        """How many calls may be under way."""
        return int(self._level)

    def sent(self) -> int:
        """Begin a call; returns how often the limit had been decreased by then."""
        self._advance()
        self._in_flight += 1
        return self._num_decreases

    def answered(self, sent_after: int) -> None:
        """End a call that was answered; the limit grows where it was used up."""
        is_used_up = self._in_flight >= self.limit
        self.dropped(sent_after)
        if self._is_holding_back:
            self._num_answers += 1
        if is_used_up:
            step = 1.0 if not self._num_decreases else 1.0 / self._level
            self._level = min(float(self._most), self._level + step)

    def overloaded(self, sent_after: int) -> None:
        """End a call that the endpoint could not take."""
        self.dropped(sent_after)
        if sent_after < self._num_decreases:  # it was sent under an older limit
            return
        if not self._num_decreases:
            self._busy_s = self._in_flight_s = 0.0
            self._num_answers = 0
        self._num_decreases += 1
        self._level = max(1.0, self._level / 2)

    def dropped(self, _sent_after: int) -> None:
        """End a call that says nothing about the endpoint."""
        self._advance()
        self._in_flight -= 1

    def holds_back(self, is_holding_back: bool) -> None:
        """Note whether calls wait for the limit."""
        self._advance()
        self._is_holding_back = is_holding_back

    def sustained(self) -> Sustained:
        """Return what was seen so far."""
        self._advance()
        seconds = self._busy_s
        return Sustained(
            settled_at=self.limit,
            num_decreases=self._num_decreases,
            in_flight=self._in_flight_s / seconds if seconds else None,
            requests_per_s=self._num_answers / seconds if seconds else None,
        )

    def _advance(self) -> None:
        now = self._clock()
        if self._is_holding_back:
            self._busy_s += now - self._last_change
            self._in_flight_s += (now - self._last_change) * self._in_flight
        self._last_change = now
