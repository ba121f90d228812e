"""Which endpoint a name or a URL stands for, and how it is opened.

Names are looked up in this order: built in (``scripted``, ``local``, ``ark``), the workspace
(``[endpoints.NAME]`` in arkworkspace.toml), the user's configuration (the same table in
``~/.config/arkdev/config.toml``). Anything that starts with ``http://`` or ``https://`` is a URL.
Resolving reads no key and opens no connection; `open_endpoint` does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arkdev.endpoints.endpoint import Endpoint
from arkdev.endpoints.keys import parse_key_variable, read_api_key, user_config_folder
from arkdev.endpoints.parameters import Family
from arkdev.endpoints.spec import (
    EndpointLimits,
    EndpointSpec,
    parse_api,
    parse_base_url,
    parse_family,
    parse_limit,
)
from arkdev.errors import ConfigurationError, UsageError
from arkdev.plugin.redirect import ARK_BASE_URL, is_public_ark

SCRIPTED = EndpointSpec(
    name="scripted",
    base_url=None,
    model="scripted",
    api_key_env=None,
    family="scripted",
    source="built in",
)
ARK = EndpointSpec(
    name="ark",
    base_url=ARK_BASE_URL,
    model=None,
    api_key_env="ARK_API_KEY",
    family="ark",
    source="built in",
)
LOCAL = EndpointSpec(
    name="local",
    base_url=None,
    model=None,
    api_key_env=None,
    family="local",
    source="built in",
    has_token_evidence=True,
)
"""The policy in this process, which `arkdev.flows.opening` opens."""

_BUILT_IN = {spec.name: spec for spec in (SCRIPTED, LOCAL, ARK)}

_LIMITS = ("requests_per_minute", "tokens_per_minute", "max_in_flight")
_FIELDS = ("base_url", "model", "api_key_env", "family", "has_token_evidence", "api", *_LIMITS)
_WORKSPACE_FILE = "arkworkspace.toml"


def user_config_file() -> Path:
    """The user's configuration, ``config.toml``; it need not exist."""
    return user_config_folder() / "config.toml"


def user_keys_file() -> Path:
    """The user's key file, ``keys.toml``; it need not exist."""
    return user_config_folder() / "keys.toml"


def resolve_endpoint(
    name_or_url: str | None,
    *,
    model: str | None = None,
    api_key_env: str | None = None,
    workspace_endpoints: Mapping[str, Mapping[str, Any]],
    user_config: Path | None,
) -> EndpointSpec:
    """Return the endpoint called `name_or_url`; None is ``scripted`` (SURFACE LT-04, LT-05).

    `model` and `api_key_env` come from the command line and win over the definition.
    `workspace_endpoints` is the ``[endpoints]`` table of arkworkspace.toml, `user_config` the path
    of the user's configuration (`user_config_file`), None to read none. Raises
    `ConfigurationError` for an unknown name, a definition that is wrong, and a URL or an
    `api_key_env` that holds a secret (which is never repeated).
    """
    if api_key_env is not None:
        parse_key_variable(api_key_env, where="--api-key-env")
    spec = _find(name_or_url, workspace_endpoints=workspace_endpoints, user_config=user_config)
    if spec.base_url is None and api_key_env is not None:
        raise UsageError(
            f"the endpoint {spec.name!r} needs no key", hint="Leave out --api-key-env."
        )
    return replace(spec, model=model or spec.model, api_key_env=api_key_env or spec.api_key_env)


def list_endpoints(
    *, workspace_endpoints: Mapping[str, Mapping[str, Any]], user_config: Path | None
) -> list[EndpointSpec]:
    """Return every endpoint that has a name; a workspace's definition hides the user's."""
    specs = dict(_BUILT_IN)
    user = {} if user_config is None else _read_user_endpoints(user_config)
    for source, table in ((_WORKSPACE_FILE, workspace_endpoints), (str(user_config), user)):
        for name, definition in table.items():
            spec = _named(name, definition, source=source)
            specs.setdefault(name, spec)
    return list(specs.values())


def open_endpoint(
    spec: EndpointSpec,
    *,
    max_in_flight: int,
    timeout_s: float,
    skill: float | None = None,
    script: Path | None = None,
) -> Endpoint:
    """Open `spec`: reads its key, loads its client; the caller closes it.

    `max_in_flight` calls may be under way at once, `timeout_s` bounds each of them. `skill` and
    `script` are for the scripted model alone. A remote endpoint without a model takes the one that
    each call names (ROLL-38). Raises `ConfigurationError` when the key is missing, and for
    ``local``, which `arkdev.flows.opening` opens.
    """
    if spec.family == "scripted" and spec.base_url is None:
        return _open_scripted(spec, skill=skill, script=script)
    check_script_flags(spec, skill=skill, script=script)
    key = spec.api_key
    if spec.api_key_env:
        key = read_api_key(spec.api_key_env, keys_file=user_keys_file())
    remote: Any = import_module("arkdev.endpoints.remote")
    endpoint: Endpoint = remote.RemoteEndpoint(
        spec, api_key=key, max_in_flight=max_in_flight, timeout_s=timeout_s
    )
    return endpoint


