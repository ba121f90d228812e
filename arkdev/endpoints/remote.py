"""A model behind a URL: Chat Completions or Responses over one aiohttp transport per event loop.

openai's client costs several milliseconds of CPU per call and does not scale past a few hundred
calls under way; this one stays near raw aiohttp (benchmarks/README.md). A leaf: aiohttp is imported
here, and `registry.open_endpoint` loads this module only when a remote endpoint is used.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import suppress
from socket import gaierror
from typing import Any

import aiohttp  # noqa: TID253 - this leaf is the client; it is loaded lazily by the registry
from pydantic import SecretStr
from yarl import URL

from arkdev import __version__
from arkdev.endpoints.answers import check_answer, check_response
from arkdev.endpoints.endpoint import EndpointCapabilities, ModelRequest
from arkdev.endpoints.event_stream import EventStreamError, assemble
from arkdev.endpoints.http_proxy import HttpProxy, find_http_proxy
from arkdev.endpoints.parameters import write_sampling
from arkdev.endpoints.request_body import write_body
from arkdev.endpoints.response_events import assemble_response
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import (
    ConfigurationError,
    EndpointError,
    EndpointResponseError,
    EndpointUnreachableError,
)
from arkdev.plugin.responses import responses_body_of_chat

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A longer answer is refused: no completion is that long, and it would have to fit in memory."""

_CONNECT_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 5.0
_PROBE_TIMEOUT_S = 5.0
_DNS_CACHE_S = 300
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # json.dumps would make one for each call
_MASK = "[API key]"
_REQUEST_ID_HEADERS = ("x-request-id", "x-client-request-id", "request-id")


class _LoopTransport:
    """The connections of one event loop, and the slots that keep calls within `max_in_flight`."""

    def __init__(self, *, max_in_flight: int, timeout_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        # waiting for a slot is not the endpoint's time, so it is outside the session's timeout
        self.slots = asyncio.Semaphore(max_in_flight)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max_in_flight, ttl_dns_cache=_DNS_CACHE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
        )

    async def close(self) -> None:
        """Close the session on its own loop while that runs, else from here."""
        if self.loop is asyncio.get_running_loop() or not self.loop.is_running():
            await self.session.close()
            return
        closing = asyncio.run_coroutine_threadsafe(self.session.close(), self.loop)
        with suppress(TimeoutError):  # that loop is stuck; its connections end with it
            await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSE_TIMEOUT_S)


