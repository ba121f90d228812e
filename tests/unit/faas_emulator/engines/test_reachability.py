"""The mapping of addresses, with real relays and a probe that says what it is told to say."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from arkdev.errors import EndpointUnreachableError
from arkdev.faas_emulator.choices import NetworkPolicy
from arkdev.faas_emulator.engines.networks import FunctionNetwork
from arkdev.faas_emulator.engines.reachability import Reachability, answered_here, loopback_address

RELAYED = FunctionNetwork(
    "default", NetworkPolicy.OPEN, True, host_address="127.0.0.1", relay_address="127.0.0.1"
)
DESKTOP = FunctionNetwork(
    "default", NetworkPolicy.OPEN, False, host_address="host.docker.internal", relay_address=""
)


@pytest.fixture
async def port():
    async def hello(reader, writer):
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


class Probe:
    def __init__(self, answer="ok"):
        self.answer = answer
        self.seen = []

    async def __call__(self, addresses):
        self.seen += addresses
        return [self.answer for _ in addresses]


@asynccontextmanager
async def reaching(network, probe):
    notes = []
    reachability = Reachability(network, probe=probe, on_note=notes.append)
    try:
        yield reachability, notes
    finally:
        await reachability.close()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:9999/v1", ("localhost", 9999)),
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("http://127.1.2.3:8000", ("127.1.2.3", 8000)),
        ("http://[::1]:8000/x", ("::1", 8000)),
        ("http://0.0.0.0:8000", ("0.0.0.0", 8000)),
        ("https://localhost/v1", ("localhost", 443)),
        ("redis://:secret@localhost/0", ("localhost", 6379)),
        ("http://api.localhost:81", ("api.localhost", 81)),
        ("https://ark.cn-beijing.volces.com/api/v3", None),
        ("http://192.0.2.7:80", None),
        ("localhost:9999", None),
        ("see http://localhost:9999", None),
        ("http://localhost:port", None),
        ("", None),
    ],
)
def test_which_texts_are_urls_of_this_machine_alone(url, address):
    assert loopback_address(url) == address


async def test_an_address_is_carried_by_a_relay_and_noted(port):
    probe = Probe()
    async with reaching(RELAYED, probe) as (reachability, notes):
        (mapped,) = await reachability.inside([f"http://user:pw@localhost:{port}/v1?a=1"])
        ((host, inside_port),) = probe.seen
        assert mapped == f"http://user:pw@{host}:{inside_port}/v1?a=1"
        assert notes == [f"localhost:{port} -> 127.0.0.1:{inside_port} inside the function"]
        reader, writer = await asyncio.open_connection(host, inside_port)
        assert await reader.read(-1) == b"hello"
        writer.close()
    with pytest.raises(OSError, match=r"."):
        await asyncio.open_connection(host, inside_port)


async def test_a_desktop_engine_forwards_to_the_loopback_itself(port):
    async with reaching(DESKTOP, Probe()) as (reachability, notes):
        (mapped,) = await reachability.inside([f"http://127.0.0.1:{port}/v1"])
    assert mapped == f"http://host.docker.internal:{port}/v1"
    assert notes == [f"127.0.0.1:{port} -> host.docker.internal:{port} inside the function"]


async def test_the_same_address_is_tried_out_and_noted_once(port):
    probe = Probe()
    async with reaching(RELAYED, probe) as (reachability, notes):
        url = f"http://localhost:{port}"
        both = await reachability.inside([url, f"{url}/b", "plain text"])
        again = await asyncio.gather(reachability.inside([url]), reachability.inside([url]))
    assert both[1] == f"{both[0]}/b"
    assert both[2] == "plain text"
    assert again == [[both[0]], [both[0]]]
    assert len(probe.seen) == len(notes) == 1


async def test_where_nothing_listens_both_addresses_and_the_bind_hint_are_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        probe = Probe()
        async with reaching(RELAYED, probe) as (reachability, notes):
            with pytest.raises(EndpointUnreachableError) as raised:
                await reachability.inside([f"http://localhost:{port}"])
            relayed = int(raised.value.message.rpartition(":")[2])
            with pytest.raises(ConnectionRefusedError):  # no relay is kept for it
                await asyncio.open_connection("127.0.0.1", relayed)
    assert f"nothing listens at localhost:{port} on this machine" in raised.value.message
    assert "would reach as 127.0.0.1:" in raised.value.message
    assert "--host 0.0.0.0" in raised.value.hint
    assert probe.seen == notes == []


async def test_functions_on_this_machine_are_told_where_nothing_listens(port):
    assert await answered_here(f"http://localhost:{port}/v1") == f"http://localhost:{port}/v1"
    assert await answered_here("https://ark.example/v3") == "https://ark.example/v3"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(EndpointUnreachableError, match="nothing listens at 127"):
            await answered_here(f"http://127.0.0.1:{taken.getsockname()[1]}")


async def test_what_is_not_reached_from_inside_is_told_with_both_addresses_and_the_reason(port):
    async with reaching(RELAYED, Probe("timed out")) as (reachability, notes):
        with pytest.raises(EndpointUnreachableError) as raised:
            await reachability.inside([f"http://localhost:{port}"])
    assert f"localhost:{port} answers on this machine" in raised.value.message
    assert raised.value.message.endswith(": timed out")
    assert "cannot reach it as 127.0.0.1:" in raised.value.message
    assert "firewall" in raised.value.hint
    assert notes == []
