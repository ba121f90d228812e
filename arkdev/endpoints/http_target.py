"""Where the requests for one endpoint go: headers, proxy, and what a failed connection means.

A leaf: aiohttp is imported here. `remote` (completions) and `capability_check.client` (the check of
what a server can do) share it, so that both send the same headers and tell the same errors.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from socket import gaierror
from typing import Any

import aiohttp  # noqa: TID253 - this leaf speaks of its errors; only leaves import it
from pydantic import SecretStr
from yarl import URL

from arkdev import __version__
from arkdev.endpoints.http_proxy import HttpProxy, find_http_proxy
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError, EndpointError, EndpointUnreachableError

CONNECT_TIMEOUT_S = 30.0
_PROBE_TIMEOUT_S = 5.0
_MASK = "[API key]"


@dataclass(frozen=True)
class HttpTarget:
    """A base URL with its key and proxy; `timeout_s` is what one request may take.

    The key appears in the ``Authorization`` header alone; `masked` takes it out of everything else.
    Raises `ConfigurationError` for a spec without a URL.
    """

    spec: EndpointSpec
    api_key: SecretStr | None
    timeout_s: float
    url: URL = field(init=False)
    proxy: HttpProxy = field(init=False)
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        if not self.spec.base_url:
            raise ConfigurationError(
                f"the endpoint {self.spec.name!r} has no URL", where=self.spec.source
            )
        url = URL(self.spec.base_url)
        proxy = find_http_proxy(url)
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"arkdev/{__version__}",
            **proxy.request_headers,
        }
        if self.api_key is not None:
            # sent with each request and not a default of the session: aiohttp would hand the
            # session's headers to an HTTP proxy as well
            headers["Authorization"] = f"Bearer {self.api_key.get_secret_value()}"
        for name, value in (("url", url), ("proxy", proxy), ("headers", headers)):
            object.__setattr__(self, name, value)

    @property
    def address(self) -> str:
        """``host:port``"""
        return f"{self.url.host}:{self.url.port}"

    def at(self, path: str) -> URL:
        """Return the URL of `path` below the base URL."""
        return URL(f"{self.spec.base_url}/{path}")

    def masked(self, value: Any) -> Any:
        """Return `value` with the key replaced, in every string that it holds."""
        if self.api_key is None:
            return value
        if isinstance(value, str):
            return value.replace(self.api_key.get_secret_value(), _MASK)
        if isinstance(value, dict):
            return {self.masked(key): self.masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.masked(item) for item in value]
        return value

    def unreachable(self, error: Exception) -> EndpointError:
        """Return what `error`, one of aiohttp's or the operating system's, means to a user."""
        if isinstance(error, TimeoutError):
            is_connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            waited_s = min(CONNECT_TIMEOUT_S, self.timeout_s) if is_connecting else self.timeout_s
            what = "no connection" if is_connecting else "no answer"
            return EndpointUnreachableError(
                f"{what} from {self.address} within {waited_s:g} s",
                hint="Check that the endpoint is up, or lower --concurrency if it is overloaded.",
                is_timeout=True,
            )
        return EndpointUnreachableError(
            self.masked(f"{_what_failed(error)} {self.address}{_reason(error)}"),
            hint=self._connection_hint(),
        )

    async def check_reachable(self) -> None:
        """Connect once to the endpoint, or to the HTTP proxy on the way to it.

        Raises `EndpointUnreachableError`.
        """
        url = self.proxy.url or self.url
        address = f"{url.host}:{url.port}"
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(url.host, url.port)
        except TimeoutError:
            raise EndpointUnreachableError(
                f"no connection from {address} within {_PROBE_TIMEOUT_S:g} s",
                hint=self._connection_hint(),
                is_timeout=True,
            ) from None
        except OSError as error:
            is_unknown = isinstance(error, gaierror)
            what = "no address for the host of" if is_unknown else "no connection to"
            raise EndpointUnreachableError(
                f"{what} {address}{_reason(error)}", hint=self._connection_hint()
            ) from None
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def _connection_hint(self) -> str:
        where = {
            "command line": "Check --endpoint.",
            "built in": "Check the network, and HTTPS_PROXY if you need a proxy.",
        }.get(self.spec.source, f"Check base_url in {self.spec.source}.")
        if self.spec.api_key is not None:
            where = (
                f"debug_config ({self.spec.source}) names an endpoint of Ark, or of ARK_BASE_URL "
                "when that is set. Check it, the network, and HTTPS_PROXY if you need a proxy."
            )
        if self.spec.family == "scripted":
            port = self.url.port
            return f"Start it with: arkdev endpoint serve scripted --port {port}. {where}"
        if self.proxy.url is not None:
            return f"The request went through the proxy that the environment names. {where}"
        return f"Is the server running? {where}"


def _what_failed(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no address for the host of"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no trusted TLS connection to"
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return "the proxy gave no connection to"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection to"
    if isinstance(error, aiohttp.ClientResponseError):
        return "an answer that is not HTTP came from"
    return "the connection was cut by"


def _reason(error: Exception) -> str:
    """The operating system's words, when there are any."""
    if not isinstance(error, OSError) or not error.strerror:
        return ""
    reason = error.strerror
    if reason.startswith("Connect call failed") and error.errno:
        reason = os.strerror(error.errno)  # asyncio's words only repeat the address
    return f": {reason}"
