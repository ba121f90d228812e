"""HTTP/1.1 with kept connections on asyncio, by the standard library alone.

As much of it as a function needs: requests with a length or in chunks, one at a time on each
connection, many connections. A client that hangs up cancels the handling of its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64 * 2**20

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True)
class HttpRequest:
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    keeps_alive: bool = True


@dataclass(frozen=True)
class HttpAnswer:
    """One answer, whose body is JSON."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class MalformedRequestError(Exception):
    """Bytes that are no request that is understood here; `status` says how."""

    def __init__(self, text: str, *, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]
Refusal = Callable[[MalformedRequestError], HttpAnswer]


class HttpConnection(asyncio.Protocol):
    """One connection. `refuse` makes the answer to what is no request."""

    def __init__(self, handle: Handler, *, refuse: Refusal) -> None:
        self._handle = handle
        self._refuse = refuse
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The client hung up: nobody waits for the answer."""
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._buffer += data
        if self._task is None:
            self._advance()
        elif len(self._buffer) > MAX_HEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()  # sent ahead of the answer: it can wait

    def _advance(self) -> None:
        """Begin to handle the next request once all of it has come."""
        try:
            request = self._next_request()
        except MalformedRequestError as error:
            self._send(self._refuse(error), is_last=True)
            return
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(request))

    def _next_request(self) -> HttpRequest | None:
        if self._head is None:
            self._head = _take_head(self._buffer)
            if self._head is None:
                return None
            if self._head.expects_continue and self._transport is not None:
                self._transport.write(_CONTINUE)
        body = self._head.body.take(self._buffer)
        if body is None:
            return None
        head, self._head = self._head, None
        return HttpRequest(head.method, head.path, head.headers, body, head.keeps_alive)

    async def _answer(self, request: HttpRequest) -> None:
        answer = await self._handle(request)
        self._task = None
        self._send(
            answer, is_last=not request.keeps_alive, has_body=request.method.upper() != "HEAD"
        )
        if self._transport is not None:
            self._transport.resume_reading()
            self._advance()

    def _send(self, answer: HttpAnswer, *, is_last: bool, has_body: bool = True) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(answer.body)),
            **answer.headers,
            **({"Connection": "close"} if is_last else {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n{lines}\r\n"
        self._transport.write(head.encode("latin-1") + (answer.body if has_body else b""))
        if is_last:
            self._transport.close()
            self._transport = None


class _SizedBody:
    """A body whose length the head gives."""

    def __init__(self, size: int) -> None:
        self._size = size

    def take(self, buffer: bytearray) -> bytes | None:
        """Take the body off the front of `buffer`; None while some of it is missing."""
        if len(buffer) < self._size:
            return None
        body = bytes(memoryview(buffer)[: self._size])
        del buffer[: self._size]
        return body


class _ChunkedBody:
    """A body in chunks, each with its length before it."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._is_at_trailer = False

    def take(self, buffer: bytearray) -> bytes | None:
        """As `_SizedBody.take`."""
        while True:
            end = buffer.find(b"\r\n")
            if end < 0:
                if len(buffer) > MAX_HEAD_BYTES:
                    raise MalformedRequestError("a chunk has no length")
                return None
            if self._is_at_trailer:  # lines after the last chunk, up to an empty one
                is_empty = end == 0
                del buffer[: end + 2]
                if is_empty:
                    return bytes(self._body)
                continue
            size = _chunk_size(bytes(buffer[:end]))
            if len(self._body) + size > MAX_BODY_BYTES:
                raise _too_large()
            if size == 0:
                del buffer[: end + 2]
                self._is_at_trailer = True
                continue
            if len(buffer) < end + 2 + size + 2:
                return None
            self._body += memoryview(buffer)[end + 2 : end + 2 + size]
            del buffer[: end + 2 + size + 2]


@dataclass(frozen=True)
class _Head:
    method: str
    path: str
    headers: Mapping[str, str]
    body: _SizedBody | _ChunkedBody
    keeps_alive: bool

    @property
    def expects_continue(self) -> bool:
        """The client waits before it sends the body."""
        return self.headers.get("expect", "").lower() == "100-continue"


def _take_head(buffer: bytearray) -> _Head | None:
    """Take a head off the front of `buffer`; None while some of it is missing."""
    while buffer.startswith(b"\r\n"):
        del buffer[:2]  # some clients end a body so
    end = buffer.find(b"\r\n\r\n")
    if end > MAX_HEAD_BYTES or (end < 0 and len(buffer) > MAX_HEAD_BYTES):
        raise MalformedRequestError("the headers are too large", status=431)
    if end < 0:
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    del buffer[: end + 4]
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise MalformedRequestError(f"{first!r:.80} is no request line of HTTP/1.1")
    headers = dict(_header(line) for line in lines)
    connection = headers.get("connection", "").lower()
    is_kept = connection == "keep-alive" if parts[2] == "HTTP/1.0" else connection != "close"
    return _Head(parts[0], parts[1].partition("?")[0], headers, _body(headers), is_kept)


def _header(line: str) -> tuple[str, str]:
    name, separator, value = line.partition(":")
    if not separator or not name or name != name.strip():
        raise MalformedRequestError(f"{line!r:.80} is no header")
    return name.lower(), value.strip()


def _body(headers: Mapping[str, str]) -> _SizedBody | _ChunkedBody:
    encoding = headers.get("transfer-encoding", "").lower()
    if encoding == "chunked":
        return _ChunkedBody()
    length = headers.get("content-length", "0")
    if encoding or not (length.isascii() and length.isdigit()):
        raise MalformedRequestError("the length of the body is not told")
    if int(length) > MAX_BODY_BYTES:
        raise _too_large()
    return _SizedBody(int(length))


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        size = int(digits, 16)
    except ValueError:
        size = -1
    if size < 0:
        raise MalformedRequestError(f"{line!r:.80} is no length of a chunk")
    return size


def _too_large() -> MalformedRequestError:
    return MalformedRequestError(
        f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB", status=413
    )
