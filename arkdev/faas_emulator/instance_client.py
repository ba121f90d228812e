"""Requests to instances over HTTP (leaf: imports aiohttp)."""

from __future__ import annotations

import json

import aiohttp  # noqa: TID253 (the leaf)

from arkdev.faas_emulator.answers import Answer, ConnectionLostError
from arkdev.faas_emulator.worker.wire import REQUEST_ID_HEADER
from arkdev.observe.attempt import no_attempt

_CONNECT_TIMEOUT_S = 10.0
_MAX_SHOWN = 200


class HttpInstanceClient:
    """Implements `arkdev.faas_emulator.answers.InstanceClient`. Use it on one event loop.

    Each request has a connection of its own: one that is kept may be dead, and then nobody knows
    whether the plugin was called.
    """

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            trust_env=False,
        )

    async def post(self, url: str, body: bytes, *, request_id: str) -> Answer:
        """Send a request, however long it takes. Raises `ConnectionLostError`."""
        headers = {REQUEST_ID_HEADER: request_id, "Content-Type": "application/json"}
        try:
            # it is no call of the plugin's
            with no_attempt():
                async with self._session.post(url, data=body, headers=headers) as response:
                    data = await response.read()
                    status = response.status
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionLostError(str(error), was_sent=False) from error
        except (aiohttp.ClientError, OSError) as error:
            text = str(error) or type(error).__name__
            raise ConnectionLostError(text, was_sent=True) from error
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            text = data[:_MAX_SHOWN].decode("utf-8", "replace")
            raise ConnectionLostError(f"status {status}, and no JSON: {text!r}", was_sent=True)
        return Answer(status, document)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
