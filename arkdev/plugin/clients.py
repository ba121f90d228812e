"""The clients that a proxy hands out (leaf: imports openai).

Building a client costs 50 to 90 ms, nearly all of it for its TLS context. Clients handed out here
share one transport, so one of them costs well under a millisecond.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from typing import Any

import openai  # noqa: TID253 (the leaf)

from arkdev.plugin.client_settings import OURS
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.wrapping import (
    wrap_async_client_inplace,
    wrap_client_inplace,
    wrap_responses_async_client_inplace,
    wrap_responses_client_inplace,
)

_NOWHERE = "http://127.0.0.1"

_async_transports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = (
    weakref.WeakKeyDictionary()
)


class _SyncTransport(openai.DefaultHttpxClient):
    def close(self) -> None:
        """Stay open when one client is closed: the other rollouts' clients use it too."""


class _AsyncTransport(openai.DefaultAsyncHttpxClient):
    async def aclose(self) -> None:
        """Stay open, as above."""


@functools.cache
def _sync_transport() -> Any:
    return _SyncTransport()


def prepare() -> None:
    """Do once, before a run, what the first client and the first call would do."""
    clients: tuple[openai.OpenAI | openai.AsyncOpenAI, ...] = (
        openai.OpenAI(base_url=_NOWHERE, api_key="none", http_client=_sync_transport()),
        openai.AsyncOpenAI(base_url=_NOWHERE, api_key="none", http_client=_async_transport()),
    )
    for client in clients:
        _ = (client.chat.completions, client.responses)  # loads the resources' modules


def _async_transport() -> Any:
    """Return the transport of the running event loop: its connections cannot cross loops."""
    loop = asyncio.get_running_loop()
    if loop not in _async_transports:
        _async_transports[loop] = _AsyncTransport()
    return _async_transports[loop]


def _options(proxy: InferenceProxy, transport: Any) -> dict[str, Any]:
    # in a run the session retries, so that the retries of two layers do not multiply
    retries = {"max_retries": 0} if proxy.access is not None else {}
    return {
        "base_url": proxy.url,
        "api_key": proxy.jwt_token or "none",
        "http_client": transport,
        **retries,
    }


def sync_client(proxy: InferenceProxy) -> openai.OpenAI:
    """Return a wrapped `openai.OpenAI`."""
    client = openai.OpenAI(**_options(proxy, _sync_transport()))
    setattr(client, OURS, True)
    wrap_client_inplace(client, proxy)
    wrap_responses_client_inplace(client, proxy)
    return client


def async_client(proxy: InferenceProxy) -> openai.AsyncOpenAI:
    """Return a wrapped `openai.AsyncOpenAI`; called on an event loop."""
    client = openai.AsyncOpenAI(**_options(proxy, _async_transport()))
    setattr(client, OURS, True)
    wrap_async_client_inplace(client, proxy)
    wrap_responses_async_client_inplace(client, proxy)
    return client
