"""``arkdev faas up --detach``: the same command in a process of its own, until it is up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from arkdev.cli.detaching import Background, start_detached
from arkdev.faas_emulator.kept_deployments import OUTPUT_FILE, KeptDeployment, KeptDeployments
from arkdev.faas_emulator.state_folder import state_folder

if TYPE_CHECKING:
    from arkdev.flows.ark_endpoint import ArkEndpoint
    from arkdev.flows.faas_up import UpRequest


def start_deployment(request: UpRequest, target: ArkEndpoint | None) -> KeptDeployment:
    """Start it and show what it says until it is up.

    Raises `typer.Exit` with its exit code when it ends before. Ctrl-C meanwhile ends it.
    """
    deployments = KeptDeployments(state_folder())
    deployment_id, folder = deployments.make_folder()
    command = [*_command(request, target), "--id", deployment_id]
    background = Background(command, cwd=request.start, output=folder / OUTPUT_FILE)
    try:
        return start_detached(background, find=lambda _: deployments.find(deployment_id))
    except BaseException:
        deployments.remove(deployment_id)
        raise


def _command(request: UpRequest, target: ArkEndpoint | None) -> list[str]:
    # -P: a module of the workspace must not stand for one of the standard library
    command = [sys.executable, "-P", "-m", "arkdev", "faas", "up", "--port", str(request.port)]
    command += ["--faas-engine", request.kind.value, "--network", request.network.value]
    for reference in request.functions:
        command += ["--fn", reference]
    options: dict[str, str | Path | None] = {"--job": request.job}
    if target is not None:
        options["--endpoint"] = target.name_or_url
        options |= {"--model": target.model, "--api-key-env": target.api_key_env}
    for name, value in options.items():
        if value:
            command += [name, str(value)]
    return command
