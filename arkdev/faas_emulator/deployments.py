"""What belongs to which deployment, and how nothing of it stays behind.

Everything that is made in an engine bears the labels of its deployment. A deployment removes what
is its own when it ends. What a killed process could not remove is removed at the next start, and
only that: it names its owner, and the owner is gone. A deployment that is meant to outlive its
command says so, and is left alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import EngineError
from arkdev.faas_emulator.engine import Engine
from arkdev.faas_emulator.owners import is_gone, read_owner, this_process
from arkdev.faas_emulator.releasing import carried_out

DEPLOYMENT = "arkdev.deployment"
OWNER = "arkdev.owner"
WORKSPACE = "arkdev.workspace"
LASTING = "arkdev.lasting"
"""Bears it: a deployment that outlives the command that made it."""
FUNCTION = "arkdev.function"


@dataclass(frozen=True)
class Deployment:
    """The functions of one workspace, as they run in one engine."""

    id: str
    workspace: Path
    owner: str
    is_lasting: bool = False

    @property
    def labels(self) -> dict[str, str]:
        """Return what everything that belongs to it is labelled with."""
        labels = {
            DEPLOYMENT: self.id,
            OWNER: self.owner,
            WORKSPACE: str(self.workspace),
        }
        return {**labels, LASTING: "1"} if self.is_lasting else labels


@dataclass(frozen=True)
class Swept:
    """What was removed of owners that are gone."""

    num_containers: int = 0
    num_networks: int = 0

    def __bool__(self) -> bool:
        return bool(self.num_containers or self.num_networks)

    def __str__(self) -> str:
        return (
            f"removed {self.num_containers} containers and {self.num_networks} networks that a "
            f"killed arkdev had left behind"
        )


@asynccontextmanager
async def deployment(
    engine: Engine, *, workspace: Path, is_lasting: bool = False
) -> AsyncIterator[Deployment]:
    """Sweep, then give a new deployment; at the end remove all that is still there of it.

    One that is lasting keeps its things, unless it fails. Raises `EngineError`.
    """
    await sweep(engine)
    made = Deployment(secrets.token_hex(4), workspace, str(this_process()), is_lasting)
    is_kept = False
    try:
        yield made
        is_kept = is_lasting
    finally:
        if not is_kept:
            await carried_out(remove_deployment(engine, made.id))


async def sweep(engine: Engine) -> Swept:
    """Remove what belongs to processes of this machine that are gone. Raises `EngineError`."""
    containers = [c["Id"] for c in await engine.containers({OWNER: None}) if _is_left_behind(c)]
    networks = [n["Id"] for n in await engine.networks({OWNER: None}) if _is_left_behind(n)]
    await _remove(engine, containers, networks)
    return Swept(len(containers), len(networks))


async def remove_deployment(engine: Engine, deployment_id: str) -> None:
    """Remove every container and network of a deployment. Raises `EngineError`."""
    labels = {DEPLOYMENT: deployment_id}
    containers = [container["Id"] for container in await engine.containers(labels)]
    networks = [network["Id"] for network in await engine.networks(labels)]
    await _remove(engine, containers, networks)


async def _remove(engine: Engine, containers: Iterable[str], networks: Iterable[str]) -> None:
    """Containers first, since a network in use cannot be removed. One failure stops no other."""
    for removals in (
        [engine.remove(container) for container in containers],
        [engine.remove_network(network) for network in networks],
    ):
        results = await asyncio.gather(*removals, return_exceptions=True)
        for result in results:
            if isinstance(result, EngineError):
                result.hint = f"docker ps -a --filter label={DEPLOYMENT} shows what is left"
            if isinstance(result, BaseException):
                raise result


def _is_left_behind(entry: Mapping[str, Any]) -> bool:
    labels = entry.get("Labels") or {}
    owner = read_owner(labels.get(OWNER, ""))
    return owner is not None and LASTING not in labels and is_gone(owner)
