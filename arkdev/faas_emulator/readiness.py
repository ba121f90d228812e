"""Whether a function's worker answers at its address (`arkdev.faas_emulator.worker.wire`)."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

_ANSWER_S = 2.0


async def answers_ready(url: str) -> bool:
    """Whether ``GET /`` answers 200 there, right now."""
    parts = urlsplit(url)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            host = parts.netloc.encode("ascii")
            writer.write(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
            status = await reader.readline()
    except (OSError, TimeoutError, ValueError):
        return False  # it does not listen yet
    finally:
        if writer is not None:
            writer.close()
    return status.split(b" ")[1:2] == [b"200"]
