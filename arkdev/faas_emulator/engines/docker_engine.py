"""The engine behind Docker's HTTP API (leaf: imports docker).

Every container is made hard to leave: a user without rights, a root that cannot be written to, no
capabilities, no new privileges, a limit for processes, an init process that reaps what is left.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import docker  # noqa: TID253 (the leaf)
import docker.types  # noqa: TID253
import docker.utils  # noqa: TID253
import docker.utils.socket  # noqa: TID253

from arkdev.errors import EngineError
from arkdev.faas_emulator.engines.docker_errors import (
    FAILURES,
    ConflictError,
    MissingObjectError,
    root_cause,
    translated,
)
from arkdev.faas_emulator.engines.docker_images import DockerImages
from arkdev.faas_emulator.engines.engine import ContainerSpec, EngineFacts, Stream, facts_of
from arkdev.faas_emulator.engines.engine_addresses import HOW_TO_START, EngineAddress
from arkdev.faas_emulator.images.image_plan import FUNCTION_UID

USER = f"{FUNCTION_UID}:{FUNCTION_UID}"
"""The user and the group that every container runs as, whatever its image says."""
MAX_PROCESSES = 1024
"""Of one container, threads included: 100 concurrent calls of a synchronous plugin and its own."""
_TIMEOUT_S = 60
_OPEN_TIMEOUT_S = 5
_MAX_CONNECTIONS = 64
_LOG_OPTIONS = {"max-size": "10m", "max-file": "2"}
_STREAMS: dict[int, Stream] = {1: "stdout", 2: "stderr"}
_T = TypeVar("_T")


async def open_first(addresses: Sequence[EngineAddress]) -> DockerEngine:
    """Open the first of the addresses where an engine answers.

    Raises `EngineError` with what was found at each one.
    """
    problems = []
    for address in addresses:
        path = address.socket
        if path is not None and not path.exists():
            problems.append(f"{address}: there is no such socket")
            continue
        try:
            return await asyncio.to_thread(_open, address)
        except EngineError as error:
            problems.append(f"{address}: {error.message}")
    looked = "\n".join(f"  {problem}" for problem in problems)
    raise EngineError(f"no container engine answers; looked at\n{looked}", hint=HOW_TO_START)


def _open(address: EngineAddress) -> DockerEngine:
    path = address.socket
    if path is not None and not os.access(path, os.R_OK | os.W_OK):
        raise EngineError("you may not use it: add your user to the group that owns the socket")
    options: dict[str, Any] = {"base_url": address.url}
    if address.source == "DOCKER_HOST":  # the only one with TLS variables of its own
        options = docker.utils.kwargs_from_env()
    try:
        client = docker.APIClient(
            **options, version="auto", timeout=_OPEN_TIMEOUT_S, max_pool_size=_MAX_CONNECTIONS
        )
    except FAILURES as error:
        raise EngineError(root_cause(error)) from error
    try:
        info, version = client.info(), client.version()
    except FAILURES as error:
        client.close()
        raise EngineError(root_cause(error)) from error
    client.timeout = _TIMEOUT_S
    facts = facts_of(info, version, address=address.url, platform=sys.platform)
    return DockerEngine(client, facts)


class DockerEngine:
    """`arkdev.faas_emulator.engines.engine.Engine` over Docker's API."""

    def __init__(self, client: Any, facts: EngineFacts) -> None:
        self._client = client
        self._facts = facts
        self._images = DockerImages(client)

    @property
    def facts(self) -> EngineFacts:
        """What it said when it was opened."""
        return self._facts

    @property
    def images(self) -> DockerImages:
        """What it can do with images; these calls block."""
        return self._images

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container; return its id."""
        made = await self._call(
            self._client.create_container,
            spec.image,
            command=list(spec.command[1:]) or None,
            entrypoint=list(spec.command[:1]) or None,
            name=spec.name,
            labels=dict(spec.labels),
            environment=dict(spec.envs),
            user=USER,
            ports=[spec.published_port] if spec.published_port else None,
            host_config=self._host_config(spec),
            # the proxies of ~/.docker/config.json are the host's
            use_config_proxy=False,
        )
        return str(made["Id"])

    def _host_config(self, spec: ContainerSpec) -> Any:
        facts = self._facts
        memory = f"{spec.memory_mb}m" if spec.memory_mb and facts.limits_memory else None
        published = {spec.published_port: ("127.0.0.1", None)} if spec.published_port else None
        return self._client.create_host_config(
            read_only=True,
            tmpfs={"/tmp": f"rw,nosuid,nodev,size={spec.tmp_mb}m,mode=1777"},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=MAX_PROCESSES if facts.limits_pids else None,
            init=True,
            mem_limit=memory,
            memswap_limit=memory if facts.limits_swap else None,
            nano_cpus=int(spec.num_cpus * 1e9) if spec.num_cpus and facts.limits_cpu else None,
            ulimits=[docker.types.Ulimit(name="core", soft=0, hard=0)],
            network_mode=spec.network,
            dns=list(spec.dns) or None,
            # the resolver would ask a name server that does not answer for ten seconds
            dns_opt=["timeout:1", "attempts:1"] if spec.dns else None,
            port_bindings=published,
            # Podman has drivers of its own
            log_config=None
            if facts.is_podman
            else docker.types.LogConfig(type="json-file", config=_LOG_OPTIONS),
        )

    async def start(self, container: str) -> None:
        """Start a container."""
        await self._call(self._client.start, container)

    async def attach(
        self,
        container: str,
        *,
        take: Callable[[Stream, bytes], None],
        at_end: Callable[[], None],
    ) -> DockerAttachment:
        """Follow what a container writes, byte for byte, from now on."""
        params = {"stdout": 1, "stderr": 1, "stream": 1, "logs": 0}
        opened = await self._call(self._client.attach_socket, container, params=params)
        return DockerAttachment(opened, take=take, at_end=at_end)

    async def inspect(self, container: str) -> Mapping[str, Any] | None:
        """Return what the engine knows of a container."""
        return await self._found(self._client.inspect_container, container)

    async def logs(self, container: str) -> tuple[bytes, bytes]:
        """Return what the engine has kept of a container's output: stdout, stderr."""
        read = partial(self._client.logs, container)
        return (
            await self._call(read, stdout=True, stderr=False),
            await self._call(read, stdout=False, stderr=True),
        )

    async def stats(self, container: str) -> Mapping[str, Any]:
        """Return one measurement of a container; empty when it does not run."""
        one_shot = docker.utils.version_gte(self._facts.api_version, "1.41") or None
        measure = partial(self._client.stats, stream=False, one_shot=one_shot)
        return await self._found(measure, container) or {}

    async def kill(self, container: str, *, signal: str = "SIGKILL") -> None:
        """Send a signal to a container's first process."""
        await self._unless_gone(self._client.kill, container, signal=signal)

    async def remove(self, container: str) -> None:
        """Kill a container and remove it, with its anonymous volumes."""
        await self._unless_gone(self._client.remove_container, container, v=True, force=True)

    async def containers(self, labels: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
        """Return the containers with these labels, running or not; None: with any value."""
        return list(
            await self._call(self._client.containers, all=True, filters={"label": _filter(labels)})
        )

    async def create_network(
        self, name: str, *, labels: Mapping[str, str], is_internal: bool
    ) -> str:
        """Make a bridge network; return its id. Its containers cannot reach each other."""
        # Podman has no such option
        options = {} if self._facts.is_podman else {"com.docker.network.bridge.enable_icc": "false"}
        made = await self._call(
            self._client.create_network,
            name,
            driver="bridge",
            labels=dict(labels),
            internal=is_internal,
            options=options,
        )
        return str(made["Id"])

    async def network(self, name: str) -> Mapping[str, Any] | None:
        """Return what the engine knows of a network."""
        return await self._found(self._client.inspect_network, name)

    async def networks(self, labels: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
        """Return the networks with these labels; None: with any value."""
        return list(await self._call(self._client.networks, filters={"label": _filter(labels)}))

    async def remove_network(self, name: str) -> None:
        """Remove a network that no container uses any more."""
        await self._unless_gone(self._client.remove_network, name)

    async def close(self) -> None:
        """End the connections."""
        await asyncio.to_thread(self._client.close)

    async def _call(self, method: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        return await asyncio.to_thread(translated, method, *args, **kwargs)

    async def _found(self, method: Callable[..., Any], name: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = await self._call(method, name)
        except MissingObjectError:
            return None
        return found

    async def _unless_gone(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Call it; what is gone, or is being removed, is what was wanted."""
        with suppress(MissingObjectError, ConflictError):
            await self._call(method, *args, **kwargs)


class DockerAttachment:
    """Reads a container's output in a thread of its own."""

    def __init__(
        self, opened: Any, *, take: Callable[[Stream, bytes], None], at_end: Callable[[], None]
    ) -> None:
        self._opened = opened  # holds the response, without which the connection is closed
        self._socket: socket.socket = getattr(opened, "_sock", opened)
        self._socket.settimeout(None)
        self._take = take
        self._at_end = at_end
        threading.Thread(target=self._read, name="arkdev-container-output", daemon=True).start()

    def close(self) -> None:
        """Stop following. Idempotent."""
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        try:
            for number, data in docker.utils.socket.frames_iter_no_tty(self._socket):
                if number in _STREAMS:
                    self._take(_STREAMS[number], data)
        except OSError:
            pass  # the engine went away: `inspect` will say so
        finally:
            self._opened._response.close()
            self._socket.close()
            self._at_end()


def _filter(labels: Mapping[str, str | None]) -> list[str]:
    return [name if value is None else f"{name}={value}" for name, value in labels.items()]