class RemoteEndpoint:
    """`Endpoint` over HTTP. It may be called and closed from any event loop.

    At most `max_in_flight` calls are under way per event loop, the others wait their turn;
    `timeout_s` bounds one call from its first byte to its last. The key appears in the
    ``Authorization`` header alone: it is masked wherever an error would repeat it.
    """

    def __init__(
        self,
        spec: EndpointSpec,
        *,
        api_key: SecretStr | None,
        max_in_flight: int,
        timeout_s: float,
    ) -> None:
        if not spec.base_url or not spec.model:
            raise ConfigurationError(
                f"the endpoint {spec.name!r} has no URL or no model", where=spec.source
            )
        self.name = spec.name
        self.model = spec.model
        self.capabilities = EndpointCapabilities(has_token_evidence=spec.has_token_evidence)
        self._spec = spec
        self._api_key = api_key
        self._max_in_flight = max_in_flight
        self._timeout_s = timeout_s
        self._is_responses = spec.api == "responses"
        path = "responses" if self._is_responses else "chat/completions"
        self._url = URL(f"{spec.base_url}/{path}")
        self._address = f"{self._url.host}:{self._url.port}"
        self._proxy: HttpProxy = find_http_proxy(self._url)
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"arkdev/{__version__}",
            **self._proxy.request_headers,
        }
        if api_key is not None:
            # sent with each request and not a default of the session: aiohttp would hand the
            # session's headers to an HTTP proxy as well
            self._headers["Authorization"] = f"Bearer {api_key.get_secret_value()}"
        self._is_closed = False
        self._transports: dict[asyncio.AbstractEventLoop, _LoopTransport] = {}
        self._transports_lock = threading.Lock()

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; see `Endpoint` for what it raises."""
        sampling = write_sampling(request.sampling, family=self._spec.family, api=self._spec.api)
        payload = write_body(request.body, model=self.model, sampling=sampling)
        if self._is_responses:
            payload = {**responses_body_of_chat(payload), "stream": False}
        headers = self._headers
        if request.seed is not None:
            headers = {**headers, "x-arkdev-seed": str(request.seed)}
        data = _ENCODER.encode(payload).encode("ascii")
        transport = await self._transport()
        async with transport.slots:
            if transport.session.closed:
                raise self._closed()
            try:
                return await self._post(transport.session, data=data, headers=headers)
            except EndpointResponseError as error:
                raise self._described(error) from None
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # its chain is cut: some of aiohttp's errors hold the request's headers
                raise self._unreachable(error) from None

    async def check_reachable(self) -> None:
        """Connect once to the endpoint, or to the HTTP proxy on the way to it."""
        target = self._proxy.url or self._url
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(target.host, target.port)
        except TimeoutError:
            raise EndpointUnreachableError(
                f"no connection from {target.host}:{target.port} within {_PROBE_TIMEOUT_S:g} s",
                hint=self._connection_hint(),
                is_timeout=True,
            ) from None
        except OSError as error:
            what = (
                "no address for the host of" if isinstance(error, gaierror) else "no connection to"
            )
            address = f"{target.host}:{target.port}"
            raise EndpointUnreachableError(
                f"{what} {address}{_reason(error)}", hint=self._connection_hint()
            ) from None
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def close(self) -> None:
        """Close the connections of all event loops. Idempotent; later calls are refused."""
        with self._transports_lock:
            self._is_closed = True
            transports = list(self._transports.values())
            self._transports.clear()
        for transport in transports:
            await transport.close()

    async def _transport(self) -> _LoopTransport:
        """The running loop's connections; those of loops that have ended are closed."""
        loop = asyncio.get_running_loop()
        transport = self._transports.get(loop)
        if transport is not None:
            return transport
        with self._transports_lock:
            if self._is_closed:
                raise self._closed()
            ended = [other for other in self._transports if other.is_closed()]
            old_transports = [self._transports.pop(other) for other in ended]
            transport = _LoopTransport(max_in_flight=self._max_in_flight, timeout_s=self._timeout_s)
            self._transports[loop] = transport
        for old in old_transports:
            await old.close()
        return transport

    def _closed(self) -> EndpointError:
        return EndpointError(f"the endpoint {self.name!r} has been closed")

    async def _post(
        self, session: aiohttp.ClientSession, *, data: bytes, headers: dict[str, str]
    ) -> dict[str, Any]:
        async with session.post(
            self._url,
            data=data,
            headers=headers,
            allow_redirects=False,
            proxy=self._proxy.url,
            proxy_headers=self._proxy.connect_headers,
        ) as response:
            data_read = await _read_body(response)
            status, received = response.status, response.headers
            body = self._decode(data_read, content_type=response.content_type, status=status)
        check = check_response if self._is_responses else check_answer
        try:
            return check(body, status=status, headers=received)
        except EndpointResponseError:
            if self._api_key is None:
                raise
            # once more without the key: an error keeps only the head of a text, and that cut could
            # leave half of a key, which no later look would recognise
            return check(self._masked(body), status=status, headers=received)

    def _decode(self, body: bytes, *, content_type: str, status: int) -> object:
        """The decoded JSON; text when it is not JSON; a streamed answer put together."""
        if content_type == "text/event-stream":
            text = body.decode("utf-8", errors="replace")
            try:
                return assemble_response(text) if self._is_responses else assemble(text)
            except EventStreamError as error:
                raise EndpointResponseError(
                    f"the endpoint answered text/event-stream although stream was false: {error}",
                    status=status,
                    is_transient=True,
                ) from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body.decode("utf-8", errors="replace")

    def _described(self, error: EndpointResponseError) -> EndpointResponseError:
        """The same error with the host and the request id, and without the key."""
        message = f"{self._address}: {error.message}"
        request_id = next((error.headers[h] for h in _REQUEST_ID_HEADERS if h in error.headers), "")
        if request_id and request_id not in message:
            message += f" (request id {request_id})"
        return EndpointResponseError(
            self._masked(message),
            status=error.status,
            body=self._masked(error.body),
            headers=self._masked(error.headers),
            hint=self._hint(error),
            is_transient=error.is_transient,
        )

    def _hint(self, error: EndpointResponseError) -> str:
        if error.status in (401, 403) and self._api_key is None:
            return "No key was sent. Name the variable that holds it: --api-key-env NAME."
        if error.status == 401:
            return f"The key in {self._spec.api_key_env} was not accepted; check it."
        if error.status in (404, 405):
            return (
                f"Check the URL ({self._url}) and --model {self.model}: "
                "the base URL of many servers ends in /v1."
            )
        if 300 <= error.status < 400:
            return "The endpoint has moved or wants https://; check the URL."
        return error.hint

    def _unreachable(self, error: Exception) -> EndpointError:
        if isinstance(error, TimeoutError):
            is_connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            waited_s = (
                min(_CONNECT_TIMEOUT_S, self._timeout_s) if is_connecting else self._timeout_s
            )
            what = "no connection" if is_connecting else "no answer"
            return EndpointUnreachableError(
                f"{what} from {self._address} within {waited_s:g} s",
                hint="Check that the endpoint is up, or lower --concurrency if it is overloaded.",
                is_timeout=True,
            )
        return EndpointUnreachableError(
            self._masked(f"{_what_failed(error)} {self._address}{_reason(error)}"),
            hint=self._connection_hint(),
        )

    def _connection_hint(self) -> str:
        where = {
            "command line": "Check --endpoint.",
            "built in": "Check the network, and HTTPS_PROXY if you need a proxy.",
        }.get(self._spec.source, f"Check base_url in {self._spec.source}.")
        if self._spec.family == "scripted":
            return f"Start it with: arkdev endpoint serve scripted --port {self._url.port}. {where}"
        if self._proxy.url is not None:
            return f"The request went through the proxy that the environment names. {where}"
        return f"Is the server running? {where}"

    def _masked(self, value: Any) -> Any:
        """`value` with the key replaced, in every string that it holds."""
        if self._api_key is None:
            return value
        if isinstance(value, str):
            return value.replace(self._api_key.get_secret_value(), _MASK)
        if isinstance(value, dict):
            return {self._masked(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        return value


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, at most `MAX_BODY_BYTES` after decompression."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            response.close()
            raise EndpointResponseError(
                f"the answer is longer than {MAX_BODY_BYTES // 1024 // 1024} MiB",
                status=response.status,
                headers={name.lower(): value for name, value in response.headers.items()},
                hint="Check that the URL is a model's endpoint.",
            )
    return bytes(body)


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
