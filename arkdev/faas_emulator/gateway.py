"""The front door of functions, for use from elsewhere (leaf: imports aiohttp).

``POST /FUNCTION`` with the documented request (`arkdev.faas_emulator.worker.wire`) calls it;
``GET /`` tells which functions there are and how they are doing. The answer of a plugin is handed
on as it is. What the platform says for itself has the cloud's envelope and codes::

    400 MissingParameter, InvalidParameter    no body, one that is no JSON object, or a proxy
                                              on this machine that functions cannot reach
    404 ResourceNotFound                      no such function
    413 InvalidParameter                      a body of more than `MAX_BODY_BYTES`
    429 QuotaExceeded                         too many calls wait for the function
    500 InternalServiceError                  its instance ended, or none can be started
    504 TimeoutError                          it took longer than its `Runtime.timeout`

Every answer has the header ``X-Faas-Request-Id``: the caller's own, or a new one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web  # noqa: TID253 (the leaf)

from arkdev.errors import EndpointUnreachableError, InstanceError, PluginTimeoutError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.pool import Pool
from arkdev.faas_emulator.worker.wire import REQUEST_ID_HEADER

MAX_BODY_BYTES = 64 * 2**20
DEFAULT_MAX_QUEUED = 10_000
_MAX_ID_CHARS = 128

Prepare = Callable[[FunctionSpec, dict[str, Any]], Awaitable[dict[str, Any]]]


class FunctionGateway:
    """Serves pools by their functions' names. Start and stop it on the pools' event loop.

    `prepare` is given each request of a function and returns what instances are given. It may raise
    `EndpointUnreachableError`.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        *,
        max_queued: int = DEFAULT_MAX_QUEUED,
        prepare: Prepare | None = None,
    ) -> None:
        self._pools = dict(pools)
        self._prepare = prepare
        self._max_queued = max_queued
        self._runner: web.AppRunner | None = None

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; return the URL."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/", self._health)
        app.router.add_post("/{function}", self._call)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        # a caller that hangs up gives its call up
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        return f"http://{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close the port and every connection. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _request: web.Request) -> web.Response:
        functions = {
            name: {
                "calls": pool.num_calls,
                "queued": pool.num_queued,
                "running": pool.num_running,
                "instances": pool.num_instances,
                "max_replicas": pool.function.max_replicas,
            }
            for name, pool in self._pools.items()
        }
        return web.json_response({"functions": functions})

    async def _call(self, request: web.Request) -> web.Response:
        request_id = _id_of(request)
        pool = self._pools.get(request.match_info["function"])
        if pool is None:
            return self._no_function(request, request_id)
        if pool.num_queued >= self._max_queued:
            text = f"{pool.num_queued} calls of {pool.function.name} wait already"
            return _error(429, "QuotaExceeded", text, request_id)
        try:
            body = await _body(request)
        except _BadBodyError as error:
            return _error(error.status, error.code, str(error), request_id)
        try:
            if self._prepare is not None:
                body = await self._prepare(pool.function, body)
            answer = await pool.invoke(body, request_id=request_id)
        except RecursionError:
            return _error(400, "InvalidParameter", "the body is nested too deeply", request_id)
        except EndpointUnreachableError as error:
            text = "; ".join(filter(None, [error.message, error.hint]))
            return _error(400, "InvalidParameter", text, request_id)
        except PluginTimeoutError as error:
            return _error(504, "TimeoutError", error.message, request_id)
        except InstanceError as error:
            return _error(500, "InternalServiceError", error.message, request_id)
        return _answer(answer.status, answer.document, request_id)

    async def _unknown(self, request: web.Request) -> web.Response:
        return self._no_function(request, _id_of(request))

    def _no_function(self, request: web.Request, request_id: str) -> web.Response:
        names = ", ".join(self._pools)
        text = f"{request.method} {request.path} is no function; POST /NAME calls one of: {names}"
        return _error(404, "ResourceNotFound", text, request_id)


class _BadBodyError(Exception):
    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"the body is larger than {MAX_BODY_BYTES} bytes"
        raise _BadBodyError(413, "InvalidParameter", text) from None
    if not data:
        raise _BadBodyError(400, "MissingParameter", "the request has no body")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        text = f"the body is not JSON: {error}"
        raise _BadBodyError(400, "InvalidParameter", text) from None
    if not isinstance(body, dict):
        raise _BadBodyError(400, "InvalidParameter", "the body is not a JSON object")
    return body


def _id_of(request: web.Request) -> str:
    given = request.headers.get(REQUEST_ID_HEADER, "")
    is_usable = 0 < len(given) <= _MAX_ID_CHARS and given.isascii() and given.isprintable()
    return given if is_usable else secrets.token_hex(8)


def _error(status: int, code: str, message: str, request_id: str) -> web.Response:
    text = f"{message.removesuffix('.')}. Request id: {request_id}"
    return _answer(status, {"error": {"code": code, "message": text}}, request_id)


def _answer(status: int, document: dict[str, Any], request_id: str) -> web.Response:
    return web.json_response(document, status=status, headers={REQUEST_ID_HEADER: request_id})
