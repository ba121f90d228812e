"""The HTTP proxy that the environment names for a URL (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).

It is looked up once per endpoint. aiohttp's own `trust_env` would look it up in a thread for every
call, and would mix credentials from ~/.netrc into requests that carry a key of their own.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from arkdev.errors import ConfigurationError


@dataclass(frozen=True)
class HttpProxy:
    """How to go through a proxy; all empty when there is none."""

    url: URL | None = None
    connect_headers: dict[str, str] | None = None
    """Sent to the proxy when it opens a tunnel (https)."""

    request_headers: dict[str, str] = field(default_factory=dict)
    """Sent with each request when the proxy forwards it (http)."""


def find_http_proxy(url: URL) -> HttpProxy:
    """Return the proxy for `url`; loopback addresses never have one.

    Raises `ConfigurationError` for a proxy that is not http (SOCKS, for example).
    """
    host = url.host or ""
    if _is_loopback(host) or proxy_bypass(host):
        return HttpProxy()
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address:
        return HttpProxy()
    proxy = URL(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http":
        raise ConfigurationError(
            f"the environment names a {proxy.scheme} proxy for {host}, which is not supported",
            hint="Set HTTPS_PROXY to an http:// proxy, or add the host to NO_PROXY.",
        )
    credentials: dict[str, str] = {}
    if proxy.user is not None:
        pair = f"{proxy.user}:{proxy.password or ''}".encode()
        credentials = {"Proxy-Authorization": f"Basic {b64encode(pair).decode('ascii')}"}
    is_tunnel = url.scheme == "https"
    return HttpProxy(
        url=proxy.with_user(None),
        connect_headers=credentials if is_tunnel else None,
        request_headers={} if is_tunnel else credentials,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
