"""An event loop beside the test's own, for servers that live as long as the test."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

from arkdev.sessions.background import BackgroundLoop

_T = TypeVar("_T")


class Background:
    """A running `BackgroundLoop` for code without a loop; it ends with the `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        background = BackgroundLoop()
        background.start()
        stack.callback(background.stop)
        self.loop = background.loop

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine there and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()
