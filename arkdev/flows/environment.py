"""The environment variables that plugins see during a test: the job's, and a judge's model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

from arkdev.endpoints.keys import find_api_key
from arkdev.endpoints.registry import resolve_endpoint, user_config_file, user_keys_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.flows.test_request import PluginTestRequest
from arkdev.job.workspace import Workspace
from arkdev.plugin import redirect
from arkdev.runs.masking import has_secret_name, secret_values, usable_secrets

_T = TypeVar("_T")

_TRACE_KEYS = (
    "ARK_TRACE_AK",
    "ARK_TRACE_SK",
    "COZELOOP_API_TOKEN",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
)
"""Of the process's own environment, with which spans are sent."""

JUDGE_SKILL = 1.0
"""A judge that errs would hide what the rollouts are worth; the test's --skill is for those."""


def secrets_of(spec: EndpointSpec, envs: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a test never writes down or shows: the endpoint's key, and `secrets_among`."""
    variable = spec.api_key_env
    key = find_api_key(variable, keys_file=user_keys_file()) if variable else spec.api_key
    return secrets_among(envs, key.get_secret_value() if key else "")


def secrets_among(envs: Mapping[str, str], *others: str) -> tuple[str, ...]:
    """Return the values of variables of a job that are secrets, and `others`.

    And the keys and tokens that the environment has for other endpoints.
    """
    hidden = [*secret_values(envs)]
    hidden += [os.environ[name] for name in _TRACE_KEYS if name in os.environ]
    around = [v for name, v in os.environ.items() if has_secret_name(name) and not v.isalpha()]
    return usable_secrets([*hidden, *around, *filter(None, others)])


def _without_proxy_for_loopback() -> dict[str, str]:
    """Return what keeps clients of plugins from sending calls to the gateway to an HTTP proxy."""
    if not any(name in getproxies() for name in ("http", "all")) or proxy_bypass("127.0.0.1"):
        return {}
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = ",".join(filter(None, [listed, "127.0.0.1", "localhost"]))
    return {"NO_PROXY": names, "no_proxy": names}


@contextmanager
def environment(envs: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; the job's for its plugins, as the platform would."""
    envs = {**_without_proxy_for_loopback(), **envs}
    before = {name: os.environ.get(name) for name in envs}
    os.environ.update(envs)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def resolved_endpoint(request: PluginTestRequest, workspace: Workspace) -> EndpointSpec:
    """Return the endpoint that a request names. Raises what `resolve_endpoint` raises."""
    return resolve_endpoint(
        request.endpoint,
        model=request.model,
        api_key_env=request.api_key_env,
        workspace_endpoints=workspace.endpoints,
        user_config=user_config_file(),
    )


def expect_judge(spec: EndpointSpec) -> None:
    """Note the clients of a judge that plugins make while they are imported."""
    if _has_scripted_judge(spec):
        redirect.install()


def _has_scripted_judge(spec: EndpointSpec) -> bool:
    return spec.family in ("scripted", "local") and not os.environ.get("ARK_BASE_URL")


@asynccontextmanager
async def judge_environment(
    spec: EndpointSpec, loop: asyncio.AbstractEventLoop
) -> AsyncIterator[Any | None]:
    """Let graders that call a model reach a scripted one, served on `loop`, in an offline test.

    A policy on this machine is no judge of itself: there too the scripted model stands in.

    Sets ARK_BASE_URL, and ARK_API_KEY unless it is set, and redirects calls to Ark's public hosts.
    Yields the `ScriptedServer`; None, with nothing changed, when the test's endpoint is another or
    the user has set ARK_BASE_URL.
    """
    if not _has_scripted_judge(spec):
        redirect.uninstall()
        yield None
        return
    redirect.install()
    server = import_module("arkdev.endpoints.scripted.server").ScriptedServer(skill=JUDGE_SKILL)
    url = await _on(loop, server.start())
    envs = {
        "ARK_BASE_URL": f"{url.removesuffix('/v1')}/api/v3",
        "ARK_API_KEY": os.environ.get("ARK_API_KEY") or "scripted",
    }
    redirect.start(envs["ARK_BASE_URL"], key="scripted")
    try:
        with environment(envs):
            yield server
    finally:
        redirect.uninstall()
        await _on(loop, server.stop())


async def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
