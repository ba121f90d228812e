"""Instances of functions that are called from outside of a run: what they share (docs/faas.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from arkdev.errors import InstanceError, PluginLoadError
from arkdev.faas_emulator.choices import InstanceKind
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.packages.undeclared import undeclared_hint
from arkdev.faas_emulator.pool import Pool, PoolEvents
from arkdev.faas_emulator.proxy_urls import Inside
from arkdev.flows.ark_endpoint import envs_for_ark
from arkdev.flows.environment import secrets_among
from arkdev.flows.faas_instances import Say, instance_source
from arkdev.flows.faas_plan import FaasPlan, PlannedFunction
from arkdev.runs.masking import has_secret_name


@dataclass(frozen=True)
class OpenPools:
    """Functions that can be called."""

    kind: InstanceKind
    pools: Mapping[str, Pool]
    """By the function's name."""
    inside: Inside
    """The URL by which instances reach what is at a URL of this machine."""
    hint: str = ""
    """Why an instance may not start."""

    async def warm(self) -> None:
        """Start one instance of each. Raises `PluginLoadError` when one cannot be."""
        try:
            await asyncio.gather(*(pool.warm() for pool in self.pools.values()))
        except InstanceError as error:
            hint = "\n".join(filter(None, [error.hint, self.hint]))
            raise PluginLoadError(error.message, where=error.where, hint=hint) from error


@asynccontextmanager
async def open_pools(
    plan: FaasPlan, *, events_of: Callable[[FunctionSpec], PoolEvents], say: Say
) -> AsyncIterator[OpenPools]:
    """Make ready what a plan deploys, and end it all at the end; no instance is started yet.

    Raises what `instance_source` raises, and
    `EndpointUnreachableError` for a declared address of this machine at which nothing listens.
    """
    functions = [each.spec for each in plan.functions]
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(instance_source(plan, say=say))
        assert source is not None, "there is a plan"
        opened = await source.launcher_for(functions)
        stack.push_async_callback(opened.launcher.close)
        if source.kind is InstanceKind.PROCESS:  # the build of an image tells of its package
            for line in plan.package.summary():
                say(line)
            notes = [note for each in functions for note in opened.launcher.limits(each).notes]
            for note in dict.fromkeys(notes):
                say(note)
        client = import_module("arkdev.faas_emulator.instance_client").HttpInstanceClient()
        stack.push_async_callback(client.close)
        pools = {}
        for function in functions:
            pool = Pool(function, opened.launcher, client, events_of(function))
            stack.push_async_callback(pool.close)
            pools[function.name] = pool
        yield OpenPools(source.kind, pools, opened.inside, undeclared_hint(plan.undeclared))


def whose_calls_to_ark_follow(functions: Sequence[PlannedFunction]) -> list[PlannedFunction]:
    """Return functions whose calls to Ark go where those of this process go."""
    ark = envs_for_ark()
    return [
        replace(each, spec=replace(each.spec, envs={**ark, **each.spec.envs})) for each in functions
    ]


def secrets_of_call(body: Mapping[str, Any], envs: Mapping[str, str]) -> tuple[str, ...]:
    """Return what of a call is never shown: values of variables, keys and tokens of its request."""
    return secrets_among(envs, *_secrets_in(body))


def _secrets_in(value: Any) -> list[str]:
    found = []
    todo = [(value, False)]  # not by recursion: a request may be nested deeply
    while todo:
        item, is_secret = todo.pop()
        if isinstance(item, dict):
            todo += [
                (inner, is_secret or has_secret_name(str(name))) for name, inner in item.items()
            ]
        elif isinstance(item, list):
            todo += [(inner, is_secret) for inner in item]
        elif is_secret and isinstance(item, str):
            found.append(item)
    return found
