"""The URL of a request's proxy, as the instance that takes the request reaches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Inside = Callable[[str], Awaitable[str]]
"""Returns the URL by which instances reach what is at a URL of this machine."""


async def with_proxy_inside(body: Mapping[str, Any], inside: Inside) -> dict[str, Any]:
    """Return a request whose proxy has the URL by which instances reach it.

    Raises `EndpointUnreachableError` when it is on this machine and nothing listens there.
    """
    proxy = body.get("proxy")
    if not isinstance(proxy, dict) or not isinstance(proxy.get("url"), str):
        return dict(body)
    return {**body, "proxy": {**proxy, "url": await inside(proxy["url"])}}
