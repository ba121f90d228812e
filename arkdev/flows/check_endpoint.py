"""`arkdev endpoint check`: ask a server what it can do, one small request after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from arkdev.endpoints.answers import is_web_page
from arkdev.endpoints.capability_check.checks import CHECKS
from arkdev.endpoints.capability_check.features import Feature, features_of
from arkdev.endpoints.capability_check.records import Check, Exchange, Finding
from arkdev.endpoints.keys import read_api_key
from arkdev.endpoints.registry import user_keys_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError

REQUEST_TIMEOUT_S = 60.0
"""What one request may take; a server that loads its model at the first one needs some time."""

_IN_VAIN = frozenset({401, 403, 404, 405})
"""Statuses of the first call after which every other would say the same."""


@dataclass(frozen=True)
class EndpointCheck:
    """What was found out about one endpoint."""

    name: str
    url: str
    model: str
    findings: tuple[Finding, ...]
    features: tuple[Feature, ...]
    num_requests: int


@dataclass(frozen=True)
class CheckProgress:
    """Whom to tell how far a check is."""

    on_start: Callable[[str], None] = lambda asked: None
    """Told what is asked for next."""

    on_findings: Callable[[list[Finding]], None] = lambda findings: None
    """Told what came of it."""


async def check_endpoint(spec: EndpointSpec, *, progress: CheckProgress) -> EndpointCheck:
    """Check `spec`; the built-in scripted model is served on a free port for that time.

    Without a model the only one of the server's list is taken. Raises `ConfigurationError` when the
    model or the key is missing or refused, or when the URL has no Chat Completions, and
    `EndpointUnreachableError` when the first call brings nothing back.
    """
    key = read_api_key(spec.api_key_env, keys_file=user_keys_file()) if spec.api_key_env else None
    http_target: Any = import_module("arkdev.endpoints.http_target")
    client_module: Any = import_module("arkdev.endpoints.capability_check.client")
    async with _reachable(spec) as served:
        target = http_target.HttpTarget(served, api_key=key, timeout_s=REQUEST_TIMEOUT_S)
        async with client_module.CheckClient(target) as client:
            model = served.model or await _only_model(client, spec)
            findings: list[Finding] = []
            for position, (asked, make_check) in enumerate(CHECKS):
                progress.on_start(asked)
                on_first = _FirstAnswer(served, model=model) if position == 0 else None
                found = await _run(make_check(model), client=client, on_answer=on_first)
                progress.on_findings(found)
                findings += found
            return EndpointCheck(
                name=spec.name,
                url=str(served.base_url),
                model=model,
                findings=tuple(findings),
                features=tuple(features_of({f.capability: f for f in findings})),
                num_requests=client.num_requests,
            )


@dataclass(frozen=True)
class _FirstAnswer:
    """Looks at the first answer: whether it is worth going on."""

    spec: EndpointSpec
    model: str

    def __call__(self, exchange: Exchange) -> None:
        if exchange.error is not None:
            raise exchange.error
        if exchange.status not in _IN_VAIN and not is_web_page(exchange.body):
            return
        url = f"{self.spec.base_url}/chat/completions"
        if exchange.status in (401, 403):
            variable = self.spec.api_key_env
            hint = (
                f"Check the key in {variable}, and what it may use."
                if variable
                else "No key was sent. Name the variable that holds it: --api-key-env NAME."
            )
        else:
            hint = (
                f"Check the URL ({url}; the base URL of many servers ends in /v1) and "
                f"--model {self.model}."
            )
        raise ConfigurationError(
            f"{self.spec.name} answered {exchange.status}: {exchange.reason()}",
            where=self.spec.source,
            hint=hint,
        )


async def _run(
    check: Check, *, client: Any, on_answer: Callable[[Exchange], None] | None
) -> list[Finding]:
    """Send what `check` asks until it has its findings."""
    try:
        request = next(check)
        while True:
            exchange = await client.post(request)
            if on_answer is not None:
                on_answer(exchange)
            request = check.send(exchange)
    except StopIteration as end:
        findings: list[Finding] = end.value
        return findings


@asynccontextmanager
async def _reachable(spec: EndpointSpec) -> AsyncIterator[EndpointSpec]:
    """`spec` with a URL: the scripted model has none until it is served."""
    if spec.base_url is not None:
        yield spec
        return
    server_module: Any = import_module("arkdev.endpoints.scripted.server")
    server = server_module.ScriptedServer()
    url = await server.start()
    try:
        yield replace(spec, base_url=url)
    finally:
        await server.stop()


async def _only_model(client: Any, spec: EndpointSpec) -> str:
    names: list[str] = await client.list_models()
    if len(names) == 1:
        return names[0]
    some = f"The server lists {', '.join(names[:10])}." if names else "The server lists none."
    raise ConfigurationError(
        f"the endpoint {spec.name!r} needs a model",
        where=spec.source,
        hint=f"Name it with --model MODEL. {some}",
    )
