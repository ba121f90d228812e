"""As much of HTTP as a function needs, and a refusal of what is none."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from arkdev.faas_emulator.worker import http_server
from arkdev.faas_emulator.worker.http_server import HttpAnswer, HttpConnection


async def echo(request):
    return HttpAnswer(200, f"{request.method} {request.path} ".encode() + request.body)


def refuse(error):
    return HttpAnswer(error.status, str(error).encode())


@asynccontextmanager
async def serving(handle=echo):
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(handle, refuse=refuse), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


async def answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split(" ")[1]), await reader.readexactly(length)


POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"


async def test_requests_follow_each_other_on_one_connection_also_ahead_of_their_answers():
    async with serving() as (reader, writer):
        writer.write(POST + POST + b"GET /x?y=1 HTTP/1.1\r\n\r\n")
        assert await answer(reader) == (200, b"POST / abc")
        assert await answer(reader) == (200, b"POST / abc")
        assert await answer(reader) == (200, b"GET /x ")
        for byte in POST:  # in the smallest parts
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await answer(reader) == (200, b"POST / abc")


async def test_a_body_may_come_in_chunks_and_a_client_may_ask_before_it_sends():
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    async with serving() as (reader, writer):
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for part in (b"3\r\nab", b"c\r\n2;x=1\r\nde\r\n0", b"\r\ntrailer: x\r\n\r\n"):
            writer.write(part)
            await asyncio.sleep(0.01)
        assert await answer(reader) == (200, b"POST / abcde")
        writer.write(POST)
        assert await answer(reader) == (200, b"POST / abc")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", 413),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * http_server.MAX_HEAD_BYTES, 431),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(sent, status):
    async with serving() as (reader, writer):
        writer.write(sent)
        assert (await answer(reader))[0] == status
        assert await reader.read() == b""


async def test_the_handling_of_a_request_is_cancelled_when_its_client_hangs_up():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request):
        begun.set()
        try:
            await asyncio.sleep(300)
        finally:
            ended.set()

    async with serving(endless) as (_, writer):
        writer.write(POST)
        await begun.wait()
        writer.close()
        async with asyncio.timeout(60):
            await ended.wait()


async def test_a_connection_is_closed_when_its_client_asks_for_it():
    async with serving() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert await answer(reader) == (200, b"GET / ")
        assert await reader.read() == b""
