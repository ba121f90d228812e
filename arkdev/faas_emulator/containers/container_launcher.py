"""Starts instances in containers, for the functions of one deployment.

All of them share an image and a network. What a function is given are its declared variables, with
addresses of this machine's loopback replaced by what a container reaches, and the variables of
`arkdev.faas_emulator.worker.wire`; nothing of this machine's environment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from arkdev.errors import EngineError
from arkdev.faas_emulator.choices import NetworkPolicy
from arkdev.faas_emulator.containers.container_instance import ContainerInstance, Launch
from arkdev.faas_emulator.containers.container_limits import container_limits, tmp_mb
from arkdev.faas_emulator.engines.deployments import FUNCTION, Deployment
from arkdev.faas_emulator.engines.engine import ContainerSpec, Engine
from arkdev.faas_emulator.engines.networks import FunctionNetwork, open_network
from arkdev.faas_emulator.engines.reachability import Reachability, probe_command
from arkdev.faas_emulator.engines.run_once import run_once
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instances import InstanceLimits
from arkdev.faas_emulator.worker import wire
from arkdev.faas_emulator.worker.log_wire import OutputLine

START_LIMIT_S = 120.0
"""For a container's start and the plugin's import."""
_PROBE_LIMIT_S = 30.0
_PROBE_MEMORY_MB = 128
_GIVEN = {"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class ContainerSettings:
    """How containers of a deployment are run."""

    network: NetworkPolicy = NetworkPolicy.OPEN
    start_limit_s: float = START_LIMIT_S


@dataclass(frozen=True)
class _Prepared:
    """What instances start from."""

    image: str
    network: FunctionNetwork
    reachability: Reachability


class ContainerLauncher:
    """`arkdev.faas_emulator.instances.InstanceLauncher` over a container engine.

    `build` makes the image and returns its id or tag. `on_note` is told, once, of limits that do
    not hold here and of addresses that are replaced.
    """

    def __init__(
        self,
        functions: Sequence[FunctionSpec],
        *,
        engine: Engine,
        deployment: Deployment,
        build: Callable[[], Awaitable[str]],
        settings: ContainerSettings | None = None,
        on_note: Callable[[str], None],
    ) -> None:
        self._functions = tuple(functions)
        self._engine = engine
        self._deployment = deployment
        self._build = build
        self._settings = settings or ContainerSettings()
        self._on_note = on_note
        self._prepared: _Prepared | None = None
        self._instances: set[ContainerInstance] = set()

    def limits(self, function: FunctionSpec) -> InstanceLimits:
        """Tell which limits of the function hold here."""
        return container_limits(function, self._engine.facts)

    async def prepare(self) -> None:
        """Build the image, make the network, and see that declared addresses are reached.

        Raises `ConfigurationError`, `EngineError` and `EndpointUnreachableError`. Once is enough.
        """
        if self._prepared is not None:
            return
        _check_is_here(self._engine)
        for note in dict.fromkeys(
            note for function in self._functions for note in self.limits(function).notes
        ):
            self._on_note(note)
        image = await self._build()
        network = await open_network(
            self._engine, policy=self._settings.network, deployment=self._deployment
        )
        reachability = Reachability(network, probe=self._probe, on_note=self._on_note)
        self._prepared = _Prepared(image, network, reachability)
        await reachability.inside(
            value for function in self._functions for value in function.envs.values()
        )

    async def inside(self, url: str) -> str:
        """Return the URL by which functions reach what is at `url` here; tried out from inside.

        Raises `EndpointUnreachableError`.
        """
        (mapped,) = await self._ready.reachability.inside([url])
        return mapped

    async def start(
        self, function: FunctionSpec, *, on_log: Callable[[OutputLine], None]
    ) -> ContainerInstance:
        """Start an instance and wait until it is ready."""
        launch = Launch(
            engine=self._engine,
            function=function,
            spec=self._spec(function, await self._envs(function)),
            is_local=self._ready.network.is_local,
            limit_s=self._settings.start_limit_s,
        )
        instance = ContainerInstance(launch, on_log=on_log)
        # before it begins: `close` stops one that is starting
        self._instances = {each for each in self._instances if not each.is_stopped} | {instance}
        await instance.begin()
        return instance

    async def close(self) -> None:
        """Stop every instance that still runs, and release the rest. Idempotent."""
        results = await asyncio.gather(
            *(instance.stop() for instance in self._instances), return_exceptions=True
        )
        if self._prepared is not None:
            await self._prepared.reachability.close()
            if self._prepared.network.was_made:
                await self._engine.remove_network(self._prepared.network.name)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def _ready(self) -> _Prepared:
        assert self._prepared is not None, "prepare() comes first"
        return self._prepared

    async def _envs(self, function: FunctionSpec) -> dict[str, str]:
        values = await self._ready.reachability.inside(function.envs.values())
        return dict(zip(function.envs, values, strict=True))

    def _spec(self, function: FunctionSpec, envs: Mapping[str, str]) -> ContainerSpec:
        limits, network = self.limits(function), self._ready.network
        name = self._deployment.new_name(function.name)
        return ContainerSpec(
            image=self._ready.image,
            name=name,
            labels={**self._deployment.labels, FUNCTION: function.name},
            envs={
                **_GIVEN,
                **envs,
                wire.PORT_VARIABLE: str(wire.DEFAULT_PORT),
                wire.TIMEOUT_VARIABLE: f"{function.timeout_s:g}",
                wire.FUNCTION_VARIABLE: function.reference,
                wire.INSTANCE_VARIABLE: name,
            },
            num_cpus=limits.num_cpus,
            memory_mb=limits.memory_mb,
            tmp_mb=tmp_mb(limits.memory_mb or function.memory_mb),
            network=network.name,
            dns=network.name_servers,
            published_port=None if network.is_local else wire.DEFAULT_PORT,
        )

    async def _probe(self, addresses: Sequence[tuple[str, int]]) -> Sequence[str]:
        network = self._ready.network
        spec = ContainerSpec(
            image=self._ready.image,
            name=self._deployment.new_name("probe"),
            labels=self._deployment.labels,
            command=probe_command(addresses),
            memory_mb=_PROBE_MEMORY_MB,
            network=network.name,
            dns=network.name_servers,
        )
        output = await run_once(self._engine, spec, limit_s=_PROBE_LIMIT_S)
        answers: list[str] = json.loads(output)
        return answers


def _check_is_here(engine: Engine) -> None:
    """Refuse an engine of another machine: neither its containers nor this one's servers meet."""
    parts = urlsplit(engine.facts.address)
    if parts.scheme != "unix" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise EngineError(
            f"{engine.facts} is on another machine, where functions do not reach this one",
            hint="use an engine of this machine: unset DOCKER_HOST, or docker context use default",
        )
