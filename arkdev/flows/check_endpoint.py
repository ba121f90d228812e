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
from arkdev.endpoints.capability_check.records import (
    CAPABILITIES,
    Check,
    Exchange,
    Finding,
    Support,
)
from arkdev.endpoints.keys import read_api_key
from arkdev.endpoints.registry import user_keys_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError
from arkdev.flows.opening import in_process_served

REQUEST_TIMEOUT_S = 60.0
"""What one request may take; a server that loads its model at the first one needs some time."""

_NOT_FOUND = (404, 405)


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

    say: Callable[[str], None] = lambda text: None
    """Told how a model was loaded that runs in this process."""


async def check_endpoint(spec: EndpointSpec, *, progress: CheckProgress) -> EndpointCheck:
    """Check `spec`; a model that runs in this process is served on a free port for that time.

    Without a model the only one of the server's list is taken. Raises `ConfigurationError` when the
    model or the key is missing or refused, or when the URL has neither Chat Completions nor
    Responses, and `EndpointUnreachableError` when the first call brings nothing back.
    """
    key = read_api_key(spec.api_key_env, keys_file=user_keys_file()) if spec.api_key_env else None
    http_target: Any = import_module("arkdev.endpoints.http_target")
    client_module: Any = import_module("arkdev.endpoints.capability_check.client")
    async with _reachable(spec, progress) as served:
        target = http_target.HttpTarget(served, api_key=key, timeout_s=REQUEST_TIMEOUT_S)
        async with client_module.CheckClient(target) as client:
            model = served.model or await _only_model(client, spec)
            findings = await _ask(client, served, model=model, progress=progress)
            return EndpointCheck(
                name=spec.name,
                url=str(served.base_url),
                model=model,
                findings=tuple(findings[name] for name in CAPABILITIES),
                features=tuple(features_of(findings)),
                num_requests=client.num_requests,
            )


async def _ask(
    client: Any, spec: EndpointSpec, *, model: str, progress: CheckProgress
) -> dict[str, Finding]:
    """The findings of every check, by name; ends early where the rest would be in vain."""
    findings: dict[str, Finding] = {}
    refusal: ConfigurationError | None = None
    for asked, make_check in CHECKS:
        progress.on_start(asked)
        found, first = await _run(make_check(model), client=client)
        if not findings:
            refusal = _refusal(first, spec, model=model)
        progress.on_findings(found)
        findings |= {finding.capability: finding for finding in found}
        if refusal is not None and _is_in_vain(findings, status=first.status):
            raise refusal
    return findings


async def _run(check: Check, *, client: Any) -> tuple[list[Finding], Exchange]:
    """Send what `check` asks; (its findings, its first exchange)."""
    first: Exchange | None = None
    request = next(check)
    while True:
        exchange: Exchange = await client.post(request)
        first = first or exchange
        try:
            request = check.send(exchange)
        except StopIteration as end:
            return end.value, first


def _refusal(first: Exchange, spec: EndpointSpec, *, model: str) -> ConfigurationError | None:
    """What is wrong when the first answer of all says that no other will do."""
    if first.error is not None:
        raise first.error
    if first.status not in (401, 403, *_NOT_FOUND) and not is_web_page(first.body):
        return None
    hint = (
        f"Check the URL ({spec.base_url}/chat/completions; the base URL of many servers ends in "
        f"/v1) and --model {model}."
    )
    if first.status in (401, 403):
        hint = "No key was sent. Name the variable that holds it: --api-key-env NAME."
        if spec.api_key_env:
            hint = f"Check the key in {spec.api_key_env}, and what it may use."
    return ConfigurationError(
        f"{spec.name} answered {first.status}: {first.reason()}", where=spec.source, hint=hint
    )


def _is_in_vain(findings: dict[str, Finding], *, status: int | None) -> bool:
    """Whether to go on after a refusal: a server without chat may have the Responses API."""
    responses = findings.get("responses")
    if responses is None:
        return status not in _NOT_FOUND
    return responses.support is not Support.YES


@asynccontextmanager
async def _reachable(spec: EndpointSpec, progress: CheckProgress) -> AsyncIterator[EndpointSpec]:
    """`spec` with a URL: a model in this process has none until it is served."""
    if spec.base_url is not None:
        yield spec
        return
    # what it can do, not how often it errs
    async with in_process_served(spec, skill=1.0, say=progress.say) as url:
        yield replace(spec, base_url=url)


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