def check_script_flags(spec: EndpointSpec, *, skill: float | None, script: Path | None) -> None:
    """Refuse flags of the scripted model for an endpoint that is another one."""
    if skill is not None or script is not None:
        raise UsageError(
            f"--skill and --script are for the scripted model; the endpoint is {spec.name!r}",
            hint="Leave them out, or use --endpoint scripted.",
        )


def _open_scripted(spec: EndpointSpec, *, skill: float | None, script: Path | None) -> Endpoint:
    settings: dict[str, Any] = {"model": spec.model}
    if skill is not None:
        settings["skill"] = skill
    if script is not None:
        reader: Any = import_module("arkdev.endpoints.scripted.script")
        settings["script"] = reader.load_script(script)
    scripted: Any = import_module("arkdev.endpoints.scripted.endpoint")
    endpoint: Endpoint = scripted.ScriptedEndpoint(**settings)
    return endpoint


def _find(
    name_or_url: str | None,
    *,
    workspace_endpoints: Mapping[str, Mapping[str, Any]],
    user_config: Path | None,
) -> EndpointSpec:
    name = SCRIPTED.name if name_or_url is None else name_or_url.strip()
    if name.lower().startswith(("http://", "https://")):
        return _from_url(name)
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name in workspace_endpoints:
        return _named(name, workspace_endpoints[name], source=_WORKSPACE_FILE)
    user = {} if user_config is None else _read_user_endpoints(user_config)
    if name in user:
        return _named(name, user[name], source=str(user_config))
    raise _unknown(name, known=[*_BUILT_IN, *workspace_endpoints, *user])


def _from_url(url: str) -> EndpointSpec:
    base_url = parse_base_url(url, where="--endpoint")
    is_ark = is_public_ark(base_url)
    return EndpointSpec(
        name=urlsplit(base_url).netloc,
        base_url=base_url,
        model=None,
        api_key_env=ARK.api_key_env if is_ark else None,
        family="ark" if is_ark else "generic",
        source="command line",
    )


def _named(name: str, definition: object, *, source: str) -> EndpointSpec:
    where = f"{source} [endpoints.{name}]"
    if name in _BUILT_IN:
        raise ConfigurationError(
            f"the endpoint {name!r} is built in", where=where, hint="Choose another name."
        )
    fields = _checked_fields(definition, where=where)
    base_url = parse_base_url(fields["base_url"], where=where)
    family: Family = "ark" if is_public_ark(base_url) else "generic"
    if "family" in fields:
        family = parse_family(fields["family"], where=where)
    api = parse_api(fields.get("api", "chat"), where=where)
    if api == "responses" and fields.get("has_token_evidence"):
        raise ConfigurationError(
            'has_token_evidence = true needs the Chat API; api is "responses"',
            where=where,
            hint='Set api = "chat", or leave has_token_evidence out.',
        )
    variable = fields.get("api_key_env")
    return EndpointSpec(
        name=name,
        base_url=base_url,
        model=fields.get("model"),
        api_key_env=parse_key_variable(variable, where=where) if variable else None,
        family=family,
        source=source,
        has_token_evidence=fields.get("has_token_evidence", False),
        api=api,
        limits=EndpointLimits(**{key: fields[key] for key in _LIMITS if key in fields}),
    )


def _checked_fields(definition: object, *, where: str) -> dict[str, Any]:
    """The fields of one definition, with known names and right types."""
    if not isinstance(definition, Mapping):
        raise ConfigurationError(
            "an endpoint is a table", where=where, hint='base_url = "https://HOST/v1"'
        )
    for key, value in definition.items():
        if key == "api_key":
            raise ConfigurationError(
                "a key does not belong into this file",
                where=where,
                hint='Name the environment variable that holds it: api_key_env = "NAME".',
            )
        if key not in _FIELDS:
            raise ConfigurationError(
                f"an endpoint has no setting {key!r}",
                where=where,
                hint=_did_you_mean(key, known=list(_FIELDS)),
            )
        if key in _LIMITS:
            parse_limit(key, value, where=where)
            continue
        wanted = bool if key == "has_token_evidence" else str
        if not isinstance(value, wanted):
            kind = "true or false" if wanted is bool else "a string"
            raise ConfigurationError(f"{key} must be {kind}", where=where)
    if not definition.get("base_url"):
        raise ConfigurationError(
            "base_url is missing", where=where, hint='base_url = "https://HOST/v1"'
        )
    return dict(definition)


def _read_user_endpoints(path: Path) -> Mapping[str, Any]:
    try:
        endpoints = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("endpoints", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the configuration cannot be read: {error}", where=str(path)
        ) from error
    if not isinstance(endpoints, dict):
        raise ConfigurationError("[endpoints] is not a table", where=str(path))
    return endpoints


def _unknown(name: str, *, known: list[str]) -> ConfigurationError:
    if "@" in name:  # user:password@host without a scheme: do not repeat it
        return ConfigurationError(
            "this is neither an endpoint's name nor a URL",
            where="--endpoint",
            hint="Give a name or http(s)://HOST/v1, without a user name or password.",
        )
    hint = _did_you_mean(name, known=known)
    if ":" in name or "/" in name or "." in name:
        hint = f"A URL begins with http:// or https://. {hint}"
    return ConfigurationError(f"there is no endpoint {name!r}", where="--endpoint", hint=hint)


def _did_you_mean(name: str, *, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return f"{guess}There are {', '.join(known)}."
