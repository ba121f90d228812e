"""Calls of requests (leaf: imports requests, and urllib3 with it)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import requests
import urllib3

from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse
from arkdev.plugin.traffic.passage import (
    Passage,
    described,
    is_stream,
    joined_headers,
)
from arkdev.plugin.traffic.urllib3_calls import on_their_way, response_of

_ERRORS = {
    "timeout": requests.exceptions.ReadTimeout,
    "unreachable": requests.exceptions.ConnectionError,
}


def patch(module: ModuleType, passage: Passage) -> Callable[[], None]:
    """Let the calls of the module `requests` pass; return what undoes it."""
    adapter = module.adapters.HTTPAdapter
    original = adapter.send
    adapter.send = _sending(original, passage)

    def undo() -> None:
        adapter.send = original

    return undo


def _sending(original: Callable[..., Any], passage: Passage) -> Callable[..., Any]:
    @functools.wraps(original)
    def send(
        adapter: Any, request: requests.PreparedRequest, stream: bool = False, *args: Any, **kw: Any
    ) -> requests.Response:
        def from_network() -> tuple[requests.Response, HttpResponse]:
            token = on_their_way.set((*on_their_way.get(), passage))
            try:
                response = original(adapter, request, stream, *args, **kw)
            finally:
                on_their_way.reset(token)
            headers = _headers(response)
            if stream or is_stream(response.status_code, headers):
                return response, HttpResponse(response.status_code, headers, None)
            return response, HttpResponse(response.status_code, headers, response.content)

        if not passage.is_for(request.url or ""):
            return original(adapter, request, stream, *args, **kw)  # type: ignore[no-any-return]
        given = passage.through(_seen(request), from_network, failure=_failure)
        if isinstance(given, HttpFailure):
            error = _ERRORS.get(given.kind, requests.exceptions.ChunkedEncodingError)
            raise error(given.message, request=request)
        if isinstance(given, HttpResponse):
            raw = response_of(given, request.method, preload_content=False)
            return adapter.build_response(request, raw)  # type: ignore[no-any-return]
        return given

    return send


def _seen(request: requests.PreparedRequest) -> HttpRequest:
    body = request.body
    if isinstance(body, str):
        body = body.encode()
    return HttpRequest(
        library="requests",
        method=request.method or "GET",
        url=request.url or "",
        headers=joined_headers((name, _text(value)) for name, value in request.headers.items()),
        body=body if isinstance(body, bytes) else None if body else b"",
    )


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _headers(response: requests.Response) -> dict[str, str]:
    raw = getattr(response.raw, "headers", None)
    several = raw.iteritems() if isinstance(raw, urllib3.HTTPHeaderDict) else None
    return joined_headers(several or response.headers.items())


def _failure(error: Exception) -> HttpFailure:
    kind = "raise"
    if isinstance(error, requests.exceptions.Timeout):
        kind = "timeout"
    elif isinstance(error, requests.exceptions.ConnectionError) and not _is_broken(error):
        kind = "unreachable"
    return HttpFailure(kind, described(error))


def _is_broken(error: requests.exceptions.ConnectionError) -> bool:
    """Tell a connection that broke from one that was never made."""
    cause = error.args[0] if error.args else None
    return isinstance(cause, urllib3.exceptions.ProtocolError)
