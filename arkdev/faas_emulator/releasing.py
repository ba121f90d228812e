"""Releases that are carried to their end, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def carried_out(release: Awaitable[None]) -> None:
    """Await a release; when cancelled, still wait for its end, then be cancelled."""
    task = asyncio.ensure_future(release)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            is_cancelled = True
        except Exception:  # noqa: BLE001  `result` raises it below
            break
    if is_cancelled:
        task.exception()
        raise asyncio.CancelledError
    task.result()
