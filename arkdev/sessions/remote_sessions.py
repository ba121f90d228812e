"""How a proxy inside an instance reaches its attempt's session (leaf: imports aiohttp).

`arkdev.plugin.remote_access` calls one method of `ModelAccess` with one POST to
``/api/v3/arkdev/attempt/METHOD``, with the session's `jwt_token` as its key. The answer has status
200 and holds ``{"value": ...}``, or ``{"raised": ...}`` with an error document; 401 means that the
key belongs to no attempt that is running: the call is late.

Model calls are numbered by the instance, and begin here in that order, whichever connection
delivers them first: the number of a call decides its seed, and which of overlapping calls is the
trajectory (decision 9).
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import web  # noqa: TID253 (the leaf)

from arkdev.plugin.error_documents import error_document
from arkdev.plugin.remote_access import ATTEMPT_PATH
from arkdev.plugin.response_tree import ResponseNode
from arkdev.sessions.session import Session

_TURN_TIMEOUT_S = 10.0
"""How long a call waits for one with a smaller number, which may never come: its plugin ended."""

SessionOf = Callable[[web.Request], Session | None]


class RemoteSessions:
    """The routes for proxies in instances. `session_of` finds the session of a request's key."""

    def __init__(self, session_of: SessionOf) -> None:
        self._session_of = session_of
        self._turnstiles: weakref.WeakKeyDictionary[Session, _Turnstile] = (
            weakref.WeakKeyDictionary()
        )
        self._methods: dict[str, Callable[[Session, dict[str, Any]], Awaitable[Any]]] = {
            "complete": self._complete,
            "respond": self._respond,
            "skip": self._skip,
            "insert": _insert,
            "set_history": _set_history,
            "acknowledge": _acknowledge,
            "refused": _refused,
            "note": _note,
            "fault": _fault,
            "conversation": _conversation,
            "node": _node,
        }

    def add_routes(self, app: web.Application) -> None:
        """Serve them under the gateway's base URL."""
        app.router.add_post(f"/api/v3{ATTEMPT_PATH}/{{method}}", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        session = self._session_of(request)
        if session is None:
            return web.json_response({"late": True}, status=401)
        method = self._methods.get(request.match_info["method"])
        try:
            arguments = json.loads(await request.read())
        except (ValueError, RecursionError):
            arguments = None
        if method is None or not isinstance(arguments, dict):
            return web.json_response({"unknown": request.path}, status=400)
        try:
            answer = {"value": await method(session, arguments)}
        except Exception as error:  # noqa: BLE001 (raised in the plugin, as it would be here)
            answer = {"raised": error_document(error)}
        return web.json_response(answer)

    async def _complete(self, session: Session, given: dict[str, Any]) -> Any:
        call = session.complete(given["body"], timeout_s=given.get("timeout_s"))
        return await self._in_turn(session, given["number"], call)

    async def _respond(self, session: Session, given: dict[str, Any]) -> Any:
        """Also return what the instance's own tree needs to hold the response."""
        call = session.respond(given["body"], timeout_s=given.get("timeout_s"))
        response = await self._in_turn(session, given["number"], call)
        node = session.responses.node(response["id"])
        return {"response": response, "key": node.key, "answer": node.answer}

    async def _skip(self, session: Session, given: dict[str, Any]) -> None:
        """A call that was given up in the instance before it was sent."""
        self._turnstile(session).passed(given["number"])

    async def _in_turn(
        self, session: Session, number: int, call: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        turnstile = self._turnstile(session)
        try:
            await turnstile.turn_of(number)
        except BaseException:
            call.close()
            turnstile.passed(number)
            raise
        task = asyncio.ensure_future(call)
        turnstile.passed(number)  # the next call's task is made later, so it begins later
        return await task

    def _turnstile(self, session: Session) -> _Turnstile:
        return self._turnstiles.setdefault(session, _Turnstile())


class _Turnstile:
    """Lets the calls of one attempt begin in the order of their numbers."""

    def __init__(self) -> None:
        self._next = 0
        self._done: set[int] = set()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def turn_of(self, number: int) -> None:
        """Wait until every smaller number has begun or was given up; not for ever."""
        if number <= self._next:
            return
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_TURN_TIMEOUT_S):
                await future
        except TimeoutError:
            return
        finally:
            self._waiting.pop(number, None)

    def passed(self, number: int) -> None:
        """Go on after a number: its call has begun, or never will."""
        if number >= self._next:
            self._done.add(number)
        while self._next in self._done:
            self._done.remove(self._next)
            self._next += 1
        future = self._waiting.get(self._next)
        if future is not None and not future.done():
            future.set_result(None)


async def _insert(session: Session, given: dict[str, Any]) -> Any:
    made = session.insert(given["messages"], previous_response_id=given.get("previous_response_id"))
    return {"id": made, "key": session.responses.node(made).key}


async def _set_history(session: Session, given: dict[str, Any]) -> None:
    session.set_history(given["messages"])


async def _acknowledge(session: Session, given: dict[str, Any]) -> None:
    session.acknowledge(given["answer"])


async def _refused(session: Session, given: dict[str, Any]) -> None:
    session.refused(given["text"])


async def _note(session: Session, given: dict[str, Any]) -> None:
    session.note(given["code"], given.get("detail", ""))


async def _fault(session: Session, given: dict[str, Any]) -> None:
    session.fault(
        given["side"],
        given["kind"],
        given["target"],
        detail=given["detail"],
        is_injected=given["is_injected"],
    )


async def _conversation(session: Session, given: dict[str, Any]) -> Any:
    response_id = given.get("response_id")
    conversation = (
        session.conversation if response_id is None else session.responses.conversation(response_id)
    )
    return conversation.state()


async def _node(session: Session, given: dict[str, Any]) -> Any:
    """The path to a response, from its first call on."""
    return [_node_fields(node) for node in session.responses.node(given["id"]).path]


def _node_fields(node: ResponseNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "key": node.key,
        "history": node.history,
        "answer": node.answer,
        "num_instructions": node.num_instructions,
    }
