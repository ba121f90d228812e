"""Real sockets on the loopback."""

import asyncio
import ipaddress
from contextlib import asynccontextmanager, suppress

import pytest

from arkdev.faas_emulator.engines.relay import Relay


@asynccontextmanager
async def serving(handle):
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def relayed(port, **options):
    relay = Relay("localhost", port, **options)
    try:
        yield relay, await relay.start("127.0.0.1")
    finally:
        await relay.close()


async def echo(reader, writer):
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (the relay tells nobody)
            await asyncio.sleep(0.01)


async def test_both_directions_are_carried_whole_and_the_end_is_said():
    async with serving(echo) as port, relayed(port) as (relay, near):
        reader, writer = await asyncio.open_connection("127.0.0.1", near)
        data = bytes(range(256)) * 2000
        writer.write(data)
        writer.write_eof()
        assert await reader.read(-1) == data
        writer.close()
        await until(lambda: relay.num_connections == 0)


async def test_a_piece_of_a_stream_is_there_before_the_next_one_is_sent():
    go_on = asyncio.Event()

    async def stream(reader, writer):
        writer.write(b"data: 1\n\n")
        await go_on.wait()
        writer.write(b"data: 2\n\n")
        writer.close()

    async with serving(stream) as port, relayed(port) as (_, near):
        reader, writer = await asyncio.open_connection("127.0.0.1", near)
        async with asyncio.timeout(60):
            assert await reader.readuntil(b"\n\n") == b"data: 1\n\n"
            go_on.set()
            assert await reader.read(-1) == b"data: 2\n\n"
        writer.close()


async def test_a_reader_that_waits_holds_the_writer_back():
    sent = 0

    async def pour(reader, writer):
        nonlocal sent
        for _ in range(2000):
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536
        writer.close()

    async with serving(pour) as port, relayed(port) as (relay, near):
        _, writer = await asyncio.open_connection("127.0.0.1", near, limit=1024)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 30 * 2**20  # of 125 MiB: what the system's socket buffers hold
        writer.transport.abort()
        await until(lambda: relay.num_connections == 0)


async def test_where_nothing_listens_the_connection_is_cut_not_ended():
    async with serving(echo) as port:
        pass
    async with relayed(port) as (_, near):
        reader, writer = await asyncio.open_connection("127.0.0.1", near)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()


async def test_a_connection_that_the_server_cuts_is_cut_here_too():
    async def cut(reader, writer):
        await reader.read(1)
        writer.write(b"half")
        await writer.drain()
        writer.transport.abort()

    async with serving(cut) as port, relayed(port) as (relay, near):
        reader, writer = await asyncio.open_connection("127.0.0.1", near)
        writer.write(b"x")
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                await reader.read(-1)
        writer.close()
        await until(lambda: relay.num_connections == 0)


async def test_only_so_many_connections_are_open_at_once():
    async with serving(echo) as port, relayed(port, max_connections=1) as (relay, near):
        first_reader, first = await asyncio.open_connection("127.0.0.1", near)
        first.write(b"a")
        assert await first_reader.readexactly(1) == b"a"
        second_reader, second = await asyncio.open_connection("127.0.0.1", near)
        with pytest.raises(ConnectionResetError):
            await second_reader.read(1)
        first.write(b"b")
        assert await first_reader.readexactly(1) == b"b"
        first.close()
        second.close()
        await until(lambda: relay.num_connections == 0)


async def test_who_is_no_peer_is_refused():
    peers = (ipaddress.ip_network("172.17.0.0/16"),)
    async with serving(echo) as port, relayed(port, peers=peers) as (_, near):
        reader, writer = await asyncio.open_connection("127.0.0.1", near)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()


async def test_closing_ends_every_connection_and_the_port():
    async with serving(echo) as port, relayed(port) as (relay, near):
        reader, writer = await asyncio.open_connection("127.0.0.1", near)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        await relay.close()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection("127.0.0.1", near)
        assert relay.num_connections == 0
        await relay.close()
