"""What a client was built with, read by duck typing: OpenAI, AsyncOpenAI, Ark, AsyncArk."""

from __future__ import annotations

from typing import Any

OURS = "_arkdev_handed_out"
"""Set on a client that a proxy handed out: its transport is shared, and nobody chose it."""

_DEFAULT_MAX_RETRIES = 2
_DEFAULT_TIMEOUT_S = 600.0
_DEFAULT_TRANSPORTS = ("SyncHttpxClientWrapper", "AsyncHttpxClientWrapper")


def has_settings_of_its_own(client: Any) -> bool:
    """Tell whether the client's author chose its transport, retries or timeouts."""
    if getattr(client, OURS, False):
        return False
    transport = getattr(client, "_client", None)
    if hasattr(transport, "send") and type(transport).__name__ not in _DEFAULT_TRANSPORTS:
        return True
    timeout = getattr(client, "timeout", None)
    read_timeout = getattr(timeout, "read", timeout)
    if timeout is not None and read_timeout != _DEFAULT_TIMEOUT_S:
        return True
    retries: int = getattr(client, "max_retries", _DEFAULT_MAX_RETRIES)
    return retries != _DEFAULT_MAX_RETRIES


def base_url_of(client: Any) -> str:
    """Return the URL that the client talks to, without a slash at its end."""
    url = getattr(client, "base_url", None) or getattr(client, "_base_url", "")
    return str(url).rstrip("/")
