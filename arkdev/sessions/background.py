"""An event loop in a daemon thread: it serves the gateway and the calls of synchronous plugins.

It is apart from the harness's loop so that a plugin which blocks that one still gets its answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_STOP_TIMEOUT_S = 2.0


class BackgroundLoop:
    """Runs an event loop in a thread from `start` to `stop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="arkdev-gateway", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine there and wait for its result here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def stop(self) -> None:
        """Cancel what runs there and end the thread; never waits long for a stuck callback."""
        self.loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.create_task(self._stop_after(tasks))

    async def _stop_after(self, tasks: set[asyncio.Task[Any]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        self.loop.stop()
