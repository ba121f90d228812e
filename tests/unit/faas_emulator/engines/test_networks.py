"""Which network and which address of this machine an engine's containers get."""

from pathlib import Path

import pytest

from arkdev.errors import EngineError
from arkdev.faas_emulator.choices import NetworkPolicy
from arkdev.faas_emulator.engines.deployments import Deployment
from arkdev.faas_emulator.engines.networks import open_network
from tests.unit.faas_emulator.engines.container_engines import facts

DEPLOYMENT = Deployment("d1", Path("/w"), owner="somebody")


class NetworkEngine:
    def __init__(self, *, subnet="127.0.0.0/8", gateway="127.0.0.1", **changed):
        self.facts = facts(**changed)
        self.made = []
        self._config = {"Subnet": subnet, **({"Gateway": gateway} if gateway else {})}

    async def network(self, name):
        return {"IPAM": {"Config": [self._config]}}

    async def create_network(self, name, *, labels, is_internal):
        self.made.append((name, labels, is_internal))
        return "net-id"


async def opened(engine, policy=NetworkPolicy.OPEN):
    return await open_network(engine, policy=policy, deployment=DEPLOYMENT)


async def test_an_engine_on_this_machine_is_reached_by_its_bridge():
    network = await opened(NetworkEngine())
    assert network.is_local
    assert (network.host_address, network.relay_address) == ("127.0.0.1", "127.0.0.1")


async def test_the_bridges_address_is_the_subnets_first_where_the_engine_does_not_say_it():
    network = await opened(NetworkEngine(gateway=""))
    assert network.host_address == "127.0.0.1"


async def test_a_desktop_engine_has_a_name_for_this_machine_and_published_ports():
    network = await opened(NetworkEngine(is_virtual=True))
    assert not network.is_local
    assert (network.host_address, network.relay_address) == ("host.docker.internal", "")


async def test_podmans_machine_has_its_own_name_for_this_machine():
    network = await opened(NetworkEngine(name="Podman", is_virtual=True))
    assert (network.host_address, network.relay_address) == ("host.containers.internal", "")


async def test_a_rootless_engine_is_relayed_for_peers_of_this_machine_alone():
    network = await opened(NetworkEngine(name="Podman", is_rootless=True))
    assert not network.is_local
    assert network.host_address == "host.containers.internal"
    assert network.relay_address
    assert network.relay_peers


async def test_a_bridge_that_is_not_on_this_machine_is_not_listened_at():
    network = await opened(NetworkEngine(subnet="198.51.100.0/24", gateway="198.51.100.1"))
    assert not network.is_local
    assert network.relay_address != "198.51.100.1"


async def test_host_only_is_an_internal_network_of_the_deployment_without_name_servers():
    engine = NetworkEngine()
    network = await opened(engine, NetworkPolicy.HOST_ONLY)
    ((name, labels, is_internal),) = engine.made
    assert name.startswith("arkdev-d1-network-")
    assert (labels, is_internal) == (DEPLOYMENT.labels, True)
    assert (network.name, network.was_made) == ("net-id", True)
    assert network.name_servers == ("127.0.0.1",)


@pytest.mark.parametrize("kind", ["is_virtual", "is_rootless"])
async def test_host_only_is_refused_where_it_cannot_be_held(kind):
    engine = NetworkEngine(**{kind: True})
    with pytest.raises(EngineError, match="host-only cannot be held by Docker") as raised:
        await opened(engine, NetworkPolicy.HOST_ONLY)
    assert "--network open" in raised.value.hint
    assert engine.made == []
