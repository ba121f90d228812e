"""Open the endpoint of a run: behind a URL, scripted, or the policy in this process.

`arkdev.endpoints` knows nothing of models on this machine, so the choice is made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from arkdev.endpoints.endpoint import Endpoint
from arkdev.endpoints.registry import check_script_flags, open_endpoint
from arkdev.endpoints.spec import EndpointSpec
from arkdev.flows.local_policy import PolicySpec, load_policy

_Say = Callable[[str], None]


def _say_nothing(text: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class Opening:
    """What an endpoint is opened with; see `open_endpoint`."""

    max_in_flight: int
    timeout_s: float
    skill: float | None = None
    script: Path | None = None
    is_deterministic: bool = False
    """A policy in this process answers the same in each run."""
    say: _Say = _say_nothing
    """Is told how a policy was loaded."""


async def open_any(spec: EndpointSpec, opening: Opening) -> Endpoint:
    """Open `spec`, a policy too once it is chosen; the caller closes it.

    Raises what `open_endpoint` raises, and what loading a policy does.
    """
    if not isinstance(spec, PolicySpec):
        return open_endpoint(
            spec,
            max_in_flight=opening.max_in_flight,
            timeout_s=opening.timeout_s,
            skill=opening.skill,
            script=opening.script,
        )
    check_script_flags(spec, skill=opening.skill, script=opening.script)
    loaded = await asyncio.to_thread(load_policy, spec, is_deterministic=opening.is_deterministic)
    opening.say(f"{spec.model} answers {loaded}")
    endpoint: Endpoint = loaded.endpoint
    return endpoint


@asynccontextmanager
async def in_process_served(
    spec: EndpointSpec, *, skill: float, say: _Say = _say_nothing
) -> AsyncIterator[str]:
    """Serve a model that has no URL for the time of the block; yield the URL, ending in ``/v1``.

    `skill` is the scripted model's. Raises what loading a policy raises.
    """
    if isinstance(spec, PolicySpec):
        endpoint: Any = await open_any(spec, Opening(max_in_flight=0, timeout_s=0, say=say))
        server = import_module("arkdev.backends.local.server").PolicyServer(endpoint)
    else:
        endpoint = None
        scripted: Any = import_module("arkdev.endpoints.scripted.server")
        server = scripted.ScriptedServer(skill=skill, model=spec.model or spec.name)
    try:
        yield await server.start()
    finally:
        await server.stop()
        if endpoint is not None:
            await endpoint.close()
