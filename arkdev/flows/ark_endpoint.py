"""Ark's public hosts, stood for by another endpoint for a while: scripts and functions use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from arkdev.endpoints.limits import within_limits
from arkdev.endpoints.registry import open_endpoint, resolve_endpoint, user_config_file
from arkdev.endpoints.scripted.policy import DEFAULT_SKILL
from arkdev.endpoints.spec import EndpointSpec
from arkdev.faas_emulator.worker.wire import ARK_URL_VARIABLE
from arkdev.flows.environment import environment
from arkdev.flows.local_policy import choose_policy
from arkdev.flows.opening import in_process_served
from arkdev.job.workspace import Workspace
from arkdev.plugin import redirect
from arkdev.sessions.background import BackgroundLoop
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import Session, SessionServices

_T = TypeVar("_T")

_MAX_IN_FLIGHT = 512
_MODEL_CALL_TIMEOUT_S = 600.0
_NOT_PASSED_ON = ("n (one answer came)", "seed (not used)")
"""What the gateway leaves out of a raw client's request, in its own words."""


@dataclass(frozen=True)
class ArkEndpoint:
    """Where calls to Ark go instead: `--endpoint`, `--model`, `--api-key-env`."""

    name_or_url: str
    model: str | None = None
    api_key_env: str | None = None

    def resolve(self, workspace: Workspace) -> EndpointSpec:
        """Raises `ConfigurationError` when there is no such endpoint."""
        spec = resolve_endpoint(
            self.name_or_url,
            model=self.model,
            api_key_env=self.api_key_env,
            workspace_endpoints=workspace.endpoints,
            user_config=user_config_file(),
        )
        return choose_policy(spec, runs=workspace.root / "runs")[0]


def envs_for_ark() -> dict[str, str]:
    """Return what sends a function's calls to Ark where this process's go; nothing: to Ark."""
    url, key = redirect.address("", "")
    if not url:
        return {}
    return {"ARK_BASE_URL": url, "ARK_API_KEY": key, ARK_URL_VARIABLE: url}


@contextmanager
def ark_served_by(spec: EndpointSpec, *, say: Callable[[str], None]) -> Iterator[None]:
    """Send calls to Ark's public hosts to `spec`, which is reached through a port of ours.

    Whoever calls never sees the endpoint's key; ARK_BASE_URL and ARK_API_KEY name the port. `say`
    is told, in a line, where calls go. Raises `EndpointUnreachableError` when nothing listens
    there.
    """
    background = BackgroundLoop()
    background.start()
    serve = _in_process if spec.base_url is None else _remote
    try:
        with serve(spec, background, say) as (url, key):
            model = "" if spec.model in (None, spec.name) else f" ({spec.model})"
            say(f"calls to Ark go to the endpoint {spec.name}{model}")
            redirect.install()
            redirect.start(url, key=key)
            with environment({"ARK_BASE_URL": url, "ARK_API_KEY": key}):
                yield
    finally:
        redirect.uninstall()
        background.stop()


_Say = Callable[[str], None]


@contextmanager
def _in_process(spec: EndpointSpec, loop: BackgroundLoop, say: _Say) -> Iterator[tuple[str, str]]:
    served = in_process_served(spec, skill=DEFAULT_SKILL, say=say)
    url = _on(loop, served.__aenter__())
    try:
        yield f"{url.removesuffix('/v1')}/api/v3", spec.name
    finally:
        _on(loop, served.__aexit__(None, None, None))


@contextmanager
def _remote(spec: EndpointSpec, loop: BackgroundLoop, say: _Say) -> Iterator[tuple[str, str]]:
    """Put a gateway in front of an endpoint: it knows the key and the model, and translates."""
    most = spec.limits.max_in_flight or _MAX_IN_FLIGHT
    endpoint = within_limits(
        open_endpoint(spec, max_in_flight=most, timeout_s=_MODEL_CALL_TIMEOUT_S),
        spec.limits,
        loop=loop.loop,
    )
    gateway = import_module("arkdev.sessions.gateway").Gateway()
    try:
        _on(loop, endpoint.check_reachable())
        services = SessionServices(
            endpoint=endpoint, gateway_url=_on(loop, gateway.start()), blocking_loop=loop.loop
        )
        session = Session(AttemptIdentity(0, 0, 0), sampling={}, services=services)
        gateway.open(session)
        yield gateway.url, session.jwt_token
        for detail in _NOT_PASSED_ON:
            if f"raw_sampling_parameter: {detail}" in session.warnings:
                say(f"a call set {detail}")
    finally:
        _on(loop, gateway.stop())
        _on(loop, endpoint.close())


def _on(background: BackgroundLoop, work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run_coroutine_threadsafe(work, background.loop).result()
