"""One request to a plugin as a cloud function: `arkdev test pipeline_plugin` and `test_instance`.

::

    request ─► deployed code (what was synced last) ─► instance ─► answer
                 │ differs from the workspace's: a notice names the files
                 └ --sync, or there is none: the workspace's code is deployed first

Instances last as long as the command or the script; the deployed code lasts (`deployed_code`).
"""

from __future__ import annotations

import asyncio
import secrets as random_names
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arkdev.errors import ExitCode, InstanceError, UsageError
from arkdev.faas_emulator.answers import Answer
from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy
from arkdev.faas_emulator.deployed_code import CodeChanges, CodeStore, DeployedCode
from arkdev.faas_emulator.packages.package import plugin_package
from arkdev.faas_emulator.packages.undeclared import undeclared_variables
from arkdev.faas_emulator.pool import PoolEvents
from arkdev.faas_emulator.proxy_urls import with_proxy_inside
from arkdev.faas_emulator.state_folder import state_folder
from arkdev.faas_emulator.worker.answers import answer_of
from arkdev.faas_emulator.worker.log_wire import OutputLine
from arkdev.flows.faas_plan import FaasPlan, PlannedFunction, plan_of_functions
from arkdev.flows.function_calls import (
    OpenPools,
    open_pools,
    secrets_of_call,
    whose_calls_to_ark_follow,
)
from arkdev.flows.workspace_functions import envs_of, loaded_function
from arkdev.job.reader import read_job
from arkdev.job.workspace import Workspace
from arkdev.observe.log_lines import LogLine
from arkdev.plugin.loading import LoadedPlugin
from arkdev.runs.masking import masked_output

_INVALID = "InvalidParameter"
REQUESTS = "`arkdev test pipeline_plugin --help` has the request of each kind of plugin"


@dataclass(frozen=True)
class InstanceSettings:
    """How instances run."""

    kind: InstanceKind = InstanceKind.AUTO
    network: NetworkPolicy = NetworkPolicy.OPEN


@dataclass(frozen=True)
class Told:
    """Who is told of what happens."""

    say: Callable[[str], None]
    """A line of how it goes."""
    log: Callable[[LogLine], None]
    """A line that the plugin logged or printed; from any thread."""


@dataclass(frozen=True)
class RequestOutcome:
    """What became of a request."""

    answer: Answer
    code: DeployedCode
    changes: CodeChanges
    """How the workspace's code differs from the one that ran."""
    was_deployed: bool
    """The code was deployed for this request."""
    request_id: str
    secrets: tuple[str, ...] = field(repr=False, default=())
    """Of its request and its variables."""

    @property
    def exit_code(self) -> ExitCode:
        """2 for a request that is none of the plugin's, 1 when the plugin failed."""
        if self.answer.status == 200:
            return ExitCode.OK
        error = self.answer.document.get("error")
        is_ours = isinstance(error, dict) and error.get("code") == _INVALID
        return ExitCode.USAGE if is_ours else ExitCode.SOME_FAILED

    def result(self) -> Any:
        """Return what the plugin returned, or raise what it raised."""
        root = self.code.package_folder if self.changes else self.code.function.root
        if self.exit_code is ExitCode.USAGE:
            raise UsageError(
                str(self.answer.document["error"].get("message")),
                where=self.code.function.place,
                hint=REQUESTS,
            )
        return answer_of(self.answer.document, plugin=self.code.plugin, root=root)


