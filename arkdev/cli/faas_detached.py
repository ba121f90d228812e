"""``arkdev faas up --detach``: the same command in a process of its own, until it is up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

from arkdev.cli.streams import messages
from arkdev.faas_emulator.kept_deployments import OUTPUT_FILE, KeptDeployment, KeptDeployments
from arkdev.faas_emulator.state_folder import state_folder

if TYPE_CHECKING:
    from arkdev.flows.ark_endpoint import ArkEndpoint
    from arkdev.flows.faas_up import UpRequest

_LOOK_EVERY_S = 0.1
_ENDS_WITHIN_S = 30.0


def start_detached(request: UpRequest, target: ArkEndpoint | None) -> KeptDeployment:
    """Start it and show what it says until it is up.

    Raises `typer.Exit` with its exit code when it ends before. Ctrl-C meanwhile ends it.
    """
    deployments = KeptDeployments(state_folder())
    deployment_id, folder = deployments.make_folder()
    output = folder / OUTPUT_FILE
    with output.open("ab") as sink, output.open("rb") as said:
        process = subprocess.Popen(
            [*_command(request, target), "--id", deployment_id],
            cwd=request.start,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
        try:
            kept = _wait(process, deployments, deployment_id, said=said)
        except BaseException:
            _end(process)
            deployments.remove(deployment_id)
            raise
        process.returncode = 0  # nobody waits for it any more
        return kept


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


def _wait(
    process: subprocess.Popen[bytes],
    deployments: KeptDeployments,
    deployment_id: str,
    *,
    said: BinaryIO,
) -> KeptDeployment:
    while True:
        code = process.poll()
        kept = deployments.find(deployment_id)
        if kept is not None:
            return kept
        messages().write(said.read().decode("utf-8", "replace"))
        messages().flush()
        if code is not None:
            raise typer.Exit(code or 1)
        time.sleep(_LOOK_EVERY_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_WITHIN_S)
    if process.poll() is None:
        os.kill(process.pid, 9)
        process.wait()
