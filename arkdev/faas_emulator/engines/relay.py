"""A small TCP relay: what listens on this machine's loopback, reached from containers.

It listens on an address that containers reach and carries bytes to the loopback as they come, in
pieces of at most 64 KiB, with no more than one under way for each direction. Where the other side
is closed, refuses or is cut, so is this side.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_CONNECTIONS = 1024
"""Of one relay at once; a further one is refused."""
_PIECE_BYTES = 65_536
_CONNECT_TIMEOUT_S = 10
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, so that its reader sees an error, not an end."""


class Relay:
    """Forwards connections to ``target_host:target_port``."""

    def __init__(
        self,
        target_host: str,
        target_port: int,
        *,
        peers: Sequence[Network] = (),
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """`peers`: only these may connect; empty: whoever reaches the address."""
        self._target = (target_host, target_port)
        self._peers = peers
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    @property
    def num_connections(self) -> int:
        """Connections that are open now."""
        return len(self._carrying)

    async def start(self, address: str) -> int:
        """Listen on a free port of an address of this machine; return it. Raises `OSError`."""
        self._server = await asyncio.start_server(
            self._accept, address, 0, limit=_PIECE_BYTES, backlog=1024
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Close the port and every connection. Idempotent."""
        if self._server is not None:
            self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._may_connect(writer) or len(self._carrying) >= self._max_connections:
            _reset(writer)
            return
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # `close`: streams report a cancelled callback as a fault
        finally:
            self._carrying.discard(task)

    def _may_connect(self, writer: asyncio.StreamWriter) -> bool:
        if not self._peers:
            return True
        peer = ipaddress.ip_address(writer.get_extra_info("peername")[0])
        return any(peer in network for network in self._peers)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both directions to their ends; cut both sides where that cannot be done."""
        writers, is_whole = [writer], False
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                far_reader, far_writer = await asyncio.open_connection(
                    *self._target, limit=_PIECE_BYTES
                )
            writers.append(far_writer)
            ends = await asyncio.gather(
                _pump(reader, far_writer, writers), _pump(far_reader, writer, writers)
            )
            is_whole = all(ends)
        except OSError:
            pass  # nothing listens there
        finally:
            for opened in writers:
                if is_whole:
                    opened.close()
                else:
                    _reset(opened)


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    writers: Sequence[asyncio.StreamWriter],
) -> bool:
    """Carry one direction to its end, and say the end on the other side.

    False when it was cut: then the other direction, too, has nowhere to go, and ends.
    """
    writer.transport.set_write_buffer_limits(high=_PIECE_BYTES)
    try:
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        for opened in writers:
            _reset(opened)
        return False
    return True


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()
