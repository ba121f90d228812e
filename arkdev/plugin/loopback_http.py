"""POST requests with JSON over kept connections to the gateway, by the standard library alone.

A function container has no HTTP client of its own choosing, and importing one would cost more than
the rest of the worker. `AsyncPoster` awaits on the running loop, `BlockingPoster` waits in the
calling thread. Both raise `ConnectionError` when there is no answer.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import weakref
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_MAX_IDLE_S = 30.0
"""A connection that was idle for longer is not used again: the gateway closes it after 75 s."""


class JsonAnswer(NamedTuple):
    """The status and the decoded body of an answer."""

    status: int
    body: Any


class _Idle(NamedTuple):
    since: float
    connection: Any


class _Pool:
    """Connections that wait for their next request; safe to use from any thread."""

    def __init__(self) -> None:
        self._idle: deque[_Idle] = deque()

    def take(self) -> Any:
        """Return the connection used last; None when there is none that is fresh."""
        while self._idle:
            idle = self._idle.pop()
            if time.monotonic() - idle.since < _MAX_IDLE_S:
                return idle.connection
            idle.connection.close()
        return None

    def put(self, connection: Any) -> None:
        """Keep a connection for the next request."""
        self._idle.append(_Idle(time.monotonic(), connection))

    def close(self) -> None:
        """Close all that wait."""
        while self._idle:
            self._idle.pop().connection.close()


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


class BlockingPoster:
    """For synchronous code; each thread that waits has a connection of its own."""

    def __init__(self, url: str) -> None:
        self._address = _host_and_port(url)
        self._pool = _Pool()

    def post(self, path: str, body: Any, *, key: str) -> JsonAnswer:
        """Send a request and wait for its answer."""
        data = json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        while True:
            kept = self._pool.take()
            connection = kept or http.client.HTTPConnection(*self._address)
            try:
                connection.request("POST", path, data, headers)
                response = connection.getresponse()
                answer = JsonAnswer(response.status, json.loads(response.read()))
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if kept is not None and isinstance(error, ConnectionError):
                    continue  # the other side had closed it meanwhile
                raise _no_answer(self._address, error) from error
            except BaseException:
                connection.close()
                raise
            self._pool.put(connection)
            return answer

    def close(self) -> None:
        """Close the connections that wait for their next request."""
        self._pool.close()


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        self.writer.close()


class AsyncPoster:
    """For coroutines. A connection belongs to the event loop that it was opened on."""

    def __init__(self, url: str) -> None:
        self._address = _host_and_port(url)
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = (
            weakref.WeakKeyDictionary()
        )

    async def post(self, path: str, body: Any, *, key: str) -> JsonAnswer:
        """Send a request and await its answer. When cancelled, the connection is closed."""
        pool = self._pools.setdefault(asyncio.get_running_loop(), _Pool())
        request = self._request(path, json.dumps(body).encode(), key=key)
        while True:
            kept = pool.take()
            connection: _Connection | None = kept
            try:
                connection = connection or _Connection(
                    *await asyncio.open_connection(*self._address)
                )
                connection.writer.write(request)
                answer, is_kept = await _read_answer(connection.reader)
            except (OSError, EOFError, ValueError) as error:
                if connection is not None:
                    connection.close()
                if kept is not None and isinstance(error, (ConnectionError, EOFError)):
                    continue  # the other side had closed it meanwhile
                raise _no_answer(self._address, error) from error
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            if is_kept:
                pool.put(connection)
            else:
                connection.close()
            return answer

    def close(self) -> None:
        """Close the connections of the running loop that wait for their next request."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()

    def _request(self, path: str, data: bytes, *, key: str) -> bytes:
        host, port = self._address
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return head.encode("latin-1") + data


async def _read_answer(reader: asyncio.StreamReader) -> tuple[JsonAnswer, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    data = await reader.readexactly(int(headers["content-length"]))
    is_kept = headers.get("connection", "").lower() != "close"
    return JsonAnswer(int(first.split(" ", 2)[1]), json.loads(data)), is_kept


def _no_answer(address: tuple[str, int], error: BaseException) -> ConnectionError:
    return ConnectionError(f"no answer from {address[0]}:{address[1]}: {error!r}")
