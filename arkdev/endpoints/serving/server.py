"""A model behind a real HTTP server on the OpenAI and the Ark path.

Under ``/v1`` and ``/api/v3``: ``POST chat/completions``, ``POST responses``, ``GET models``; and
``GET /health``. A client that hangs up cancels its request.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

# a leaf: only `arkdev endpoint serve`, judges and the benchmark import it
from aiohttp import web  # noqa: TID253

from arkdev.endpoints.answers import has_choices
from arkdev.endpoints.event_stream import DONE, chat_chunks, event_lines, wants_usage
from arkdev.endpoints.response_events import response_events
from arkdev.endpoints.serving.event_sending import send_events, send_events_as_they_come
from arkdev.endpoints.serving.faults import fault, logger
from arkdev.endpoints.serving.replies import CREATED, Reply, ServedModel, refusal
from arkdev.endpoints.serving.requests import RequestError

SEED_HEADER = "x-arkdev-seed"
MAX_BODY_BYTES = 64 * 1024 * 1024
BACKLOG = 4096
"""Connections that may wait to be accepted; a rollout batch opens hundreds at once."""

SHUTDOWN_S = 0.2
"""How long `stop` waits for answers that are under way."""


class ModelServer:
    """Serves a model; without an `api_key` any key will do."""

    def __init__(self, served: ServedModel, *, api_key: str | None = None) -> None:
        self._served = served
        self._api_key = api_key
        self.num_chat_calls = 0
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, on a free port when `port` is 0, and return the URL, which ends in ``/v1``.

        Raises `OSError` when the address cannot be used.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        for prefix in ("/v1", "/api/v3"):
            app.router.add_post(f"{prefix}/chat/completions", self._chat)
            app.router.add_post(f"{prefix}/responses", self._responses)
            app.router.add_get(f"{prefix}/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/{path:.*}", self._not_found)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=logger,
            shutdown_timeout=SHUTDOWN_S,
            handler_cancellation=True,
        )
        try:
            await self._runner.setup()
            site = web.TCPSite(self._runner, host, port, backlog=BACKLOG)
            await site.start()
        except BaseException:
            await self.stop()
            raise
        bound_port = self._runner.addresses[0][1]
        shown_host = f"[{host}]" if ":" in host else host
        return f"http://{shown_host}:{bound_port}/v1"

    async def stop(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.num_chat_calls += 1
        return await self._serve(request, reply=self._served.chat, stream=_chat_stream)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, reply=self._served.responses, stream=_responses_stream)

    async def _serve(
        self,
        request: web.Request,
        *,
        reply: Callable[..., Awaitable[Reply]],
        stream: Callable[[dict[str, Any], dict[str, Any]], Iterable[str]],
    ) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        started = loop.time()
        body: object = None
        try:
            self._check_key(request)
            seed = _seed(request)
            body = _decode(await _read(request))
            made = await reply(body, seed=seed)
        except RequestError as error:
            made = refusal(error)
        except Exception as error:  # noqa: BLE001 (one request's, and no other's concern)
            made = refusal(fault(error))
        headers = {"x-request-id": uuid4().hex}
        if made.events is not None:
            lines = _lines(made, ends_with_done=stream is _chat_stream)
            async with aclosing(lines):
                return await send_events_as_they_come(request, lines, headers=headers)
        remaining_s = max(0.0, started + made.latency_s - loop.time()) if made.latency_s else 0.0
        if isinstance(body, dict) and body.get("stream") and _is_success(made):
            lines_of_all = stream(made.body, body)
            return await send_events(request, lines_of_all, duration_s=remaining_s, headers=headers)
        if remaining_s:
            await asyncio.sleep(remaining_s)
        response = _response(made)
        if request.content.exception() is not None or not request.content.is_eof():
            response.force_close()  # what was not read to its end cannot be followed by another
        return response

    def _check_key(self, request: web.Request) -> None:
        if self._api_key is None:
            return
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._api_key.encode()):
            raise RequestError(
                "The API key in the request is missing or invalid.",
                code="AuthenticationError",
                status=401,
            )

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self._served.name, "object": "model", "created": CREATED}
        return web.json_response({"object": "list", "data": [{**model, "owned_by": "arkdev"}]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _not_found(self, request: web.Request) -> web.Response:
        error = RequestError(
            f"There is no {request.method} {request.path} here.", code="NotFound", status=404
        )
        return _response(refusal(error))


def _is_success(reply: Reply) -> bool:
    return reply.status == 200 and isinstance(reply.body, dict)


async def _lines(reply: Reply, *, ends_with_done: bool) -> AsyncGenerator[str]:
    assert reply.events is not None
    async with aclosing(reply.events) as events:
        try:
            async for event in events:
                for line in event_lines([event]):
                    yield line
        except Exception as error:  # noqa: BLE001 (as above, once the stream has begun)
            for line in event_lines([refusal(fault(error)).body]):
                yield line
    if ends_with_done:
        yield DONE


def _chat_stream(answer: dict[str, Any], body: dict[str, Any]) -> Iterable[str]:
    if not has_choices(answer):  # an error inside a success answer comes as the one event
        return [*event_lines([answer]), DONE]
    chunks = chat_chunks(answer, include_usage=wants_usage(body))
    return [*event_lines(chunks), DONE]


def _responses_stream(response: dict[str, Any], body: dict[str, Any]) -> Iterable[str]:
    is_response = response.get("object") == "response" and "output" in response
    return event_lines(response_events(response) if is_response else [response])


def _seed(request: web.Request) -> int | None:
    text = request.headers.get(SEED_HEADER)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise RequestError(
            f"The header `{SEED_HEADER}` is not a whole number.",
            code="InvalidParameter",
            param=SEED_HEADER,
        ) from None


async def _read(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise RequestError(
            f"the request body has more than {MAX_BODY_BYTES} bytes.",
            code="InvalidParameter",
            status=413,
        ) from None
    except web.RequestPayloadError as error:
        said = " ".join(str(error).split())
        raise RequestError(
            f"the request body cannot be read: {said}.", code="InvalidParameter"
        ) from error


def _decode(body: bytes) -> object:
    try:
        return json.loads(body)
    except RecursionError:
        raise RequestError(
            "the request body is nested too deeply.", code="InvalidParameter"
        ) from None
    except ValueError as error:  # also bytes that are not UTF-8
        raise RequestError(
            f"the request body is not JSON: {error}.", code="InvalidParameter"
        ) from error


def _response(reply: Reply) -> web.Response:
    is_text = isinstance(reply.body, str)
    headers = {
        "x-request-id": uuid4().hex,
        "content-type": "text/plain; charset=utf-8" if is_text else "application/json",
        **{name.lower(): value for name, value in reply.headers.items()},
    }
    text = reply.body if is_text else json.dumps(reply.body)
    return web.Response(body=text.encode(), status=reply.status, headers=headers)
