"""Where an endpoint is and what it takes: the record that the registry makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from arkdev.endpoints.parameters import FAMILIES, Family
from arkdev.errors import ConfigurationError

Api: TypeAlias = Literal["chat", "responses"]
"""The API that an endpoint speaks: Chat Completions, or Responses by translation."""

_APIS = ("chat", "responses")
_CHAT_PATH = "/chat/completions"


@dataclass(frozen=True)
class EndpointLimits:
    """What calls of an endpoint are held to; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Of prompts and answers together."""
    max_in_flight: int | None = None
    """Calls under way at once."""


@dataclass(frozen=True)
class EndpointSpec:
    """One endpoint, resolved but not opened. Of its key it holds the name of the variable.

    Only a job's `debug_config` brings the key itself.
    """

    name: str
    base_url: str | None
    """Without ``/chat/completions``; None for a model that runs in process."""

    model: str | None
    api_key_env: str | None
    family: Family
    source: str
    """Where it was defined: "built in", "command line" or a file."""

    has_token_evidence: bool = False
    """The configuration says that its answers carry token ids and logprobs."""

    api: Api = "chat"

    limits: EndpointLimits = EndpointLimits()

    api_key: SecretStr | None = field(default=None, repr=False)
    """In place of `api_key_env`."""


def parse_base_url(url: str, *, where: str) -> str:
    """Return `url` as a base URL, without a trailing ``/`` or ``/chat/completions``.

    Raises `ConfigurationError` for a URL with a user name or password, a query or a fragment
    (none of which is repeated in the message: it may hold a key), and for one that is not http(s).
    """
    parts = _split(url, where=where)
    if "@" in parts.netloc:
        raise ConfigurationError(
            "the endpoint's URL contains a user name or password",
            where=where,
            hint="Take it out of the URL and name the variable that holds the key: "
            "--api-key-env NAME.",
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(
            "the endpoint's URL contains a query or a fragment",
            where=where,
            hint="Give the part before '?' or '#': https://HOST/v1.",
        )
    path = parts.path.rstrip("/").removesuffix(_CHAT_PATH).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _split(url: str, *, where: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigurationError(
            "the endpoint's URL is not usable",
            where=where,
            hint="Give it as http://HOST:PORT/v1 or https://HOST/v1.",
        )
    return parts


def parse_limit(key: str, value: object, *, where: str) -> int:
    """Return a limit when it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(
            f"{key} is {value!r}; a whole number of at least 1 is expected",
            where=where,
            hint="Leave it out where there is no limit.",
        )
    return value


def parse_family(family: object, *, where: str) -> Family:
    """Return `family` when it is one of the known ones."""
    if family not in FAMILIES:
        raise ConfigurationError(
            f"there is no endpoint family {family!r}",
            where=where,
            hint=f"Choose one of {', '.join(FAMILIES)}.",
        )
    return cast(Family, family)


def parse_api(api: object, *, where: str) -> Api:
    """Return `api` when it is one that endpoints can speak."""
    if api not in _APIS:
        raise ConfigurationError(
            f"there is no endpoint API {api!r}",
            where=where,
            hint="Choose chat (Chat Completions) or responses.",
        )
    return cast(Api, api)
