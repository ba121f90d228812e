"""The deployments that `arkdev faas up` keeps, seen from elsewhere: `status`, `logs`, `down`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arkdev.errors import EngineError, MissingExtraError, UsageError
from arkdev.faas_emulator.choices import InstanceKind
from arkdev.faas_emulator.engines.deployments import sweep
from arkdev.faas_emulator.engines.engine import open_engine
from arkdev.faas_emulator.kept_deployments import KeptDeployment, KeptDeployments
from arkdev.faas_emulator.processes.function_folder import remove_left_folders
from arkdev.faas_emulator.state_folder import state_folder
from arkdev.job.workspace import find_workspace

_ASKED_FOR_S = 5.0
STOPPED_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1


def kept_deployments(say: Callable[[str], None]) -> KeptDeployments:
    """Return what there is, after what killed deployments left behind is removed, and said.

    One whose containers cannot be looked for is not forgotten: the next call tries again.
    """
    deployments = KeptDeployments(state_folder())
    left = deployments.left_behind()
    of_containers = {
        name for name, kept in left.items() if kept and kept.engine == InstanceKind.CONTAINER.value
    }
    problem = ""
    if left:
        remove_left_folders()
    if of_containers or None in left.values():
        problem = asyncio.run(_swept(say))
    for name in left:
        if problem and name in of_containers:
            say(
                f"the deployment {name} was killed, and its containers cannot be looked for: "
                f"{problem}; the next `arkdev faas` tries again"
            )
            continue
        deployments.remove(name)
        say(f"removed what the deployment {name} left, whose process was killed")
    return deployments


async def _swept(say: Callable[[str], None]) -> str:
    """Remove containers that nobody owns any more; return why that cannot be done, if so."""
    try:
        engine = await open_engine()
    except (EngineError, MissingExtraError) as error:
        return error.message.partition("; looked at")[0]
    try:
        for note in (await sweep(engine)).notes():
            say(note)
    except EngineError as error:
        return error.message
    finally:
        await engine.close()
    return ""


def chosen(deployments: KeptDeployments, deployment_id: str, *, start: Path) -> KeptDeployment:
    """Return the one with an id, or without one that of the workspace. Raises `UsageError`."""
    found = deployments.all()
    if deployment_id:
        for each in found:
            if each.id == deployment_id:
                return each
        raise UsageError(f"no deployment {deployment_id}", hint=_which(found))
    root = find_workspace(start).root
    here = [each for each in found if each.workspace == str(root) and each.is_here]
    if len(here) == 1:
        return here[0]
    if here:
        raise UsageError(f"{len(here)} deployments of {root}: which one?", hint=_which(here))
    raise UsageError(f"no deployment of {root} is up", hint=_which(found))


def _which(found: Sequence[KeptDeployment]) -> str:
    if not found:
        return "`arkdev faas up --detach` makes one"
    return "there is " + ", ".join(f"{each.id} ({each.workspace})" for each in found)


@dataclass(frozen=True)
class FunctionStatus:
    """How one function is doing."""

    name: str
    reference: str
    kind: str
    url: str
    num_instances: int | None
    """None: its deployment does not answer."""
    max_replicas: int | None
    num_calls: int | None
    """Since it is up."""
    num_running: int | None
    num_queued: int | None


def status_of(deployment: KeptDeployment) -> tuple[FunctionStatus, ...]:
    """Ask a deployment how its functions are doing."""
    # elsewhere, that address is somebody else's here
    answered = _asked(deployment.url) if deployment.is_here else {}
    rows = []
    for function in deployment.functions:
        now = answered.get(function.name, {})
        rows.append(
            FunctionStatus(
                name=function.name,
                reference=function.reference,
                kind=function.kind,
                url=function.url,
                num_instances=now.get("instances"),
                max_replicas=now.get("max_replicas"),
                num_calls=now.get("calls"),
                num_running=now.get("running"),
                num_queued=now.get("queued"),
            )
        )
    return tuple(rows)


def _asked(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_ASKED_FOR_S)
    try:
        connection.request("GET", "/")
        functions = json.loads(connection.getresponse().read())["functions"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return {}
    finally:
        connection.close()
    return functions if isinstance(functions, dict) else {}


def stop(
    deployments: KeptDeployments, deployment: KeptDeployment, *, say: Callable[[str], None]
) -> None:
    """End a deployment and wait until nothing of it is left; one that will not end is killed.

    Raises `UsageError` for one of another machine: its process id means another process here.
    """
    if not deployment.is_here:
        raise UsageError(
            f"the deployment {deployment.id} is of another machine, or of a container on this one",
            hint="end it there",
        )
    _signal(deployment, signal.SIGTERM)
    if not _is_over(deployments, deployment, within_s=STOPPED_WITHIN_S):
        _signal(deployment, signal.SIGKILL)
        say(f"{deployment.id} did not end within {STOPPED_WITHIN_S:g} s and was killed")
        _is_over(deployments, deployment, within_s=_ASKED_FOR_S)
    if deployments.find(deployment.id) is not None:
        kept_deployments(say)


def _signal(deployment: KeptDeployment, number: signal.Signals) -> None:
    if deployment.is_up:
        with suppress(ProcessLookupError):
            os.kill(deployment.pid, number)


def _is_over(deployments: KeptDeployments, deployment: KeptDeployment, *, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if deployments.find(deployment.id) is None or not deployment.is_up:
            return True
        time.sleep(_LOOK_EVERY_S)
    return False