class TestInstance:
    """The test instance of one plugin. Use it on one event loop, and close it there.

    `reference` is ``module:function`` from the workspace's root.
    """

    __test__ = False

    def __init__(
        self, reference: str, *, workspace: Workspace, settings: InstanceSettings, told: Told
    ) -> None:
        self._reference = reference
        self._workspace = workspace
        self._settings = settings
        self._told = told
        self._store = CodeStore(state_folder(), workspace=workspace.root)
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._opened: OpenPools | None = None
        self._code: DeployedCode | None = None
        """What the open pool has."""
        self._secrets: tuple[str, ...] = ()
        """Of all requests so far."""

    async def create(self) -> None:
        """Deploy the workspace's code, unless the plugin is deployed already.

        Raises `ConfigurationError`.
        """
        async with self._lock:
            if await asyncio.to_thread(self._store.find, self._reference) is None:
                await self._sync()

    async def sync(self) -> DeployedCode:
        """Deploy the workspace's code. Raises `ConfigurationError`."""
        async with self._lock:
            return await self._sync()

    async def request(self, body: Mapping[str, Any], *, sync: bool) -> RequestOutcome:
        """Call the plugin once.

        Raises `ConfigurationError` when it cannot be deployed, `EngineError`, `InstanceError`,
        `PluginTimeoutError`, and `EndpointUnreachableError` for a proxy's URL on this machine at
        which nothing listens.
        """
        async with self._lock:
            code = None if sync else await asyncio.to_thread(self._store.find, self._reference)
            was_deployed = code is None
            code = code or await self._sync()
            changes = CodeChanges() if was_deployed else await self._changes(code)
            root = self._workspace.root
            envs = envs_of(self._reference, read_job(root), root=root)
            hidden = secrets_of_call(body, envs)
            self._secrets = tuple({*self._secrets, *hidden})
            opened = await self._open(code, envs)
        pool = opened.pools[code.function.name]
        request_id = random_names.token_hex(8)
        mapped = await with_proxy_inside(body, opened.inside)
        try:
            answer = await pool.invoke(mapped, request_id=request_id)
        except RecursionError:
            raise UsageError("the request is nested too deeply", hint=REQUESTS) from None
        except InstanceError as error:
            if opened is self._opened:
                raise
            raise InstanceError(
                f"the instance of {code.function.name} was stopped during the call, by stop() or "
                "for newer code",
                where=code.function.place,
            ) from error
        return RequestOutcome(answer, code, changes, was_deployed, request_id, hidden)

    async def stop(self) -> None:
        """End the instances and forget the code. Idempotent."""
        async with self._lock:
            await self._close()
            await asyncio.to_thread(self._store.forget, self._reference)

    async def close(self) -> None:
        """End the instances; the code stays. Idempotent."""
        async with self._lock:
            await self._close()

    async def _close(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        self._opened = self._code = None
        await stack.aclose()

    async def _sync(self) -> DeployedCode:
        plan = self._plan()
        (planned,) = plan.functions
        for note in (*plan.package.notes, *plan.notes):
            self._told.say(note)
        code = await asyncio.to_thread(
            self._store.deploy, planned.spec, plan.package, requirements=plan.requirements
        )
        self._told.say(f"{self._reference}: the code of now is deployed")
        return code

    def _plan(self) -> FaasPlan:
        job = read_job(self._workspace.root)
        function = loaded_function(self._reference, workspace=self._workspace, job=job)
        return plan_of_functions(
            whose_calls_to_ark_follow([function]),
            self._workspace,
            kind=self._settings.kind,
            network=self._settings.network,
        )

    async def _changes(self, code: DeployedCode) -> CodeChanges:
        package = plugin_package(self._workspace)
        changes = await asyncio.to_thread(code.changes, package)
        if changes:
            at = code.deployed_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
            self._told.say(
                f"the code differs from what was deployed at {at}, which runs: {changes}; "
                "sync deploys the code of now"
            )
        return changes

    async def _open(self, code: DeployedCode, envs: Mapping[str, str]) -> OpenPools:
        """Return pools of this code, the ones that are open already where it is theirs."""
        if self._opened is not None and self._code is not None:
            if (self._code.folder, self._code.function) == (code.folder, code.function):
                return self._opened
            await self._close()
        (function,) = whose_calls_to_ark_follow([_as_deployed(code, envs)])
        package = code.package()
        plan = FaasPlan(
            functions=(function,),
            workspace=self._workspace,
            package=package,
            requirements=code.requirements(),
            kind=self._settings.kind,
            network=self._settings.network,
            undeclared=undeclared_variables(package, [function.spec]),
        )
        opened = await self._stack.enter_async_context(
            open_pools(
                plan,
                events_of=lambda _: PoolEvents(on_log=self._on_log),
                say=self._told.say,
            )
        )
        self._opened, self._code = opened, code
        await opened.warm()
        return opened

    def _on_log(self, line: OutputLine) -> None:
        text = masked_output(line.text, secrets=self._secrets)
        self._told.log(replace(line.log_line(None), text=text))


def _as_deployed(code: DeployedCode, envs: Mapping[str, str]) -> PlannedFunction:
    spec = replace(code.function, envs=envs)
    return PlannedFunction(LoadedPlugin(None, code.plugin, spec.reference), spec)


def workspace_reference(fn: str) -> str:
    """Return ``module:function`` of what ``--fn`` says. Raises `UsageError`."""
    module, separator, name = fn.partition(":")
    if not separator or not module or not name or "/" in module or Path(module).suffix == ".py":
        raise UsageError(
            f"--fn {fn}: this is not module:function",
            hint="for example --fn plugins.weather_rollout:demo_rollout",
        )
    return fn
