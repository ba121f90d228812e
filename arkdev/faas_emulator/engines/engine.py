"""The container engine as the emulator uses it: Docker's HTTP API, of Docker or of Podman.

The implementation is `docker_engine`, the one module that imports the `docker` package; it is
loaded when an engine is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from arkdev.errors import MissingExtraError
from arkdev.faas_emulator.engines.engine_addresses import engine_addresses
from arkdev.faas_emulator.images.image_engine import ImageEngine

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says of itself."""

    name: str
    """``Docker``, ``Podman``."""
    version: str
    api_version: str
    address: str
    num_cpus: int
    """CPUs of the machine that containers run on: a virtual one with Docker Desktop."""
    memory_mb: int
    """Its memory, in MiB."""
    architecture: str
    """As in an image's platform: ``amd64``, ``arm64``."""
    cgroup_version: int
    """1 or 2."""
    is_rootless: bool
    is_virtual: bool
    """Containers run in a virtual machine (Docker Desktop; every engine on macOS), whose addresses
    cannot be reached from here."""
    limits_cpu: bool
    limits_memory: bool
    limits_swap: bool
    limits_pids: bool

    @property
    def is_podman(self) -> bool:
        """Whether it is Podman behind Docker's API."""
        return self.name == "Podman"

    def __str__(self) -> str:
        kind = ", in a virtual machine" if self.is_virtual else ""
        rootless = ", rootless" if self.is_rootless else ""
        return f"{self.name} {self.version}{rootless}{kind} at {self.address}"


def facts_of(
    info: Mapping[str, Any], version: Mapping[str, Any], *, address: str, platform: str
) -> EngineFacts:
    """Read an engine's ``/info`` and ``/version``; `platform` is this machine's `sys.platform`."""
    components = [part.get("Name", "") for part in version.get("Components") or ()]
    is_podman = any("podman" in name.lower() for name in components)
    system = str(info.get("OperatingSystem", "")).lower()
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    return EngineFacts(
        name="Podman" if is_podman else "Docker",
        version=str(version.get("Version", "")),
        api_version=str(version.get("ApiVersion", "")),
        address=address,
        num_cpus=int(info.get("NCPU") or 1),
        memory_mb=int(info.get("MemTotal") or 0) // 2**20,
        architecture=str(version.get("Arch", "")),
        cgroup_version=int(info.get("CgroupVersion") or 1),
        is_rootless=any("rootless" in option for option in options),
        is_virtual=platform == "darwin" or "docker desktop" in system,
        limits_cpu=bool(info.get("CpuCfsQuota", True)),
        limits_memory=bool(info.get("MemoryLimit", True)),
        limits_swap=bool(info.get("SwapLimit", True)),
        limits_pids=bool(info.get("PidsLimit", True)),
    )


@dataclass(frozen=True)
class ContainerSpec:
    """A container to be made; always hardened: `docker_engine` says how."""

    image: str
    name: str
    labels: Mapping[str, str]
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All that the container is given beside what its image says."""
    command: Sequence[str] = ()
    """Replaces the image's entry point and command; empty: the image's own."""
    num_cpus: float | None = None
    memory_mb: int | None = None
    """Swap is none."""
    tmp_mb: int = 64
    """Size of /tmp, which is the only place that can be written to."""
    network: str = "default"
    dns: Sequence[str] = ()
    published_port: int | None = None
    """A port of the container that gets a free port on 127.0.0.1."""


class Engine(Protocol):
    """An engine that answers. Every method raises `EngineError` when it does not any more.

    Ids may be names. What is not there: `inspect` and `network` return None, `remove`, `kill` and
    `remove_network` do nothing.
    """

    @property
    def facts(self) -> EngineFacts:
        """What it said when it was opened."""
        ...

    @property
    def images(self) -> ImageEngine:
        """What it can do with images; these calls block."""
        ...

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container; return its id. Raises `EngineError` when it is refused."""
        ...

    async def start(self, container: str) -> None:
        """Start a container."""
        ...

    async def attach(
        self,
        container: str,
        *,
        take: Callable[[Stream, bytes], None],
        at_end: Callable[[], None],
    ) -> Attachment:
        """Follow what a container writes, byte for byte, from now on. Call it before `start`.

        Both are called in a thread of the attachment: `take` in the order of the writes of each
        stream, and the container waits while it has not returned; `at_end` once nothing more can
        come, which is when the container has ended or the engine has gone away.
        """
        ...

    async def inspect(self, container: str) -> Mapping[str, Any] | None:
        """Return what the engine knows of a container."""
        ...

    async def logs(self, container: str) -> tuple[bytes, bytes]:
        """Return what the engine has kept of a container's output: stdout, stderr."""
        ...

    async def stats(self, container: str) -> Mapping[str, Any]:
        """Return one measurement of a container; empty when it does not run."""
        ...

    async def saw_out_of_memory(self, container: str, *, since: int) -> bool:
        """Tell whether the kernel ended a process of the container for its memory.

        `since` are seconds since 1970.
        """
        ...

    async def kill(self, container: str, *, signal: str = "SIGKILL") -> None:
        """Send a signal to a container's first process."""
        ...

    async def remove(self, container: str) -> None:
        """Kill a container and remove it, with its anonymous volumes."""
        ...

    async def containers(self, labels: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
        """Return the containers with these labels, running or not; None: with any value."""
        ...

    async def create_network(
        self, name: str, *, labels: Mapping[str, str], is_internal: bool
    ) -> str:
        """Make a bridge network; return its id."""
        ...

    async def network(self, name: str) -> Mapping[str, Any] | None:
        """Return what the engine knows of a network."""
        ...

    async def networks(self, labels: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
        """Return the networks with these labels; None: with any value."""
        ...

    async def remove_network(self, name: str) -> None:
        """Remove a network that no container uses any more."""
        ...

    async def close(self) -> None:
        """End the connections."""
        ...


class Attachment(Protocol):
    """A container's output that is being followed."""

    def close(self) -> None:
        """Stop following. Idempotent."""
        ...


async def open_engine() -> Engine:
    """Find the engine of this machine and open it.

    Raises `MissingExtraError` without the package `docker`, and `EngineError` when none answers:
    it says where was looked.
    """
    spec = find_spec("docker")
    if spec is None or spec.origin is None:  # a folder of that name is no package
        raise MissingExtraError(
            "containers need the package docker, which is not installed",
            hint='pip install "arkdev[faas]"',
        )
    addresses = engine_addresses(os.environ, home=Path.home())
    leaf: Any = import_module("arkdev.faas_emulator.engines.docker_engine")
    engine: Engine = await leaf.open_first(addresses)
    return engine
