"""What instances start from, made ready before a run's folder: an image, or an environment.

Where a container engine answers instances are containers, else child processes, with a note of what
these cannot hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from arkdev.errors import EngineError, MissingExtraError, UsageError
from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy
from arkdev.faas_emulator.containers.container_launcher import ContainerLauncher, ContainerSettings
from arkdev.faas_emulator.engines.deployments import deployment
from arkdev.faas_emulator.engines.engine import Engine, open_engine
from arkdev.faas_emulator.engines.reachability import answered_here
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.images.image import build_image
from arkdev.faas_emulator.instances import InstanceLauncher
from arkdev.faas_emulator.processes.environment import function_environment
from arkdev.faas_emulator.processes.process_instance import ProcessLauncher
from arkdev.flows.faas_plan import FaasPlan

Say = Callable[[str], None]


@dataclass(frozen=True)
class OpenLauncher:
    """A launcher that is prepared."""

    launcher: InstanceLauncher
    inside: Callable[[str], Awaitable[str]]
    """The URL by which instances reach what is at a URL of this machine."""


@dataclass(frozen=True)
class InstanceSource:
    """What instances start from. `launcher_for` opens a launcher of functions; close it."""

    plan: FaasPlan
    kind: InstanceKind
    launcher_for: Callable[[Sequence[FunctionSpec]], Awaitable[OpenLauncher]]


@asynccontextmanager
async def instance_source(
    plan: FaasPlan | None, *, say: Say
) -> AsyncIterator[InstanceSource | None]:
    """Make ready what the instances of a run start from; None without ``--faas``.

    `say` is told how it goes, line by line.
    Raises `EngineError` and `MissingExtraError` when containers are asked for and cannot be had,
    `UsageError` for a network policy that processes cannot hold, `BuildError`.
    """
    if plan is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        engine = await _engine(plan, say)
        if engine is None:
            yield await _processes(plan, say)
            return
        stack.push_async_callback(engine.close)
        yield await _containers(plan, engine, stack, say)


async def _engine(plan: FaasPlan, say: Say) -> Engine | None:
    """Return the engine that containers run on; None for processes."""
    if plan.kind is InstanceKind.PROCESS:
        return None
    try:
        engine = await open_engine()
    except (EngineError, MissingExtraError) as error:
        if plan.kind is InstanceKind.CONTAINER or plan.network is NetworkPolicy.HOST_ONLY:
            raise
        say(f"no containers: {error.message}")
        say("instances are child processes")
        return None
    say(f"instances are containers of {engine.facts}")
    return engine


async def _containers(
    plan: FaasPlan, engine: Engine, stack: AsyncExitStack, say: Say
) -> InstanceSource:
    image = await build_image(plan.package, plan.requirements, engine=engine.images, on_output=say)
    made = await stack.enter_async_context(
        deployment(engine, workspace=plan.workspace.root, on_note=say)
    )

    async def tag() -> str:
        return image.tag

    async def launcher_for(functions: Sequence[FunctionSpec]) -> OpenLauncher:
        launcher = ContainerLauncher(
            functions,
            engine=engine,
            deployment=made,
            build=tag,
            settings=ContainerSettings(network=plan.network),
            on_note=say,
        )
        stack.push_async_callback(launcher.close)
        await launcher.prepare()
        return OpenLauncher(launcher, launcher.inside)

    return InstanceSource(plan, InstanceKind.CONTAINER, launcher_for)


async def _processes(plan: FaasPlan, say: Say) -> InstanceSource:
    if plan.network is NetworkPolicy.HOST_ONLY:
        raise UsageError(
            "--network host-only cannot be held by child processes",
            hint="let instances be containers: --faas-engine container",
        )
    environment = await function_environment(plan.requirements, on_output=say)

    async def launcher_for(functions: Sequence[FunctionSpec]) -> OpenLauncher:
        launcher = ProcessLauncher(plan.package, python=environment.python)
        await launcher.prepare()
        return OpenLauncher(launcher, answered_here)

    return InstanceSource(plan, InstanceKind.PROCESS, launcher_for)
