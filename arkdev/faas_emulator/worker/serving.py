"""The calls of one instance: a request is read, its plugin called, and what came of it answered."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.faas_emulator.worker.answers import answer_text, read_result
from arkdev.faas_emulator.worker.http_server import (
    HttpAnswer,
    HttpRequest,
    MalformedRequestError,
)
from arkdev.faas_emulator.worker.output import InstanceOutput
from arkdev.faas_emulator.worker.requests import BadRequestError, PluginRequest, read_request
from arkdev.faas_emulator.worker.wire import REQUEST_ID_HEADER
from arkdev.observe.attempt import Attempt, AttemptPlace, current_attempt, in_flight
from arkdev.plugin.error_documents import error_document
from arkdev.plugin.host import call_plugin, cancelled_inside
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.redirect import ARK_BASE_URL
from arkdev.plugin.remote_access import GatewayConnections, RemoteAccess

_MAX_ID_CHARS = 128


@dataclass(eq=False)
class _LoneRequest:
    """A request that belongs to no run: nobody counts its notes and faults."""

    place: AttemptPlace
    name: str
    number: int = 1

    def note(self, code: str, detail: str = "") -> None:
        """See `arkdev.observe.attempt.Attempt`."""

    def fault(self, side: str, kind: str, target: str, **_more: Any) -> object:
        """See `arkdev.observe.attempt.Attempt`."""
        return None

    def answered_later(self, fault: object) -> None:
        """See `arkdev.observe.attempt.Attempt`."""


class FunctionService:
    """Answers the requests of one instance. `root` is the folder of the plugin's package."""

    def __init__(self, loaded: LoadedPlugin, *, root: Path, output: InstanceOutput) -> None:
        self._loaded = loaded
        self._root = root
        self._output = output
        self._connections = GatewayConnections()
        self._left_behind: set[asyncio.Task[Any]] = set()

    async def handle(self, request: HttpRequest) -> HttpAnswer:
        """Answer one request of `wire`."""
        request_id = _request_id(request)
        if request.path != "/":
            return _refusal(
                404,
                "ResourceNotFound",
                f"{request.method} {request.path}: a function is called with POST /",
                request_id,
            )
        if request.method in ("GET", "HEAD"):
            return _answer(200, json.dumps({"function": self._loaded.reference}), request_id)
        if request.method != "POST":
            return _refusal(405, "InvalidOperation", f"{request.method} is not POST", request_id)
        try:
            read = read_request(_decoded(request.body), plugin=self._loaded.plugin)
        except BadRequestError as error:
            return _refusal(400, "InvalidParameter", str(error), request_id)
        return await self._call(read, request_id)

    def refuse(self, error: MalformedRequestError) -> HttpAnswer:
        """Answer what is no HTTP request."""
        return _refusal(error.status, "InvalidParameter", str(error), _new_id())

    async def _call(self, request: PluginRequest, request_id: str) -> HttpAnswer:
        attempt, proxy = self._attempt(request, request_id)
        plugin = self._loaded.plugin
        current_attempt.set(attempt)  # of this request's task alone
        in_flight[attempt] = plugin.is_async
        self._output.begin(request_id)
        try:
            value = await self._outcome(request.arguments(proxy))
            result = read_result(value, plugin=plugin, rest=request.rest)
            return _answer(200, answer_text(result, plugin=plugin), request_id)
        except asyncio.CancelledError:  # the client hung up
            raise
        except Exception as error:  # noqa: BLE001 (whatever left the plugin is the answer)
            document = {"error": error_document(error, root=self._root)}
            return _answer(500, json.dumps(document, default=repr), request_id)
        finally:
            in_flight.pop(attempt, None)
            self._output.end(request_id)

    async def _outcome(self, arguments: tuple[Any, ...]) -> Any:
        call = asyncio.ensure_future(call_plugin(self._loaded, arguments))
        try:
            await asyncio.wait({call})
        except asyncio.CancelledError:
            call.cancel()
            self._left_behind.add(call)  # the loop itself holds tasks weakly
            call.add_done_callback(self._forget)
            raise
        if call.cancelled():
            raise cancelled_inside(self._loaded.plugin)
        return call.result()

    def _forget(self, call: asyncio.Task[Any]) -> None:
        self._left_behind.discard(call)
        if not call.cancelled():
            call.exception()  # looked at, so that asyncio does not complain about it

    def _attempt(
        self, request: PluginRequest, request_id: str
    ) -> tuple[Attempt, InferenceProxy | None]:
        """Return whose code runs, and a rollout's proxy."""
        place = AttemptPlace((request_id,), attempt=0)
        address = request.proxy
        if address is None:
            return _LoneRequest(place, name=request_id), None
        attempt: Any = _LoneRequest(place, name=request_id)
        is_group = len(request.rest) > 0
        if address.attempt is None:
            proxy = InferenceProxy(
                request.sample,
                address.url or ARK_BASE_URL,
                jwt_token=address.jwt_token,
                mode=address.mode,
                is_group=is_group,
            )
        else:
            attempt = RemoteAccess(
                address.url,
                jwt_token=address.jwt_token,
                attempt=address.attempt,
                place=place,
                connections=self._connections,
            )
            proxy = InferenceProxy(
                request.sample, mode=address.mode, access=attempt, is_group=is_group
            )
        proxy.headers = dict(address.headers)
        return attempt, proxy


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None


def _request_id(request: HttpRequest) -> str:
    given = request.headers.get(REQUEST_ID_HEADER.lower(), "")
    is_good = 0 < len(given) <= _MAX_ID_CHARS and given.isascii() and given.isprintable()
    return given if is_good else _new_id()


def _new_id() -> str:
    return secrets.token_hex(12)


def _answer(status: int, text: str, request_id: str) -> HttpAnswer:
    return HttpAnswer(status, text.encode("ascii"), {REQUEST_ID_HEADER: request_id})


def _refusal(status: int, code: str, message: str, request_id: str) -> HttpAnswer:
    text = f"{message.removesuffix('.')}. Request id: {request_id}"
    return _answer(
        status,
        json.dumps({"error": {"code": code, "message": text, "type": code}}),
        request_id,
    )
