"""Sends the requests of a check over HTTP, one after the other.

A leaf: aiohttp is imported here, and `arkdev.flows.check_endpoint` loads it when a check begins.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import aiohttp  # noqa: TID253 - this leaf is the client; it is loaded lazily by the flow

from arkdev.endpoints.capability_check.records import Exchange, Request
from arkdev.endpoints.event_stream import EventStreamError, assemble
from arkdev.endpoints.http_body import decode_body, is_event_stream, read_body
from arkdev.endpoints.http_target import CONNECT_TIMEOUT_S, HttpTarget
from arkdev.errors import EndpointError, EndpointResponseError


class CheckClient:
    """What the server that is checked is asked with. Use it with ``async with``."""

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._session: aiohttp.ClientSession
        self.num_requests = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # a connection for each request: some servers close theirs after a streamed answer
            connector=aiohttp.TCPConnector(force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=self._target.timeout_s, sock_connect=CONNECT_TIMEOUT_S
            ),
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def post(self, request: Request) -> Exchange:
        """Send `request` once and return what came back, without the key in it.

        Nothing is raised for what the server does: no connection, no answer in time and a cut
        answer are an `Exchange` with an `error`.
        """
        return await self._exchange("POST", request.path, body=request.body)

    async def list_models(self) -> list[str]:
        """Return the names at ``/models``; empty when the server has no such list.

        Raises `EndpointError` when nothing came back.
        """
        exchange = await self._exchange("GET", "models", body=None)
        if exchange.error is not None:
            raise exchange.error
        data = exchange.body.get("data") if isinstance(exchange.body, dict) else None
        entries = data if exchange.is_success and isinstance(data, list) else []
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        return [name for name in names if isinstance(name, str)]

    async def _exchange(self, method: str, path: str, *, body: dict[str, Any] | None) -> Exchange:
        self.num_requests += 1
        started = time.perf_counter()
        try:
            async with self._session.request(
                method,
                self._target.at(path),
                json=body,
                headers=self._target.headers,
                allow_redirects=False,
                proxy=self._target.proxy.url,
                proxy_headers=self._target.proxy.connect_headers,
            ) as response:
                read = await read_body(response)
        except EndpointResponseError as error:  # the answer is too long
            return Exchange(None, error=error, duration_s=time.perf_counter() - started)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            unreachable: EndpointError = self._target.unreachable(error)
            return Exchange(None, error=unreachable, duration_s=time.perf_counter() - started)
        duration_s = time.perf_counter() - started
        return self._read(
            read, status=response.status, content_type=response.content_type, duration_s=duration_s
        )

    def _read(self, body: bytes, *, status: int, content_type: str, duration_s: float) -> Exchange:
        decoded: object = ""
        num_events, problem = None, ""
        if is_event_stream(body, content_type=content_type):
            num_events = sum(line.startswith(b"data:") for line in body.splitlines())
        try:
            decoded = decode_body(body, content_type=content_type, assemble=assemble)
            decoded = self._target.masked(decoded)
        except EventStreamError as error:
            problem = str(error)
        return Exchange(status, decoded, content_type, num_events, problem, duration_s=duration_s)
