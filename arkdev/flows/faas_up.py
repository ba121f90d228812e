"""`arkdev faas up`: the functions of a workspace behind one front door, until it is stopped."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from arkdev.errors import ConfigurationError, UsageError
from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.kept_deployments import (
    DeploymentLog,
    KeptDeployment,
    KeptDeployments,
    KeptFunction,
    owner_here,
)
from arkdev.faas_emulator.pool import PoolEvents
from arkdev.faas_emulator.proxy_urls import with_proxy_inside
from arkdev.faas_emulator.state_folder import state_folder
from arkdev.faas_emulator.worker.log_wire import OutputLine
from arkdev.flows.faas_instances import Say
from arkdev.flows.faas_plan import FaasPlan, plan_of_functions
from arkdev.flows.function_calls import (
    OpenPools,
    open_pools,
    secrets_of_call,
    whose_calls_to_ark_follow,
)
from arkdev.flows.workspace_functions import (
    functions_of_job,
    loaded_function,
    with_names_for_urls,
)
from arkdev.job.dataset import read_files
from arkdev.job.reader import read_job
from arkdev.job.workspace import find_workspace
from arkdev.observe.log_lines import MAX_CHARS
from arkdev.plugin import ark_sdk
from arkdev.runs.masking import masked_output, usable_secrets
from arkdev.runs.writer import iso_time

_HOST = "127.0.0.1"
_MAX_TOKENS = 64
"""Keys of callers that are masked in the log: the ones of the last calls."""


_LONGEST_EXAMPLE = 2000
"""Characters of a sample in a command to be copied."""


@dataclass(frozen=True)
class UpRequest:
    """What is to be served."""

    start: Path
    functions: tuple[str, ...] = ()
    """``module:function`` of each; none: all plugins of the job."""
    job: Path | None = None
    kind: InstanceKind = InstanceKind.AUTO
    network: NetworkPolicy = NetworkPolicy.OPEN
    port: int = 0
    endpoint: str = ""
    """The name of what calls to Ark go to, for people; empty: to Ark."""
    id: str = ""
    """Of a deployment whose folder is made already."""


def plan_up(request: UpRequest) -> FaasPlan:
    """Find the functions and check them. Raises `ConfigurationError`."""
    workspace = find_workspace(request.start)
    ark_sdk.install()
    job = read_job(workspace.root, request.job)
    if request.functions:
        named = [loaded_function(fn, workspace=workspace, job=job) for fn in request.functions]
        functions = with_names_for_urls(named)
    elif job is not None:
        functions = functions_of_job(job, workspace=workspace)
    else:
        raise UsageError(
            f"no job.yaml or job.py in {workspace.root}, and no --fn",
            hint="name the plugins: --fn plugins.my_grader:grade",
        )
    return plan_of_functions(
        whose_calls_to_ark_follow(functions),
        workspace,
        kind=request.kind,
        network=request.network,
    )


def example_sample(root: Path) -> dict[str, Any]:
    """Return a sample to try a deployment of the workspace at `root` with: the job's first."""
    try:
        job = read_job(root, None)
        lines = read_files(job.training_files[:1], limit=1) if job else iter(())
        for line in lines:
            sample = line.sample.model_dump(exclude_unset=True)
            if len(json.dumps(sample)) <= _LONGEST_EXAMPLE:
                return sample
    except ConfigurationError:
        pass  # it is an example only
    return {"messages": [{"role": "user", "content": "12 + 7 = ?"}], "extra": {"answer": "19"}}


@asynccontextmanager
async def serving(plan: FaasPlan, request: UpRequest, *, say: Say) -> AsyncIterator[KeptDeployment]:
    """Serve functions inside of the block; at its end nothing of them is left.

    One instance of each is started before that. Raises `PluginLoadError` when one cannot be,
    `UsageError` for a port that is taken, and what `open_pools` raises.
    """
    deployments = KeptDeployments(state_folder())
    deployment_id, folder = deployments.make_folder(request.id)
    secrets = CallSecrets(plan)
    log = DeploymentLog(folder)
    try:
        recorder = _Recorder(log, secrets)
        async with (
            open_pools(plan, events_of=recorder.events_of, say=say) as opened,
            _front_door(
                opened, secrets, port=request.port, has_endpoint=bool(request.endpoint)
            ) as url,
        ):
            await opened.warm()
            kept = KeptDeployment(
                id=deployment_id,
                owner=owner_here(),
                workspace=str(plan.workspace.root),
                url=url,
                engine=opened.kind.value,
                network=plan.network.value,
                endpoint=request.endpoint,
                started_at=iso_time(datetime.now(UTC)),
                functions=tuple(_kept(function.spec, url) for function in plan.functions),
            )
            deployments.write(kept)
            yield kept
    finally:
        log.close()
        deployments.remove(deployment_id)


@asynccontextmanager
async def _front_door(
    opened: OpenPools, secrets: CallSecrets, *, port: int, has_endpoint: bool
) -> AsyncIterator[str]:
    async def prepare(function: FunctionSpec, body: dict[str, Any]) -> dict[str, Any]:
        secrets.note(body)
        if has_endpoint and function.kind.is_rollout:  # its calls to Ark go there
            body.setdefault("proxy", {})
        return await with_proxy_inside(body, opened.inside)

    gateway = import_module("arkdev.faas_emulator.gateway").FunctionGateway(
        opened.pools, prepare=prepare
    )
    try:
        yield await gateway.start(host=_HOST, port=port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {_HOST}:{port}: {error.strerror or error}",
            hint="give another --port, or none for a free one",
        ) from error
    finally:
        await gateway.stop()


def _kept(function: FunctionSpec, url: str) -> KeptFunction:
    return KeptFunction(
        name=function.name,
        reference=function.reference,
        kind=function.kind.value,
        url=f"{url}/{quote(function.name, safe='')}",
    )


class CallSecrets:
    """What the log of a deployment must not hold: variables of its functions, keys of callers."""

    def __init__(self, plan: FaasPlan) -> None:
        envs = [function.spec.envs for function in plan.functions]
        self._own = [secret for each in envs for secret in secrets_of_call({}, each)]
        self._of_callers: OrderedDict[str, None] = OrderedDict()
        self.all: tuple[str, ...] = usable_secrets(self._own)

    def note(self, body: dict[str, Any]) -> None:
        """Take the keys and tokens of a request."""
        found = [each for each in secrets_of_call(body, {}) if each not in self._own]
        if all(secret in self._of_callers for secret in found):
            return
        for secret in found:
            self._of_callers[secret] = None
            self._of_callers.move_to_end(secret)
        while len(self._of_callers) > _MAX_TOKENS:
            self._of_callers.popitem(last=False)
        self.all = usable_secrets([*self._own, *self._of_callers])


class _Recorder:
    """Writes the log."""

    def __init__(self, log: DeploymentLog, secrets: CallSecrets) -> None:
        self._log = log
        self._secrets = secrets

    def events_of(self, function: FunctionSpec) -> PoolEvents:
        return PoolEvents(on_log=self._writer(function.name))

    def _writer(self, function: str) -> Callable[[OutputLine], None]:
        def write(line: OutputLine) -> None:
            text = masked_output(line.text, secrets=self._secrets.all)[:MAX_CHARS]
            self._log.add(
                {
                    "at": iso_time(datetime.fromtimestamp(line.at, UTC)),
                    "function": function,
                    "request_id": line.request_id,
                    "stream": line.stream,
                    "level": line.level,
                    "logger": line.logger,
                    "text": text,
                }
            )

        return write
