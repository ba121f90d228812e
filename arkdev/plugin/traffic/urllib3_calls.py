"""Calls of urllib3 where it is used directly (leaf: imports urllib3); what requests sends is its.

What urllib3 repeats by itself (`Retry`) is one call, with what came of it in the end.
"""

from __future__ import annotations

import functools
import http.client
import io
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import urllib3
from urllib3.exceptions import (
    MaxRetryError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    TimeoutError,
)

from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse
from arkdev.plugin.traffic.passage import (
    Passage,
    described,
    headers_to_give,
    is_stream,
    joined_headers,
)

on_their_way: ContextVar[tuple[Passage, ...]] = ContextVar("on_their_way", default=())
"""What the call at hand is passing already: requests and retries arrive here once more."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


def patch(module: ModuleType, passage: Passage) -> Callable[[], None]:
    """Let the calls of the module `urllib3` pass; return what undoes it."""
    pool = module.connectionpool.HTTPConnectionPool
    original = pool.urlopen
    pool.urlopen = _opening(original, passage)

    def undo() -> None:
        pool.urlopen = original

    return undo


def _opening(original: Callable[..., Any], passage: Passage) -> Callable[..., Any]:
    @functools.wraps(original)
    def urlopen(
        pool: Any,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        *args: Any,
        **kw: Any,
    ) -> Any:
        def from_network() -> tuple[Any, HttpResponse]:
            token = on_their_way.set((*on_their_way.get(), passage))
            try:
                response = original(pool, method, url, body, headers, *args, **kw)
            finally:
                on_their_way.reset(token)
            received = joined_headers(response.headers.iteritems())
            is_left = not kw.get("preload_content", True) or is_stream(response.status, received)
            is_left = is_left or ("content-encoding" in received and not is_decoded)
            return response, HttpResponse(
                response.status, received, None if is_left else response.data
            )

        whole_url = _whole_url(pool, url)
        if passage in on_their_way.get() or not passage.is_for(whole_url):
            return original(pool, method, url, body, headers, *args, **kw)
        is_decoded = kw.get("decode_content", True)
        request = _seen(method, whole_url, pool.headers if headers is None else headers, body)
        given = passage.through(request, from_network, failure=_failure)
        if isinstance(given, HttpFailure):
            raise _error(given, pool, url, is_retried=kw.get("retries") is not False)
        if isinstance(given, HttpResponse):
            return response_of(given, method, preload_content=kw.get("preload_content", True))
        return given

    return urlopen


def _whole_url(pool: Any, url: str) -> str:
    if "://" in url:  # as a proxy is asked
        return url
    port = "" if pool.port in (None, _DEFAULT_PORTS.get(pool.scheme)) else f":{pool.port}"
    return f"{pool.scheme}://{pool.host}{port}{url}"


def _seen(method: str, url: str, headers: Any, body: Any) -> HttpRequest:
    if isinstance(body, str):
        body = body.encode()
    return HttpRequest(
        library="urllib3",
        method=method.upper(),
        url=url,
        headers=joined_headers((str(name), str(value)) for name, value in headers.items()),
        body=bytes(body) if isinstance(body, bytes | bytearray) else None if body else b"",
    )


def _failure(error: Exception) -> HttpFailure:
    cause: Any = error.reason if isinstance(error, MaxRetryError) else error
    kind = "raise"
    if isinstance(cause, NewConnectionError):  # which is a timeout by its class
        kind = "unreachable"
    elif isinstance(cause, TimeoutError):
        kind = "timeout"
    return HttpFailure(kind, described(error))


def _error(failure: HttpFailure, pool: Any, url: str, *, is_retried: bool) -> Exception:
    error: Exception
    if failure.kind == "timeout":
        error = ReadTimeoutError(pool, url, failure.message)
    elif failure.kind == "unreachable":
        error = NewConnectionError(pool, failure.message)
    else:
        return ProtocolError("Connection broken", failure.message)
    return MaxRetryError(pool, url, error) if is_retried else error


class _Sent:
    """A socket that has received an answer."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._answer)


def response_of(
    given: HttpResponse, method: str | None, *, preload_content: bool
) -> urllib3.HTTPResponse:
    """Let the standard library read the response, so that cookies and streaming work as always."""
    headers = headers_to_give(given)
    reason = http.client.responses.get(given.status, "")
    head = [f"HTTP/1.1 {given.status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    answer = "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + (given.body or b"")
    original = http.client.HTTPResponse(_Sent(answer), method=method)  # type: ignore[arg-type]
    original.begin()
    return urllib3.HTTPResponse(
        body=original,
        headers=urllib3.HTTPHeaderDict(headers),
        status=given.status,
        version=11,
        reason=reason,
        preload_content=preload_content,
        decode_content=False,
        original_response=original,
        request_method=method,
    )
