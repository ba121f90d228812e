"""Calls of httpx and of httpx2, which has the same interfaces. Takes the module, imports neither.

The seam is the transport that a client chooses for a URL: each request of a redirect is seen by
itself, and transports of the user's own, `MockTransport` among them, are calls like any other. What
a client does with a response (cookies, redirects, timing) it does with ours too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.plugin.traffic.passage import (
    Passage,
    described,
    headers_to_give,
    is_stream,
    joined_headers,
)


def patch(httpx: ModuleType, passage: Passage) -> Callable[[], None]:
    """Let the calls of the module `httpx` pass; return what undoes it."""
    classes = (httpx.Client, httpx.AsyncClient)
    originals = [(cls, cls._transport_for_url) for cls in classes]
    for cls, original in originals:
        cls._transport_for_url = _choosing(original, httpx, passage)

    def undo() -> None:
        for cls, original in originals:
            cls._transport_for_url = original

    return undo


def _choosing(
    original: Callable[..., Any], httpx: ModuleType, passage: Passage
) -> Callable[..., Any]:
    @functools.wraps(original)
    def transport_for_url(client: Any, url: Any) -> Any:
        transport = original(client, url)
        if not passage.is_for(str(url)):
            return transport
        return _Transport(transport, httpx, passage)

    return transport_for_url


def _headers(message: Any) -> dict[str, str]:
    return joined_headers(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.raw
    )


class _Transport:
    """Stands before a client's transport for one request."""

    def __init__(self, transport: Any, httpx: ModuleType, passage: Passage) -> None:
        self._transport = transport
        self._httpx = httpx
        self._passage = passage

    def handle_request(self, request: Any) -> Any:
        def send() -> tuple[Any, HttpResponse]:
            response = self._transport.handle_request(request)
            headers = _headers(response)
            if is_stream(response.status_code, headers):
                return response, HttpResponse(response.status_code, headers, None)
            try:
                body = b"".join(response.stream)
            finally:
                response.stream.close()
            return self._read(response, body, headers)

        given = self._passage.through(self._seen(request), send, failure=self._failure)
        return self._native(given, request)

    async def handle_async_request(self, request: Any) -> Any:
        async def send() -> tuple[Any, HttpResponse]:
            response = await self._transport.handle_async_request(request)
            headers = _headers(response)
            if is_stream(response.status_code, headers):
                return response, HttpResponse(response.status_code, headers, None)
            try:
                body = b"".join([part async for part in response.stream])
            finally:
                await response.stream.aclose()
            return self._read(response, body, headers)

        given = await self._passage.async_through(self._seen(request), send, failure=self._failure)
        return self._native(given, request)

    def _seen(self, request: Any) -> HttpRequest:
        try:
            body = request.content
        except self._httpx.RequestNotRead:
            body = None
        return HttpRequest(
            library=self._httpx.__name__,
            method=request.method,
            url=str(request.url),
            headers=_headers(request),
            body=body,
        )

    def _read(
        self, response: Any, body: bytes, headers: dict[str, str]
    ) -> tuple[Any, HttpResponse]:
        """Give the response its body once more, encoded as it came, and see it decoded."""
        response.stream = self._httpx.ByteStream(body)
        decoded: bytes | None = body
        if "content-encoding" in headers:
            try:
                decoded = self._httpx.Response(200, headers=response.headers, content=body).content
            except self._httpx.DecodingError:  # the plugin gets it when it reads
                decoded = None
        return response, HttpResponse(response.status_code, headers, decoded)

    def _failure(self, error: Exception) -> HttpFailure:
        kind = "raise"
        if isinstance(error, self._httpx.TimeoutException):
            kind = "timeout"
        elif isinstance(error, self._httpx.ConnectError):
            kind = "unreachable"
        return HttpFailure(kind, described(error))

    def _native(self, given: Any | Outcome, request: Any) -> Any:
        if isinstance(given, HttpFailure):
            errors = {
                "timeout": self._httpx.ReadTimeout,
                "unreachable": self._httpx.ConnectError,
            }
            error = errors.get(given.kind, self._httpx.RemoteProtocolError)
            raise error(given.message, request=request)
        if isinstance(given, HttpResponse):
            return self._httpx.Response(
                given.status,
                headers=headers_to_give(given),
                stream=self._httpx.ByteStream(given.body or b""),
                request=request,
            )
        return given
