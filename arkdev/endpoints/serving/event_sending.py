"""Send an answer as a stream of events, complete or while it comes (leaf: imports aiohttp)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress

from aiohttp import web  # noqa: TID253 - only the servers import this leaf


async def send_events(
    request: web.Request,
    lines: Iterable[str],
    *,
    duration_s: float = 0.0,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Answer `request` with `lines` (`event_stream.event_lines`), spread over `duration_s` seconds.

    A client that goes away ends the stream; that is no error.
    """
    sent = list(lines)
    pause_s = duration_s / max(1, len(sent))

    async def paced() -> AsyncIterator[str]:
        for line in sent:
            if pause_s:
                await asyncio.sleep(pause_s)
            yield line

    return await send_events_as_they_come(request, paced(), headers=headers)


async def send_events_as_they_come(
    request: web.Request, lines: AsyncIterator[str], *, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Answer `request` with each of `lines` as soon as it is there."""
    response = web.StreamResponse(
        headers={
            **(headers or {}),
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
        }
    )
    with suppress(ConnectionError):
        await response.prepare(request)
        async for line in lines:
            await response.write(line.encode())
        await response.write_eof()
    return response
