"""What belongs to which deployment, and how nothing of it stays behind.

Everything that is made in an engine bears the labels of its deployment. A deployment removes what
is its own when it ends. What a killed process could not remove is removed at the next start, and
only that: it names its owner, and the owner is gone. A deployment that is meant to outlive its
command says so, and is left alone.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.errors import EngineError
from arkdev.faas_emulator.engines.engine import Engine
from arkdev.faas_emulator.engines.owners import is_gone, read_owner, this_process
from arkdev.faas_emulator.images.image_plan import WORKSPACE_LABEL, workspace_id
from arkdev.faas_emulator.releasing import carried_out

DEPLOYMENT = "arkdev.deployment"
OWNER = "arkdev.owner"
WORKSPACE = WORKSPACE_LABEL
LASTING = "arkdev.lasting"
"""Bears it: a deployment that outlives the command that made it."""
FUNCTION = "arkdev.function"
_NOT_FOR_NAMES = re.compile(r"[^a-zA-Z0-9_.-]+")


def _nothing(_: str) -> None:
    pass


@dataclass(frozen=True)
class Deployment:
    """The functions of one workspace, as they run in one engine."""

    id: str
    workspace: Path
    owner: str
    is_lasting: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    def new_name(self, purpose: str) -> str:
        """Return a name for a container or a network of it that no other one has."""
        plain = _NOT_FOR_NAMES.sub("-", purpose)
        return f"arkdev-{self.id}-{plain}-{next(self._numbers)}"

    @property
    def labels(self) -> dict[str, str]:
        """Return what everything that belongs to it is labelled with."""
        labels = {
            DEPLOYMENT: self.id,
            OWNER: self.owner,
            WORKSPACE: workspace_id(self.workspace),
        }
        return {**labels, LASTING: "1"} if self.is_lasting else labels


@dataclass(frozen=True)
class Swept:
    """What was removed of owners that are gone."""

    num_containers: int
    num_networks: int
    problems: tuple[str, ...] = ()
    """What could not be removed, and why: nobody has to wait for that."""

    def notes(self) -> list[str]:
        """Say it, for people; empty where there was nothing to remove."""
        told = []
        if self.num_containers or self.num_networks:
            told.append(
                f"removed what an arkdev that was killed had left: {self.num_containers} "
                f"containers, {self.num_networks} networks"
            )
        return told + [f"left by an arkdev that was killed: {each}" for each in self.problems]


@asynccontextmanager
async def deployment(
    engine: Engine,
    *,
    workspace: Path,
    is_lasting: bool = False,
    on_note: Callable[[str], None] = _nothing,
) -> AsyncIterator[Deployment]:
    """Sweep, then give a new deployment; at the end remove all that is still there of it.

    One that is lasting keeps its things, unless it fails. `on_note` is told of what was swept.
    Raises `EngineError`.
    """
    for note in (await sweep(engine)).notes():
        on_note(note)
    made = Deployment(secrets.token_hex(4), workspace, str(this_process()), is_lasting)
    is_kept = False
    try:
        yield made
        is_kept = is_lasting
    finally:
        if not is_kept:
            await carried_out(remove_deployment(engine, made.id))


async def sweep(engine: Engine) -> Swept:
    """Remove what belongs to processes of this machine that are gone.

    Raises `EngineError` when the engine does not tell what there is.
    """
    containers = [c["Id"] for c in await engine.containers({OWNER: None}) if _is_left_behind(c)]
    networks = [n["Id"] for n in await engine.networks({OWNER: None}) if _is_left_behind(n)]
    refused_containers, refused_networks = await _remove(engine, containers, networks)
    return Swept(
        len(containers) - len(refused_containers),
        len(networks) - len(refused_networks),
        tuple(error.message for error in refused_containers + refused_networks),
    )


async def remove_deployment(engine: Engine, deployment_id: str) -> None:
    """Remove every container and network of a deployment. Raises `EngineError`."""
    labels = {DEPLOYMENT: deployment_id}
    containers = [container["Id"] for container in await engine.containers(labels)]
    networks = [network["Id"] for network in await engine.networks(labels)]
    for refused in await _remove(engine, containers, networks):
        for error in refused:
            error.hint = f"docker ps -a --filter label={DEPLOYMENT} shows what is left"
            raise error


async def _remove(
    engine: Engine, containers: Iterable[str], networks: Iterable[str]
) -> tuple[list[EngineError], list[EngineError]]:
    """Return what was refused. Containers first: a network in use cannot be removed."""
    return (
        await _refused([engine.remove(container) for container in containers]),
        await _refused([engine.remove_network(network) for network in networks]),
    )


async def _refused(removals: Iterable[Awaitable[None]]) -> list[EngineError]:
    """Carry out all of them, whatever one says; return the errors of the engine."""
    errors = []
    for result in await asyncio.gather(*removals, return_exceptions=True):
        if isinstance(result, EngineError):
            errors.append(result)
        elif isinstance(result, BaseException):
            raise result
    return errors


def _is_left_behind(entry: Mapping[str, Any]) -> bool:
    labels = entry.get("Labels") or {}
    owner = read_owner(labels.get(OWNER, ""))
    return owner is not None and LASTING not in labels and is_gone(owner)
