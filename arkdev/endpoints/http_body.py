"""The body of an HTTP answer: read within a limit, then decoded by what it is.

Servers mislabel their answers, so the first characters count and not the content type alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arkdev.errors import EndpointResponseError

if TYPE_CHECKING:
    import aiohttp

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A longer answer is refused: no completion is that long, and it would have to fit in memory."""

EVENT_STREAM = "text/event-stream"
_EVENT_STARTS = (b"data:", b"event:")


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the whole body; `EndpointResponseError` above `MAX_BODY_BYTES` after decompression."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            response.close()
            raise EndpointResponseError(
                f"the answer is longer than {MAX_BODY_BYTES // 1024 // 1024} MiB",
                status=response.status,
                headers={name.lower(): value for name, value in response.headers.items()},
                hint="Check that the URL is a model's endpoint.",
            )
    return bytes(body)


def is_event_stream(body: bytes, *, content_type: str) -> bool:
    """Whether `body` is a stream of events, whatever its label says."""
    start = body[:64].lstrip()
    if start.startswith(b"{"):
        return False
    return content_type == EVENT_STREAM or start.startswith(_EVENT_STARTS)


def decode_body(
    body: bytes, *, content_type: str, assemble: Callable[[str], dict[str, Any]]
) -> object:
    """Return the decoded JSON; text when it is not JSON; a stream put together by `assemble`.

    Raises `EventStreamError` for a stream that cannot be put together.
    """
    if is_event_stream(body, content_type=content_type):
        return assemble(body.decode("utf-8", errors="replace"))
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", errors="replace")
