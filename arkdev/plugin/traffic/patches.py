"""Puts rules between plugins and the client libraries that they use.

Patched are the places that every call of a library passes, one request at a time, so that functions
which a plugin has bound (``from requests import get``) and clients that exist already are covered:

* httpx, httpx2 (with it both kinds of openai clients): `Client._transport_for_url`
* aiohttp: `ClientSession._request`, with a middleware for each request that is sent
* requests: `HTTPAdapter.send`
* urllib3, used directly: `HTTPConnectionPool.urlopen`

What the standard library sends (`urllib.request`, `http.client`) passes no rules, nor do child
processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType

from arkdev.plugin.imports import ImportWatch
from arkdev.plugin.traffic.exchange import TrafficRule
from arkdev.plugin.traffic.passage import Passage

_ADAPTERS = {
    "httpx": "arkdev.plugin.traffic.httpx_calls",
    "httpx2": "arkdev.plugin.traffic.httpx_calls",
    "aiohttp": "arkdev.plugin.traffic.aiohttp_calls",
    "requests": "arkdev.plugin.traffic.requests_calls",
    "urllib3": "arkdev.plugin.traffic.urllib3_calls",
}
"""By library, what patches it: ``patch(module, passage)``, which returns what undoes it."""


@contextmanager
def traffic_through(
    rules: Sequence[TrafficRule], *, own_urls: Sequence[str] = ()
) -> Iterator[None]:
    """Let the HTTP calls that are made in attempts pass `rules`, in this order.

    Whether a call belongs to one, `attempt_here` tells where it is made. Calls to URLs that begin
    with one of `own_urls` (the gateway's) pass no rules. Libraries that are imported inside are
    covered too. Without rules nothing is patched.
    """
    if not rules:
        yield
        return
    passage = Passage(rules, own_urls=own_urls)
    with ExitStack() as undo:

        def patch(module: ModuleType) -> None:
            undo.callback(import_module(_ADAPTERS[module.__name__]).patch(module, passage))

        watch = ImportWatch(_ADAPTERS, on_import=patch)
        watch.start()
        undo.callback(watch.stop)
        yield
