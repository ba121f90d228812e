"""What functions may reach, and by which address they reach this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arkdev.errors import EngineError
from arkdev.faas_emulator.choices import NetworkPolicy
from arkdev.faas_emulator.engines.deployments import Deployment
from arkdev.faas_emulator.engines.engine import Engine, EngineFacts
from arkdev.faas_emulator.engines.relay import Network

_NO_NAME_SERVER = "127.0.0.1"
"""Asked inside the container, where none listens: the engine's own would ask the Internet."""
_NOT_ROUTED = ("192.0.2.1", 9)
"""An address of documentation: connecting a UDP socket to it sends nothing."""


@dataclass(frozen=True)
class FunctionNetwork:
    """The network that a deployment's containers are on."""

    name: str
    """As the engine takes it: ``default``, or the id of one that was made."""
    policy: NetworkPolicy
    is_local: bool
    """The containers' addresses are reached from here; else through a published port."""
    host_address: str
    """By which name or address a container reaches this machine."""
    relay_address: str
    """Where a relay listens to be reached there; empty: the loopback is reached without one."""
    relay_peers: tuple[Network, ...] = ()
    """Who may use a relay; empty: whoever reaches `relay_address`."""

    @property
    def was_made(self) -> bool:
        """Whether it was made for the deployment."""
        return self.policy is NetworkPolicy.HOST_ONLY

    @property
    def name_servers(self) -> tuple[str, ...]:
        """What the containers ask for names; empty: what the engine chooses."""
        return (_NO_NAME_SERVER,) if self.policy is NetworkPolicy.HOST_ONLY else ()


async def open_network(
    engine: Engine, *, policy: NetworkPolicy, deployment: Deployment
) -> FunctionNetwork:
    """Make the network, or find the engine's own. The deployment removes what is made.

    Raises `EngineError` when the engine cannot hold the policy.
    """
    if policy is NetworkPolicy.OPEN:
        return _open_network(engine.facts, await _default_gateway(engine))
    facts = engine.facts
    if facts.is_virtual or facts.is_rootless:
        raise EngineError(
            f"the network policy host-only cannot be held by {facts}: its containers are on a "
            "network of their own that this machine is not on",
            hint="--network open, or an engine that runs on this machine as root",
        )
    name = deployment.new_name("network")
    made = await engine.create_network(name, labels=deployment.labels, is_internal=True)
    gateway = _gateway(await engine.network(made) or {})
    if not gateway:
        raise EngineError(f"the network {name} has no address of this machine")
    return FunctionNetwork(
        made,
        policy,
        is_local=True,
        host_address=gateway,
        relay_address=gateway,
    )


def _open_network(facts: EngineFacts, gateway: str) -> FunctionNetwork:
    policy = NetworkPolicy.OPEN
    if facts.is_virtual:
        # the virtual machine's own forwarding ends at this machine's loopback
        return FunctionNetwork("default", policy, False, _name_of_host(facts), relay_address="")
    if gateway and not facts.is_rootless and is_address_of_this_machine(gateway):
        return FunctionNetwork("default", policy, True, gateway, relay_address=gateway)
    outward = outward_address()
    # from a network namespace of the user, connections come from this machine's own address
    peers = (ipaddress.ip_network(outward), ipaddress.ip_network("127.0.0.0/8"))
    reached_by = _name_of_host(facts) if facts.is_podman else outward
    return FunctionNetwork("default", policy, False, reached_by, outward, relay_peers=peers)


def _name_of_host(facts: EngineFacts) -> str:
    return "host.containers.internal" if facts.is_podman else "host.docker.internal"


async def _default_gateway(engine: Engine) -> str:
    name = "podman" if engine.facts.is_podman else "bridge"
    return _gateway(await engine.network(name) or {})


def _gateway(network: Mapping[str, Any]) -> str:
    """This machine's address on a bridge network: its gateway, by default the subnet's first."""
    for config in network.get("IPAM", {}).get("Config") or ():
        subnet = ipaddress.ip_network(config.get("Subnet", "::/128"), strict=False)
        if subnet.version == 4:
            return str(config.get("Gateway") or subnet[1])
    return ""


def is_address_of_this_machine(address: str) -> bool:
    """Whether a server here can listen on the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def outward_address() -> str:
    """Return this machine's address towards other machines; the loopback's without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_NOT_ROUTED)
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
    return address
