"""Addresses of this machine's loopback, as functions in containers reach them.

``http://localhost:9999/v1`` in what a function is given means a server on this machine; inside a
container it would mean the container. Such an address is mapped to one that containers reach, by a
`Relay` where the engine itself does not forward to the loopback, and tried out from inside.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from arkdev.errors import EndpointUnreachableError
from arkdev.faas_emulator.engines.networks import FunctionNetwork
from arkdev.faas_emulator.engines.relay import Relay

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "redis": 6379, "grpc": 50051}
_CONNECT_TIMEOUT_S = 3.0
_SEEN = "ok"
_START_IT = (
    "start the server there first; one that runs in a container or on another machine must be "
    "bound to an address that this machine reaches (--host 0.0.0.0)"
)

PROBE = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def seen(address):
    host, port = address
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.settimeout(0.3)
            try:
                return "ok" if connection.recv(1) else "closed at once"
            except socket.timeout:
                return "ok"
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__

addresses = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(addresses)) as pool:
    print(json.dumps(list(pool.map(seen, addresses))))
"""
"""Run inside, with a JSON list of ``[host, port]``: a JSON list of "ok" or what went wrong.

A relay, or an engine's forwarding, takes every connection: that nothing is behind it shows in its
being closed at once. Nothing is sent: what speaks what is not known.
"""

Probe = Callable[[Sequence[tuple[str, int]]], Awaitable[Sequence[str]]]
"""Runs `PROBE` in a container on the functions' network; returns what it said of each address."""


@dataclass(frozen=True)
class MappedAddress:
    """An address of this machine's loopback and what stands for it inside."""

    here: str
    """``localhost:9999``, as it was written."""
    host: str
    port: int
    inside_host: str
    inside_port: int

    @property
    def inside(self) -> str:
        """``172.17.0.1:40123``"""
        return f"{self.inside_host}:{self.inside_port}"

    def __str__(self) -> str:
        return f"{self.here} -> {self.inside} inside the function"


def loopback_address(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL that means this machine alone; None for every other text.

    >>> loopback_address("http://localhost:9999/v1"), loopback_address("https://ark.example/v3")
    (('localhost', 9999), None)
    """
    if "://" not in url or any(letter.isspace() for letter in url):
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    port = port or _DEFAULT_PORTS.get(parts.scheme.lower())
    if not host or not port or not _is_loopback(host):
        return None
    return host, port


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


class Reachability:
    """Maps addresses for one deployment. `close` ends its relays."""

    def __init__(
        self, network: FunctionNetwork, *, probe: Probe, on_note: Callable[[str], None]
    ) -> None:
        self._network = network
        self._probe = probe
        self._on_note = on_note
        self._mapped: dict[tuple[str, int], MappedAddress] = {}
        self._relays: list[Relay] = []
        self._lock = asyncio.Lock()

    async def inside(self, urls: Iterable[str]) -> list[str]:
        """Return the URLs as functions reach them; texts that are no such URL as they are.

        What is new is tried out, from here and from inside, and noted. Raises
        `EndpointUnreachableError`.
        """
        urls = list(urls)
        async with self._lock:
            wanted = {address for url in urls if (address := loopback_address(url))}
            new = sorted(wanted - self._mapped.keys())
            if new:
                num_relays = len(self._relays)
                try:
                    mapped = [await self._map(*address) for address in new]
                    await self._check(mapped)
                except BaseException:
                    await self._close_relays(from_=num_relays)
                    raise
                self._mapped |= dict(zip(new, mapped, strict=True))
        return [self._replaced(url) for url in urls]

    async def close(self) -> None:
        """End the relays and what they carry. Idempotent."""
        await self._close_relays()

    async def _close_relays(self, *, from_: int = 0) -> None:
        closed, self._relays[from_:] = self._relays[from_:], []
        for relay in closed:
            await relay.close()

    async def _map(self, host: str, port: int) -> MappedAddress:
        here = _shown(host, port)
        network = self._network
        if not network.relay_address:
            return MappedAddress(here, host, port, network.host_address, port)
        relay = Relay(_connectable(host), port, peers=network.relay_peers)
        try:
            inside_port = await relay.start(network.relay_address)
        except OSError as error:
            raise EndpointUnreachableError(
                f"{here} cannot be made reachable for functions: a relay cannot listen at "
                f"{network.relay_address}: {error.strerror or error}",
            ) from error
        self._relays.append(relay)
        return MappedAddress(here, host, port, network.host_address, inside_port)

    async def _check(self, new: Sequence[MappedAddress]) -> None:
        problems = [
            f"nothing listens at {mapped.here} on this machine ({reason}), which functions would "
            f"reach as {mapped.inside}"
            for mapped in new
            if (reason := await _problem_here(mapped.host, mapped.port))
        ]
        if problems:
            raise EndpointUnreachableError(
                "; ".join(problems),
                hint=_START_IT,
            )
        seen = await self._probe([(mapped.inside_host, mapped.inside_port) for mapped in new])
        problems = [
            f"{mapped.here} answers on this machine, but a function cannot reach it as "
            f"{mapped.inside}: {answer}"
            for mapped, answer in zip(new, seen, strict=True)
            if answer != _SEEN
        ]
        if problems:
            raise EndpointUnreachableError(
                "; ".join(problems),
                hint="let a firewall pass connections from the containers' network to this "
                "machine, or bind the server to all addresses (--host 0.0.0.0) and give this "
                "machine's address in the network in place of localhost",
            )
        for mapped in new:
            self._on_note(str(mapped))

    def _replaced(self, url: str) -> str:
        address = loopback_address(url)
        return url if address is None else _with_address(urlsplit(url), self._mapped[address])


def _with_address(parts: SplitResult, mapped: MappedAddress) -> str:
    userinfo, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{userinfo}{at}{mapped.inside}").geturl()


def _connectable(host: str) -> str:
    """The unspecified address is for listening alone."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


async def answered_here(url: str) -> str:
    """Return a URL as it is, for functions that are on this machine themselves.

    Raises `EndpointUnreachableError` when it is of this machine and nothing listens there.
    """
    address = loopback_address(url)
    if address is not None and (reason := await _problem_here(*address)):
        raise EndpointUnreachableError(
            f"nothing listens at {_shown(*address)} on this machine ({reason})", hint=_START_IT
        )
    return url


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _problem_here(host: str, port: int) -> str:
    """Say why nothing answers at an address from here; empty when something takes connections."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(_connectable(host), port)
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return error.strerror or "refused"
    writer.close()
    return ""


def probe_command(addresses: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Return the command that runs `PROBE` in an image with Python."""
    return ("python", "-c", PROBE, json.dumps(addresses))
