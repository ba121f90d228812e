"""Calls of aiohttp (leaf: imports aiohttp).

A call is held back before aiohttp starts the clock of its total timeout. The rest happens in the
innermost middleware, which sees each request of a redirect and of the user's own middlewares by
itself. A call with middlewares of the user's is held back there too, since they may make calls of
their own first, which must not wait for this one; its total timeout then runs meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import inspect
from collections.abc import Callable
from http import HTTPStatus
from types import ModuleType, SimpleNamespace
from typing import Any

import aiohttp  # noqa: TID253 (the leaf)
from aiohttp import payload  # noqa: TID253
from aiohttp.client_proto import ResponseHandler  # noqa: TID253
from aiohttp.helpers import TimerNoop  # noqa: TID253
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.plugin.traffic.passage import (
    Passage,
    described,
    headers_to_give,
    is_stream,
    joined_headers,
)

_Handler = Callable[[aiohttp.ClientRequest], Any]
_BUFFER_BYTES = 2**16


def patch(module: ModuleType, passage: Passage) -> Callable[[], None]:
    """Let the calls of the module `aiohttp` pass; return what undoes it."""
    cls = module.ClientSession
    original = cls._request
    cls._request = _requesting(original, passage)

    def undo() -> None:
        cls._request = original

    return undo


def _requesting(original: Callable[..., Any], passage: Passage) -> Callable[..., Any]:
    @functools.wraps(original)
    async def _request(
        session: Any, method: str, url: Any, *, middlewares: Any = None, **options: Any
    ) -> Any:
        request = None
        if passage.is_for(str(url)):
            request = _announced(session, method, url, options)
        if request is None or not passage.is_for(request.url):
            return await original(session, method, url, middlewares=middlewares, **options)
        outer = session._middlewares if middlewares is None else middlewares
        if outer:
            first = None
        else:
            await passage.async_hold(request)
            first = request
        own = _Middleware(passage, first, is_decoded=_is_decoded(session, options))
        try:
            return await original(
                session, method, url, middlewares=(*(outer or ()), own), **options
            )
        finally:
            if own.first is not None:  # refused by aiohttp
                passage.give_up(own.first)

    return _request


def _is_decoded(session: Any, options: dict[str, Any]) -> bool:
    given = options.get("auto_decompress")
    return bool(session._auto_decompress if given is None else given)


def _announced(
    session: Any, method: str, given_url: Any, options: dict[str, Any]
) -> HttpRequest | None:
    """Return the first request of a call; its data in `options` becomes a payload, as it would.

    None where aiohttp is going to refuse the call.
    """
    try:
        url = session._build_url(given_url)
        if options.get("params"):
            url = url.extend_query(options["params"])
    except (TypeError, ValueError):
        return None
    data, json = options.get("data"), options.get("json")
    if data is not None and json is not None:
        return None
    body = _payload(session, data, json)
    if body is not None:
        options.update(data=body, json=None)
    headers = session._prepare_headers(options.get("headers"))
    if body is not None:
        for name, value in body.headers.items():
            headers.setdefault(name, value)
    return _seen(method, url.with_fragment(None), headers, body)


def _payload(session: Any, data: Any, json: Any) -> Any:
    if json is not None:
        to_bytes = getattr(session, "_json_serialize_bytes", None)
        if to_bytes is not None:
            return payload.JsonBytesPayload(json, dumps=to_bytes)
        return payload.JsonPayload(json, dumps=session._json_serialize)
    if data is None:
        return None
    if isinstance(data, aiohttp.FormData):
        return data()
    try:
        return payload.PAYLOAD_REGISTRY.get(data, disposition=None)
    except payload.LookupError:
        return aiohttp.FormData(data)()


def _seen(method: str, url: URL, headers: Any, body: Any) -> HttpRequest:
    known: bytes | None = b""
    if isinstance(body, payload.BytesPayload):
        known = bytes(body._value)
    elif body:
        known = None
    return HttpRequest(
        library="aiohttp",
        method=method.upper(),
        url=str(url),
        headers=joined_headers(headers.items()),
        body=known,
    )


class _Middleware:
    """Takes the requests of one call through the rules; `first` has been held back already."""

    def __init__(self, passage: Passage, first: HttpRequest | None, *, is_decoded: bool) -> None:
        self._passage = passage
        self.first: HttpRequest | None = first
        self._is_decoded = is_decoded

    async def __call__(self, request: aiohttp.ClientRequest, handler: _Handler) -> Any:
        async def send() -> tuple[Any, Outcome]:
            response = await handler(request)
            return response, await self._read(response)

        seen, is_held = self.first, self.first is not None
        self.first = None
        if seen is None:
            seen = _seen(request.method, request.url, request.headers, request.body)
            if not self._passage.is_for(seen.url):
                return await handler(request)
        given = await self._passage.async_through(seen, send, failure=_failure, is_held=is_held)
        if isinstance(given, HttpFailure):
            raise _error(given, request)
        if isinstance(given, HttpResponse):
            return _native(given, request)
        return given

    async def _read(self, response: aiohttp.ClientResponse) -> Outcome:
        """Read a response ahead, and let the plugin read it once more, or fail to."""
        headers = joined_headers(response.headers.items())
        is_left = is_stream(response.status, headers)
        is_left = is_left or ("content-encoding" in headers and not self._is_decoded)
        if is_left:
            return HttpResponse(response.status, headers, None)
        try:
            body = await response.content.read()
        except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError) as error:
            return _failure(error)  # its content keeps the error for the plugin
        response.content = _content(body)
        return HttpResponse(response.status, headers, body)


def _content(body: bytes) -> aiohttp.StreamReader:
    loop = asyncio.get_running_loop()
    # the limit keeps the reader from pausing a connection that it does not have
    limit = max(_BUFFER_BYTES, len(body))
    content = aiohttp.StreamReader(ResponseHandler(loop), limit, loop=loop)
    content.feed_data(body)
    content.feed_eof()
    return content


def _failure(error: Exception) -> HttpFailure:
    kind = "raise"
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        kind = "timeout"
    elif isinstance(error, aiohttp.ClientConnectorError):
        kind = "unreachable"
    return HttpFailure(kind, described(error))


def _error(failure: HttpFailure, request: aiohttp.ClientRequest) -> Exception:
    if failure.kind == "timeout":
        return aiohttp.SocketTimeoutError(failure.message)
    if failure.kind == "unreachable":
        refused = OSError(errno.ECONNREFUSED, failure.message)
        return aiohttp.ClientConnectorError(request.connection_key, refused)
    return aiohttp.ClientPayloadError(failure.message)


def _native(given: HttpResponse, request: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
    """Make the response as if it had been read from a connection that is released by now."""
    parameters: dict[str, Any] = {
        "writer": None,
        "continue100": None,
        "timer": TimerNoop(),
        "request_info": request.request_info,
        "traces": [],
        "loop": request.loop,
        "session": request._session,
        "stream_writer": SimpleNamespace(output_size=0),
    }
    known = inspect.signature(request.response_class).parameters
    response = request.response_class(
        request.method, request.url, **{k: v for k, v in parameters.items() if k in known}
    )
    headers = CIMultiDict(headers_to_give(given))
    response.version = aiohttp.HttpVersion11
    response.status = given.status
    response.reason = _reason(given.status)
    response._headers = CIMultiDictProxy(headers)
    response._raw_headers = tuple((n.encode(), v.encode()) for n, v in headers.items())
    response.content = _content(given.body or b"")
    cookies = tuple(headers.getall("set-cookie", ()))
    if cookies:
        response._raw_cookie_headers = cookies
    return response


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
