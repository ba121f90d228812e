"""Limits on the HTTP services that plugins call, by host: the ``[tools]`` of arkworkspace.toml."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ToolLimits:
    """What calls of one host, or of one port of it, are held to; None: no limit."""

    requests_per_minute: int | None = None
    max_in_flight: int | None = None


TOOL_LIMITS = ("requests_per_minute", "max_in_flight")


def host_problem(name: str) -> str:
    """Say what is wrong with ``HOST`` or ``HOST:PORT`` as the name of a table; "" when nothing is.

    >>> host_problem("api.example.com:8080"), host_problem("[::1]:80"), host_problem("localhost")
    ('', '', '')
    >>> host_problem("https://api.example.com")
    'a host is expected, or host:port, without a scheme or a path'
    """
    expected = "a host is expected, or host:port, without a scheme or a path"
    try:
        parts = urlsplit(f"//{name}")
        names = (parts.hostname, parts.port)
    except ValueError:
        return expected
    host, port = names
    shown = f"[{host}]" if host and ":" in host else host
    whole = shown if port is None else f"{shown}:{port}"
    return "" if host and whole == name.lower() else expected
