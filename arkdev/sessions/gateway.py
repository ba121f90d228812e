"""The loopback gateway: how raw clients reach their attempt's session (leaf: imports aiohttp).

It speaks Chat Completions and Responses under ``proxy.url``; the key of a request is the session's
`jwt_token`. A stream is made of the complete answer, which is what the session records. Errors come
back in the platform's envelope, with ``x-should-retry: false``: the session has tried again
already, and the client's own retries would multiply them. A request that comes again without a good
answer to it, or whose header says so, is noted. Proxies inside instances have routes of their own
(`arkdev.sessions.remote_sessions`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

from aiohttp import web  # noqa: TID253 (the leaf)

from arkdev.endpoints.event_stream import DONE, chat_chunks, event_lines, wants_usage
from arkdev.endpoints.response_events import response_events
from arkdev.endpoints.serving.event_sending import send_events
from arkdev.errors import (
    ArkdevError,
    EndpointResponseError,
    EndpointUnreachableError,
    LateCallError,
    TranslationError,
)
from arkdev.plugin.calls import WRAPPED_HEADER
from arkdev.plugin.plain import plain_messages
from arkdev.sessions.remote_sessions import RemoteSessions
from arkdev.sessions.session import Session

_MAX_BODY_BYTES = 64 * 2**20
_WIRE_NAMES = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "max_new_tokens": "max_new_tokens",
    "max_output_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "thinking": "thinking",
    "stop": "stop",
    "repetition_penalty": "repetition_penalty",
}
_RETRY_COUNT_HEADER = "x-stainless-retry-count"
"""openai's clients say here how often they have sent this request before."""
_FIRST_ERROR_STATUS = 400
_NOT_FORWARDED = ("stream", "stream_options", "n", "seed")


class Gateway:
    """Serves the open sessions of a run on 127.0.0.1. Start and stop it on one event loop."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._failed: dict[Session, set[bytes]] = {}
        """Of open sessions: hashes of the requests that have no good answer."""
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> str:
        """Listen on a free port; return the base URL for clients."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/api/v3/chat/completions", self._chat)
        app.router.add_post("/api/v3/responses", self._responses)
        RemoteSessions(lambda request: self._sessions.get(_key(request))).add_routes(app)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        # a client that hung up gets no answer: its call is cancelled and not recorded
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/api/v3"
        return self.url

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    def open(self, session: Session) -> None:
        """Let the session's key in."""
        self._sessions[session.jwt_token] = session
        self._failed[session] = set()

    def close(self, session: Session) -> None:
        """Refuse the session's key from now on, and end its attempt."""
        session.close()
        self._sessions.pop(session.jwt_token, None)
        self._failed.pop(session, None)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            session, body = self._session(request), await _body(request)
            messages = plain_messages(body["messages"])
        except _RequestError as error:
            return error.response
        except (KeyError, TypeError, AttributeError) as error:
            return _error(400, "InvalidParameter", f"not a chat request: {error!r}")
        call, sampling = _split(session, body)
        answer = session.complete(
            {**call, "messages": messages}, via=_via(request), sampling=sampling
        )
        answered = _answered(request, answer, stream=_chat_stream, body=body)
        return await self._watched(answered, request, session)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        try:
            session, body = self._session(request), await _body(request)
        except _RequestError as error:
            return error.response
        call, sampling = _split(session, body)
        answer = session.respond(call, via=_via(request), sampling=sampling)
        answered = _answered(request, answer, stream=_responses_stream, body=body)
        return await self._watched(answered, request, session)

    async def _watched(
        self, answered: Awaitable[web.StreamResponse], request: web.Request, session: Session
    ) -> web.StreamResponse:
        """Note a request that comes again after one without a good answer."""
        failed = self._failed.get(session, set())
        digest = blake2b(request.path.encode() + await request.read(), digest_size=16).digest()
        if digest in failed:
            session.note("client_retried")
        status = _FIRST_ERROR_STATUS  # where the client hangs up
        try:
            response = await answered
            status = response.status
        finally:  # only now: the same request at the same time is a sample more
            if status >= _FIRST_ERROR_STATUS:
                failed.add(digest)
        return response

    def _session(self, request: web.Request) -> Session:
        session = self._sessions.get(_key(request))
        if session is None:
            raise _RequestError(
                _error(401, "AuthenticationError", "this key belongs to no attempt that is running")
            )
        if request.headers.get(_RETRY_COUNT_HEADER, "0") != "0":
            session.note("client_retried")
        return session

    async def _unknown(self, request: web.Request) -> web.Response:
        return _error(
            404,
            "InvalidAction.NotFound",
            f"{request.method} {request.path} is not built yet; the gateway serves "
            "POST /api/v3/chat/completions and POST /api/v3/responses",
        )


