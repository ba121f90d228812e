"""Send an answer that is complete as a stream of events (leaf: imports aiohttp)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
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
    response = web.StreamResponse(
        headers={
            **(headers or {}),
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
        }
    )
    sent = list(lines)
    pause_s = duration_s / max(1, len(sent))
    with suppress(ConnectionError):
        await response.prepare(request)
        for line in sent:
            if pause_s:
                await asyncio.sleep(pause_s)
            await response.write(line.encode())
        await response.write_eof()
    return response
