"""The clients that a proxy hands out (leaf: imports openai).

Building a client costs 50 to 90 ms, nearly all of it for its TLS context. Clients handed out here
share one transport, so one of them costs well under a millisecond.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import weakref
from typing import Any, TypeVar

import openai  # noqa: TID253 (the leaf)

from arkdev.plugin.client_settings import OURS, base_url_of
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.wrapping import wrap_own_client

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
    transport = _sync_transport()
    client = _client_of(openai.OpenAI, proxy, transport)
    wrap_own_client(client, proxy, is_async=False)
    return client


def async_client(proxy: InferenceProxy) -> openai.AsyncOpenAI:
    """Return a wrapped `openai.AsyncOpenAI`; called on an event loop."""
    transport = _async_transport()
    client = _client_of(openai.AsyncOpenAI, proxy, transport)
    wrap_own_client(client, proxy, is_async=True)
    return client


_Client = TypeVar("_Client", openai.OpenAI, openai.AsyncOpenAI)


def _client_of(kind: type[_Client], proxy: InferenceProxy, transport: Any) -> _Client:
    """Make a client. The clients of a run differ in their key alone, so they are copies of one."""
    if proxy.access is None:
        client = kind(**_options(proxy, transport))
    else:
        model: _Client | None = getattr(transport, "first_client", None)
        if model is None or base_url_of(model) != proxy.url.rstrip("/"):
            model = transport.first_client = kind(**_options(proxy, transport))
        client = copy.copy(model)
        client.api_key = proxy.jwt_token
        # a copy shares its resources, and a resource belongs to one client
        for name in ("chat", "responses"):
            setattr(client, name, type(getattr(model, name))(client))
    setattr(client, OURS, True)
    return client
