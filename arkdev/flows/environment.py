"""The environment variables that plugins see during a test: the job's, and a judge's model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any, TypeVar

from arkdev.endpoints.spec import EndpointSpec
from arkdev.plugin import redirect

_T = TypeVar("_T")

JUDGE_SKILL = 1.0
"""A judge that errs would hide what the rollouts are worth; the test's --skill is for those."""


@contextmanager
def environment(envs: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; the job's for its plugins, as the platform would."""
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


def expect_judge(spec: EndpointSpec) -> None:
    """Note the clients of a judge that plugins make while they are imported."""
    if _has_scripted_judge(spec):
        redirect.install()


def _has_scripted_judge(spec: EndpointSpec) -> bool:
    return spec.family == "scripted" and not os.environ.get("ARK_BASE_URL")


@asynccontextmanager
async def judge_environment(
    spec: EndpointSpec, loop: asyncio.AbstractEventLoop
) -> AsyncIterator[Any | None]:
    """Let graders that call a model reach a scripted one, served on `loop`, in a scripted test.

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
