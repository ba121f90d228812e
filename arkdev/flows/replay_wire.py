"""Messages between the processes of a replay: pickles of known length, and descriptors with them.

All processes are this user's own and started by one another. Each one leads a group, to which
belongs what its plugin starts.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
from contextlib import suppress
from typing import Any

_LENGTH = struct.Struct("!I")
HEAD_BYTES = _LENGTH.size


def end_group(pid: int) -> None:
    """End a process that leads a group, and all of its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def packed(message: Any) -> bytes:
    """Return a message as it travels."""
    data = pickle.dumps(message)
    return _LENGTH.pack(len(data)) + data


def length_of(head: bytes) -> int:
    """Return how many bytes follow the first `HEAD_BYTES` of a message."""
    return int(_LENGTH.unpack(head)[0])


def unpacked(data: bytes) -> Any:
    """Return the message whose bytes after its head are `data`."""
    return pickle.loads(data)


def send(connection: socket.socket, message: Any, *descriptors: int) -> None:
    """Send a message and descriptors, to be received by `receive`."""
    data = packed(message)
    if descriptors:
        socket.send_fds(connection, [data[:HEAD_BYTES]], descriptors)
        data = data[HEAD_BYTES:]
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """Return the next message and its descriptors. Raises `EOFError` when there is no more."""
    head, descriptors, _, _ = socket.recv_fds(connection, HEAD_BYTES, 1)
    head += _exactly(connection, HEAD_BYTES - len(head)) if head else b""
    if not head:
        raise EOFError
    return unpacked(_exactly(connection, length_of(head))), list(descriptors)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
