"""Limits on one event loop: a rate, a budget of tokens, and a number of calls under way.

All of them serve first come, first served. Rates are even: `aiolimiter` alone would let a whole
minute's calls out at once and as many again in the minute that follows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiolimiter import AsyncLimiter

_MINUTE_S = 60.0
_BURST_S = 0.1
"""So much of a rate may go at once: timers of a few milliseconds would cost more than they give."""


def even_rate(per_minute: int) -> AsyncLimiter:
    """Return a limiter of `per_minute`, evenly spread; at most 0.1 s worth goes at once."""
    burst = max(1.0, per_minute * _BURST_S / _MINUTE_S)
    return AsyncLimiter(burst, burst * _MINUTE_S / per_minute)


class TokenBudget:
    """At most `per_minute` tokens: a call goes once the tokens of the calls before it are paid.

    They are paid at an even rate. What a call takes is an estimate that is settled later; a
    settlement gives at most its own difference as credit, so that quiet minutes save nothing up.
    """

    def __init__(self, per_minute: int) -> None:
        self._share = per_minute * _BURST_S / _MINUTE_S
        self._limiter = AsyncLimiter(self._share, _BURST_S)
        self._turn = asyncio.Lock()
        self._owed = 0.0
        self._paying: asyncio.Task[None] | None = None

    async def take(self, tokens: float) -> None:
        """Wait until nothing is owed, then owe `tokens`."""
        async with self._turn:
            while self._paying is not None and not self._paying.done():
                await asyncio.shield(self._paying)
            self._owe(tokens)

    def settle(self, difference: float) -> None:
        """Correct what is owed by `difference` tokens, those used less those taken."""
        settled = max(self._owed + difference, min(self._owed, difference))
        self._owe(settled - self._owed)

    def _owe(self, tokens: float) -> None:
        self._owed += tokens
        if self._owed > 0 and (self._paying is None or self._paying.done()):
            self._paying = asyncio.get_running_loop().create_task(self._pay())

    async def _pay(self) -> None:
        while self._owed > 0:
            part = min(self._owed, self._share)
            self._owed -= part
            await self._limiter.acquire(part)


class Gate:
    """Lets at most `limit()` calls through at once; the limit may change."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._num_inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_waited_for(self) -> bool:
        """True while calls wait."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return bool(self._waiting)

    @property
    def has_place(self) -> bool:
        """True when a call would not have to wait."""
        return self._num_inside < self._limit() and not self.is_waited_for

    async def enter(self) -> None:
        """Wait for a place and take it."""
        if self.has_place:
            self._num_inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place was given at the same moment
                self.leave()
            raise

    def enter_over(self) -> bool:
        """Take a place at once, one too many if need be; tell whether it is."""
        is_over = not self.has_place
        self._num_inside += 1
        return is_over

    def leave(self) -> None:
        """Give a place back."""
        self._num_inside -= 1
        self.let_in()

    def let_in(self) -> None:
        """Give the free places to those who wait, in order; also after the limit has grown."""
        while self._waiting and self._num_inside < self._limit():
            turn = self._waiting.popleft()
            if not turn.done():
                self._num_inside += 1
                turn.set_result(None)
