"""Test instances of a script that `arkdev run` runs: the seam of `arkdev.plugin.test_instance`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from arkdev.errors import UsageError
from arkdev.faas_emulator.worker.requests import json_body
from arkdev.flows.plugin_references import reference_of
from arkdev.flows.test_instances import InstanceSettings, RequestOutcome, TestInstance, Told
from arkdev.job.workspace import Workspace
from arkdev.plugin.decorators import plugin_of
from arkdev.plugin.source import callers_place, place_of
from arkdev.sessions.background import BackgroundLoop

_T = TypeVar("_T")
_CLOSED_WITHIN_S = 30.0


class ScriptInstance:
    """Implements `arkdev.plugin.test_instance.PluginTestInstance`, from any thread."""

    def __init__(
        self, instance: TestInstance, *, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._instance = instance
        self._run = run

    def request(self, request: Mapping[str, Any], sync: bool = False) -> Any:
        """See `PluginTestInstance`."""
        if not isinstance(request, Mapping):
            raise _no_request(f"a request is a dict, not {type(request).__name__}")
        try:
            body = json_body(request)
        except (TypeError, ValueError, RecursionError) as error:
            raise _no_request(f"the request cannot be sent as JSON: {error}") from error
        outcome: RequestOutcome = self._run(self._instance.request(body, sync=sync))
        return outcome.result()

    def sync(self) -> None:
        """See `PluginTestInstance`."""
        self._run(self._instance.sync())

    def stop(self) -> None:
        """See `PluginTestInstance`."""
        self._run(self._instance.stop())


def _no_request(text: str) -> UsageError:
    return UsageError(
        text,
        where=callers_place(),
        hint='it looks like {"context": {}, "proxy": proxy, "sample": sample}',
    )


class ScriptInstances:
    """Implements `arkdev.plugin.test_instance.TestInstances`; nothing runs before it is asked."""

    def __init__(self, workspace: Workspace, *, told: Told) -> None:
        self._workspace = workspace
        self._told = told
        self._background: BackgroundLoop | None = None
        self._made: dict[str, TestInstance] = {}

    def of(self, function: Any) -> ScriptInstance:
        """See `TestInstances`."""
        if plugin_of(function) is None:
            raise UsageError(
                f"{function!r} is no plugin: it has no decorator",
                where=place_of(function) if callable(function) else callers_place(),
                hint="decorate it with @rollout, @single_grader or @group_grader",
            )
        reference = reference_of(function, root=self._workspace.root)
        if self._background is None:
            self._background = BackgroundLoop()
            self._background.start()
        if reference not in self._made:
            self._made[reference] = TestInstance(
                reference,
                workspace=self._workspace,
                settings=InstanceSettings(),
                told=self._told,
            )
        instance = self._made[reference]
        self._run(instance.create())
        return ScriptInstance(instance, run=self._run)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        assert self._background is not None, "an instance has been asked for"
        running = asyncio.run_coroutine_threadsafe(work, self._background.loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # Ctrl-C, say
            raise

    def close(self) -> None:
        """End all instances. Idempotent."""
        background, self._background = self._background, None
        if background is None:
            return
        for instance in self._made.values():
            closing = asyncio.run_coroutine_threadsafe(instance.close(), background.loop)
            closing.result(_CLOSED_WITHIN_S)
        background.stop()


@contextmanager
def script_instances(workspace: Workspace, *, told: Told) -> Iterator[ScriptInstances]:
    """Give a script its test instances; at its end none of them runs any more."""
    instances = ScriptInstances(workspace, told=told)
    try:
        yield instances
    finally:
        instances.close()
