"""The time of one model call: its limit, what it waited for limits of ours, its end from outside.

A call that a limit holds back is not late: its time stands still meanwhile. The limits may live on
another loop than the call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import TypeVar

from arkdev.errors import EndpointUnreachableError

_T = TypeVar("_T")


class CallClock:
    """Times one call on its event loop; entered, it spans the call: after `cut` that ends with
    `TimeoutError`.

    `timeout_s` is for each time that the call is sent; None: none. `waited_s` is what it waited for
    limits so far, in seconds; `while_held` is entered for each of these waits.
    """

    def __init__(
        self,
        timeout_s: float | None = None,
        *,
        while_held: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.timeout_s = timeout_s
        self._while_held = while_held
        self.waited_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._whole: asyncio.Timeout | None = None
        self._sending: asyncio.Timeout | None = None
        self._last_sending: asyncio.Timeout | None = None

    async def __aenter__(self) -> CallClock:
        self._loop = asyncio.get_running_loop()
        self._whole = asyncio.timeout(None)
        await self._whole.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        whole, self._whole = self._whole, None
        if whole is not None:
            await whole.__aexit__(kind, error, trace)

    def cut(self) -> None:
        """End the call that runs; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop has ended, and the call with it
                self._loop.call_soon_threadsafe(self._expire)

    async def limited(self, sent: Awaitable[_T]) -> _T:
        """Await the answer to a request for at most `timeout_s`.

        Raises `EndpointUnreachableError` when the time is over.
        """
        if self.timeout_s is None:
            return await sent
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.timeout_s) as self._sending:
                self._last_sending = self._sending
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
        return self._last_sending is not None and self._last_sending.expired()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Count the time inside as waiting; the limit begins anew after it. From any loop."""
        started = time.perf_counter()
        self._on_its_loop(self._stop)
        try:
            with self._while_held():
                yield
        finally:
            self.waited_s += time.perf_counter() - started
            self._on_its_loop(self._begin_anew)

    def _on_its_loop(self, action: Callable[[], None]) -> None:
        if self._sending is None or self._loop is None:
            return
        if self._loop is asyncio.get_running_loop():
            action()
            return
        with suppress(RuntimeError):  # its loop has ended, and the call with it
            self._loop.call_soon_threadsafe(action)

    def _stop(self) -> None:
        if self._sending is not None and not self._sending.expired():
            self._sending.reschedule(None)

    def _begin_anew(self) -> None:
        sending = self._sending
        if sending is not None and not sending.expired() and self.timeout_s is not None:
            sending.reschedule(asyncio.get_running_loop().time() + self.timeout_s)

    def _expire(self) -> None:
        if self._whole is not None and self._loop is not None:
            self._whole.reschedule(self._loop.time())
