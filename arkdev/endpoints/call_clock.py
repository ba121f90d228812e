"""The time of one model call: its limit, what it waited for limits of ours, its end from outside.

A call that a limit holds back is not late: its time stands still meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

from arkdev.errors import EndpointUnreachableError

_T = TypeVar("_T")


class CallClock:
    """Times one call on its event loop. `timeout_s` is for each time that it is sent; None: none.

    `waited_s` is what the call waited for limits so far, in seconds.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self.timeout_s = timeout_s
        self.waited_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._whole: asyncio.Timeout | None = None
        self._sending: asyncio.Timeout | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the whole call; after `cut` it ends with `TimeoutError`."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as self._whole:
                yield
        finally:
            self._whole = None

    def cut(self) -> None:
        """End the call that is `running`; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop has ended, and the call with it
                self._loop.call_soon_threadsafe(self._expire)

    async def limited(self, sent: Awaitable[_T]) -> _T:
        """Await the answer to a request for at most `timeout_s`.

        Raises `EndpointUnreachableError` when the time is over.
        """
        if self.timeout_s is None:
            return await sent
        try:
            async with asyncio.timeout(self.timeout_s) as self._sending:
                return await sent
        except TimeoutError:
            raise EndpointUnreachableError(
                f"no answer within the {self.timeout_s} s that the plugin asked for",
                is_timeout=True,
            ) from None
        finally:
            self._sending = None

    @property
    def is_timed_out(self) -> bool:
        """True where a cancellation comes from `timeout_s`."""
        return self._sending is not None and self._sending.expired()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Count the time inside as waiting; the limit begins anew after it."""
        started = time.perf_counter()
        if self._sending is not None:
            self._sending.reschedule(None)
        try:
            yield
        finally:
            self.waited_s += time.perf_counter() - started
            if self._sending is not None and self.timeout_s is not None:
                self._sending.reschedule(asyncio.get_running_loop().time() + self.timeout_s)

    def _expire(self) -> None:
        if self._whole is not None and self._loop is not None:
            self._whole.reschedule(self._loop.time())