def _key(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ").strip()


def _via(request: web.Request) -> str:
    """Tell a wrapped client, which had to come over HTTP, from a raw one."""
    return "wrapped" if WRAPPED_HEADER in request.headers else "raw"


class _RequestError(Exception):
    """A request that is answered with an error before it reaches its session."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(response.text)
        self.response = response


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise _RequestError(
            _error(400, "InvalidParameter", f"the body is not JSON: {error}")
        ) from error
    if not isinstance(body, dict):
        raise _RequestError(_error(400, "InvalidParameter", "the body is not a JSON object"))
    return body


def _split(session: Session, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the session is asked, and the sampling parameters that the client set itself."""
    given = {name: value for name, value in body.items() if value is not None}
    sampling = {_WIRE_NAMES[name]: value for name, value in given.items() if name in _WIRE_NAMES}
    for name, value in sampling.items():
        if session.sampling.get(name) != value:
            session.note("raw_sampling_parameter", name)
    if given.get("n", 1) != 1:
        session.note("raw_sampling_parameter", "n (one answer came)")
    if "seed" in given:
        session.note("raw_sampling_parameter", "seed (not used)")
    call = {
        name: value
        for name, value in given.items()
        if name not in _WIRE_NAMES and name not in _NOT_FORWARDED
    }
    return call, sampling


async def _answered(
    request: web.Request,
    answer: Awaitable[dict[str, Any]],
    *,
    stream: Callable[[dict[str, Any], dict[str, Any]], list[str]],
    body: dict[str, Any],
) -> web.StreamResponse:
    """The session's answer, as a whole or as a stream, or its error."""
    try:
        complete = await answer
    except LateCallError as error:
        return _error(401, "AuthenticationError", str(error))
    except EndpointResponseError as error:
        return _error(error.status, "EndpointError", error.message, body=error.body)
    except EndpointUnreachableError as error:
        return _error(504 if error.is_timeout else 502, "EndpointUnreachable", error.message)
    except ArkdevError as error:
        param = error.param if isinstance(error, TranslationError) else ""
        return _error(400, "InvalidParameter", f"{error} {error.hint}".strip(), param=param)
    except Exception as error:  # noqa: BLE001 (a request of the plugin's may hold anything)
        return _error(400, "InvalidParameter", f"the request cannot be answered: {error!r}")
    if body.get("stream"):
        return await send_events(request, stream(complete, body))
    return web.json_response(complete)


def _chat_stream(answer: dict[str, Any], body: dict[str, Any]) -> list[str]:
    return [*event_lines(chat_chunks(answer, include_usage=wants_usage(body))), DONE]


def _responses_stream(response: dict[str, Any], body: dict[str, Any]) -> list[str]:
    return list(event_lines(response_events(response)))


def _error(
    status: int, code: str, message: str, *, body: Any = None, param: str = ""
) -> web.Response:
    """Return the platform's error envelope, or the endpoint's own error body when there is one."""
    request_id = secrets.token_hex(12)
    envelope = {
        "error": {
            "code": code,
            "message": f"{message} Request id: {request_id}",
            "param": param,
            "type": code,
        }
    }
    document = body if isinstance(body, dict) and "error" in body else envelope
    return web.json_response(
        document,
        # an error that the endpoint hid in a 200 answer must not look like an answer here
        status=status if status >= 400 else 502,
        headers={"x-should-retry": "false", "x-request-id": request_id},
    )
