"""An event loop in a thread of its own, for callers in any thread and any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from arkdev.errors import PolicyEngineError

T = TypeVar("T")


class IoThread:
    """Runs coroutines; cancelling the wait for one cancels it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` there; return its result here. `PolicyEngineError` once it is closed."""
        if self._loop.is_closed():
            coroutine.close()
            raise PolicyEngineError(f"{self._thread.name} has been closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Cancel what runs there, and end the thread."""
        await self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


class Gate:
    """Many may be inside together, or one alone, who waits until the others have left."""

    def __init__(self) -> None:
        self._num_inside = 0
        self._is_shut = False
        self._change = asyncio.Condition()

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Be inside with others."""
        async with self._change:
            await self._change.wait_for(lambda: not self._is_shut)
            self._num_inside += 1
        try:
            yield
        finally:
            self._num_inside -= 1
            await asyncio.shield(self._tell())

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Let nobody else in, and be inside alone."""
        async with self._change:
            await self._change.wait_for(lambda: not self._is_shut)
            self._is_shut = True
        try:
            async with self._change:
                await self._change.wait_for(lambda: not self._num_inside)
            yield
        finally:
            self._is_shut = False
            await asyncio.shield(self._tell())

    async def _tell(self) -> None:
        async with self._change:
            self._change.notify_all()
