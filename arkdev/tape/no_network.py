"""No connection leaves a process that replays: one that is attempted is an error that names it."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from typing import Any

from arkdev.errors import TapeMismatchError

_CONNECTING = ("socket.connect", "socket.sendto", "socket.sendmsg")
_LOOPBACK = ("", "127.0.0.1", "::1", "localhost")


def _unread(_context: ssl.SSLContext, *_args: Any, **_kwargs: Any) -> None:
    """Load no certificates."""


class NetworkGuard:
    """Refuses connections of this process, for as long as it lives.

    `refuse` gets the error, and returns the one to raise.
    """

    def __init__(self, refuse: Callable[[TapeMismatchError], TapeMismatchError]) -> None:
        self._refuse = refuse
        self.allowed_ports: frozenset[int] = frozenset()
        """On the loopback device: the process's own servers."""
        sys.addaudithook(self._hear)
        # nothing is connected to, so nothing is verified: reading the certificates, which each new
        # client does, would take most of a rollout's time
        for name in ("load_verify_locations", "load_default_certs"):
            setattr(ssl.SSLContext, name, _unread)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CONNECTING:
            address = arguments[1]
            if isinstance(address, tuple) and not self._is_own(address):
                raise self._refusal(f"a connection to {address[0]}:{address[1]}")
        elif event == "socket.getaddrinfo":
            host, port = arguments[:2]
            host = host.decode("ascii", "replace") if isinstance(host, bytes) else host
            if host is not None and host not in _LOOPBACK:
                raise self._refusal(f"a connection to {host}" + (f":{port}" if port else ""))

    def _is_own(self, address: tuple[Any, ...]) -> bool:
        return address[0] in _LOOPBACK and address[1] in self.allowed_ports

    def _refusal(self, what: str) -> TapeMismatchError:
        return self._refuse(
            TapeMismatchError(
                f"{what} was about to be made, which the tape does not hold",
                hint="a tape holds model calls, HTTP of httpx, aiohttp and requests, and MCP, of "
                "code that runs in a rollout or grader",
            )
        )
