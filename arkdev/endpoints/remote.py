"""A model behind a URL: Chat Completions or Responses over one aiohttp transport per event loop.

openai's client costs several milliseconds of CPU per call and does not scale past a few hundred
calls under way; this one stays near raw aiohttp (benchmarks/README.md). A leaf: aiohttp is imported
here, and `registry.open_endpoint` loads this module only when a remote endpoint is used.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any

import aiohttp  # noqa: TID253 - this leaf is the client; it is loaded lazily by the registry
from pydantic import SecretStr

from arkdev.endpoints.answers import check_answer, check_response
from arkdev.endpoints.endpoint import EndpointCapabilities, ModelRequest
from arkdev.endpoints.event_stream import EventStreamError, assemble
from arkdev.endpoints.http_body import EVENT_STREAM, decode_body, read_body
from arkdev.endpoints.http_target import CONNECT_TIMEOUT_S, HttpTarget
from arkdev.endpoints.normal_form import normalize_completion
from arkdev.endpoints.parameters import TOKEN_EVIDENCE_FIELDS, write_sampling
from arkdev.endpoints.request_body import write_body
from arkdev.endpoints.response_events import assemble_response
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import (
    ConfigurationError,
    EndpointError,
    EndpointResponseError,
)
from arkdev.observe.attempt import no_attempt
from arkdev.plugin.responses import responses_body_of_chat

_CLOSE_TIMEOUT_S = 5.0
_DNS_CACHE_S = 300
# json.dumps would make one for each call, and look for cycles, which JSON data cannot have
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
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
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
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
        if not spec.base_url:
            raise ConfigurationError(f"the endpoint {spec.name!r} has no URL", where=spec.source)
        self.name = spec.name
        self.model = spec.model
        self.capabilities = EndpointCapabilities(has_token_evidence=spec.has_token_evidence)
        self._spec = spec
        self._max_in_flight = max_in_flight
        self._timeout_s = timeout_s
        self._target = HttpTarget(spec, api_key=api_key, timeout_s=timeout_s)
        self._is_responses = spec.api == "responses"
        self._url = self._target.at("responses" if self._is_responses else "chat/completions")
        self._headers = self._target.headers
        self._evidence_fields = (
            TOKEN_EVIDENCE_FIELDS[spec.family] if spec.has_token_evidence else {}
        )
        self._only_streams = False
        self._is_closed = False
        self._transports: dict[asyncio.AbstractEventLoop, _LoopTransport] = {}
        self._transports_lock = threading.Lock()

    def _model_for(self, request: ModelRequest) -> str:
        """Return the endpoint's model, or without one the model that the plugin asks for."""
        model = self.model or request.body.get("model")
        if not model:
            raise ConfigurationError(
                f"the endpoint {self._spec.name!r} needs a model, and the plugin names none",
                where=self._spec.source,
                hint="Name it with --model MODEL, or as `model` in the endpoint's definition.",
            )
        return str(model)

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; see `Endpoint` for what it raises."""
        sampling = write_sampling(request.sampling, family=self._spec.family, api=self._spec.api)
        payload = write_body(
            request.body,
            model=self._model_for(request),
            settings={**sampling, **self._evidence_fields},
        )
        if self._is_responses:
            payload = {**responses_body_of_chat(payload), "stream": False}
        headers = self._headers
        if request.seed is not None:
            headers = {**headers, "x-arkdev-seed": str(request.seed)}
        transport = await self._transport()
        async with transport.slots:
            if transport.session.closed:
                raise self._closed()
            # its HTTP call is the harness's, not one of the plugin whose attempt asks for it
            try:
                with no_attempt():
                    return await self._post_once_or_as_a_stream(
                        transport.session, payload, headers=headers
                    )
            except EndpointResponseError as error:
                raise self._described(error) from None
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # its chain is cut: some of aiohttp's errors hold the request's headers
                raise self._target.unreachable(error) from None

    async def check_reachable(self) -> None:
        """Connect once to the endpoint, or to the HTTP proxy on the way to it."""
        await self._target.check_reachable()

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

    async def _post_once_or_as_a_stream(
        self, session: aiohttp.ClientSession, payload: dict[str, Any], *, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Post; a server that refuses whole answers is asked for streams from then on."""
        try:
            return await self._post(session, data=self._encoded(payload), headers=headers)
        except EndpointResponseError as error:
            if self._only_streams or not _wants_streams(error):
                raise
            self._only_streams = True
            return await self._post(session, data=self._encoded(payload), headers=headers)

    def _encoded(self, payload: dict[str, Any]) -> bytes:
        if self._only_streams:
            payload = {**payload, "stream": True}
            if not self._is_responses:
                payload["stream_options"] = {"include_usage": True}
        return _ENCODER.encode(payload).encode("ascii")

    async def _post(
        self, session: aiohttp.ClientSession, *, data: bytes, headers: dict[str, str]
    ) -> dict[str, Any]:
        async with session.post(
            self._url,
            data=data,
            headers=headers,
            allow_redirects=False,
            proxy=self._target.proxy.url,
            proxy_headers=self._target.proxy.connect_headers,
        ) as response:
            read = await read_body(response)
            status, received = response.status, response.headers
            content_type = response.content_type
        try:
            body = decode_body(
                read,
                content_type=content_type,
                assemble=assemble_response if self._is_responses else assemble,
            )
        except EventStreamError as error:
            raise _bad_stream(error, status=status) from None
        check = check_response if self._is_responses else check_answer
        try:
            answer = check(body, status=status, headers=received)
        except EndpointResponseError:
            if self._target.api_key is None:
                raise
            # once more without the key: an error keeps only the head of a text, and that cut could
            # leave half of a key, which no later look would recognise
            return check(self._target.masked(body), status=status, headers=received)
        normalize_completion(answer, model=self.model or "")
        return answer

    def _described(self, error: EndpointResponseError) -> EndpointResponseError:
        """The same error with the host and the request id, and without the key."""
        message = f"{self._target.address}: {error.message}"
        request_id = next((error.headers[h] for h in _REQUEST_ID_HEADERS if h in error.headers), "")
        if request_id and request_id not in message:
            message += f" (request id {request_id})"
        return EndpointResponseError(
            self._target.masked(message),
            status=error.status,
            body=self._target.masked(error.body),
            headers=self._target.masked(error.headers),
            hint=self._hint(error),
            is_transient=error.is_transient,
        )

    def _hint(self, error: EndpointResponseError) -> str:
        if error.status in (401, 403) and self._target.api_key is None:
            return "No key was sent. Name the variable that holds it: --api-key-env NAME."
        if error.status == 401:
            return f"The key in {self._spec.api_key_env} was not accepted; check it."
        if error.status in (404, 405):
            return (
                f"Check the URL ({self._url}) and the model (--model): "
                "the base URL of many servers ends in /v1."
            )
        if 300 <= error.status < 400:
            return "The endpoint has moved or wants https://; check the URL."
        return error.hint


def _bad_stream(error: EventStreamError, *, status: int) -> EndpointResponseError:
    return EndpointResponseError(
        f"the endpoint answered {EVENT_STREAM} although stream was false: {error}",
        status=status,
        is_transient=True,
    )


def _wants_streams(error: EndpointResponseError) -> bool:
    return error.status in (400, 422) and "stream" in error.message.lower()
