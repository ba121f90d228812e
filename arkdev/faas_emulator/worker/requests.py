"""The request of a call, both ways: from a plugin's arguments to JSON, and back in the instance.

The shapes are documented in `wire`. Unknown keys are left alone. A key that was not set stays so:
`sample.model_fields_set` is the same on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.plugin.proxy import InferenceProxy, Mode
from arkdev.types import ChatCompletionSample, PluginContext, Record, Trajectory

_TRAJECTORY_KEYS = ("trajectory", "completion")
"""The second is the older name (X-30)."""
_TRAJECTORIES_KEYS = ("trajectories", "completions")


class BadRequestError(Exception):
    """A request that is none of the plugin's; the text says what is wrong with it."""


@dataclass(frozen=True)
class ProxyAddress:
    """The ``proxy`` of a request (FT-07)."""

    url: str = ""
    jwt_token: str = ""
    mode: str = Mode.Inference.value
    headers: Mapping[str, str] = field(default_factory=dict)
    attempt: Mapping[str, Any] | None = None
    """``{"name": "7.1", "number": 1}`` where the attempt belongs to a run, whose session answers at
    `url` (`arkdev.plugin.remote_access`); None: a proxy that stands alone."""


@dataclass(frozen=True)
class PluginRequest:
    """One request, read: `arguments` are the plugin's, by position, without the proxy's."""

    context: PluginContext
    sample: ChatCompletionSample
    proxy: ProxyAddress | None
    rest: tuple[Any, ...]
    """``n_sample`` of a group rollout, the trajectory or the trajectories of a grader."""

    def arguments(self, proxy: InferenceProxy | None) -> tuple[Any, ...]:
        """Return the documented arguments, by position."""
        if proxy is None:
            return (self.context, self.sample, *self.rest)
        return (self.context, proxy, self.sample, *self.rest)


def request_body(
    plugin: Plugin, arguments: tuple[Any, ...], *, url: str | None = None
) -> dict[str, Any]:
    """Return the JSON body of the call of a plugin with these arguments.

    `url` stands for the proxy's where the instance reaches the gateway by another address.
    """
    context, *others = arguments
    body: dict[str, Any] = {"context": _plain(context)}
    if plugin.kind.is_rollout:
        proxy, sample, *rest = others
        body |= {"proxy": proxy_document(proxy, url=url), "sample": _plain(sample)}
        if rest:
            body["n_sample"] = rest[0]
        return body
    sample, graded = others
    body["sample"] = _plain(sample)
    if plugin.kind is PluginKind.SINGLE_GRADER:
        return {**body, "trajectory": _plain(graded)}
    return {**body, "trajectories": [_plain(trajectory) for trajectory in graded]}


def json_body(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with records and an `InferenceProxy` in it as JSON (FT-05, FT-07).

    Raises `TypeError` and `ValueError` for what is not JSON.
    """
    body: dict[str, Any] = json.loads(json.dumps(dict(request), default=_json_of))
    return body


def _json_of(value: Any) -> Any:
    if isinstance(value, InferenceProxy):
        return proxy_document(value)
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is not JSON")


def read_request(body: Any, *, plugin: Plugin) -> PluginRequest:
    """Return a request of `plugin`. Raises `BadRequestError`."""
    if not isinstance(body, dict):
        raise BadRequestError(f"the body is a JSON {type(body).__name__}, not an object")
    context = _record(PluginContext, body.get("context") or {}, name="context")
    sample = _record(ChatCompletionSample, _required(body, "sample", plugin), name="sample")
    proxy: ProxyAddress | None = None
    rest: tuple[Any, ...] = ()
    if plugin.kind.is_rollout:
        proxy = _proxy(_required(body, "proxy", plugin))
        if plugin.kind is PluginKind.GROUP_ROLLOUT:
            rest = (_count(_required(body, "n_sample", plugin)),)
    elif plugin.kind is PluginKind.SINGLE_GRADER:
        given = _required(body, *_TRAJECTORY_KEYS, plugin)
        rest = (_record(Trajectory, given, name="trajectory"),)
    else:
        given = _required(body, *_TRAJECTORIES_KEYS, plugin)
        if not isinstance(given, list):
            raise BadRequestError("trajectories is not a list")
        rest = (
            [_record(Trajectory, one, name=f"trajectories[{i}]") for i, one in enumerate(given)],
        )
    return PluginRequest(context, sample, proxy, rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.model_dump(exclude_unset=True)
    return value


def proxy_document(proxy: InferenceProxy, *, url: str | None = None) -> dict[str, Any]:
    """Return a proxy as a request has it (FT-07); `url` stands for its own, as above."""
    document: dict[str, Any] = {
        "url": url or proxy.url,
        "jwt_token": proxy.jwt_token,
        "mode": proxy.mode.value,
        "headers": dict(proxy.headers),
    }
    attempt: Any = proxy.access
    if attempt is not None:
        document["attempt"] = {"name": attempt.name, "number": attempt.number}
    return document


def _required(body: dict[str, Any], *keys: Any) -> Any:
    *names, plugin = keys
    for name in names:
        if body.get(name) is not None:
            return body[name]
    raise BadRequestError(
        f"the request has no {names[0]}, which a {plugin.kind.value} is given "
        f"(it has {', '.join(map(str, body)) or 'nothing'})"
    )


def _record(record: type[Any], fields: Any, *, name: str) -> Any:
    if not isinstance(fields, dict):
        raise BadRequestError(f"{name} is a JSON {type(fields).__name__}, not an object")
    try:
        return record.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in (name, *problem["loc"]))
        raise BadRequestError(f"{place}: {problem['msg']}") from None


def _proxy(fields: Any) -> ProxyAddress:
    if not isinstance(fields, dict):
        raise BadRequestError(f"proxy is a JSON {type(fields).__name__}, not an object")
    mode = str(fields.get("mode") or Mode.Inference.value)
    if mode not in {known.value for known in Mode}:
        raise BadRequestError(f"proxy.mode is {mode!r}; known is {Mode.Inference.value!r}")
    attempt, headers = fields.get("attempt"), fields.get("headers") or {}
    if attempt is not None and not isinstance(attempt, dict):
        raise BadRequestError("proxy.attempt is not an object")
    if not isinstance(headers, dict):
        raise BadRequestError("proxy.headers is not an object")
    for name in ("url", "jwt_token"):
        if not isinstance(fields.get(name) or "", str):
            raise BadRequestError(f"proxy.{name} is not a text")
    url = fields.get("url") or ""
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        raise BadRequestError(f"proxy.url is {url!r}: {error}") from None
    return ProxyAddress(
        url=url,
        jwt_token=fields.get("jwt_token") or "",
        mode=mode,
        headers={str(name): str(value) for name, value in headers.items()},
        attempt=attempt,
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(f"n_sample is {value!r}, not a number of trajectories")
    return value
