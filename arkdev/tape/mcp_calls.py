"""MCP on a tape, at the client's session: requests and their results (leaf: imports mcp).

What a transport carries is not recorded a second time. On replay the transports start nothing and
connect to nothing: their streams are silent, and the session answers from the tape.
"""

from __future__ import annotations

import asyncio
import builtins
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from types import ModuleType
from typing import Any

import anyio
from mcp.shared.exceptions import McpError
from mcp.types import ErrorData

from arkdev.tape.format import CANCELLED, MCP, Line
from arkdev.tape.http_calls import carries_mcp
from arkdev.tape.recording import Recording, current_stream
from arkdev.tape.replay import Replay

_TRANSPORTS = {
    "mcp.client.stdio": ("stdio_client",),
    "mcp.client.sse": ("sse_client",),
    "mcp.client.streamable_http": ("streamable_http_client", "streamablehttp_client"),
    "mcp.client.websocket": ("websocket_client",),
}
_SESSION = "mcp.client.session"
_ALIASES = ("mcp", "mcp.client.session_group")
"""Modules that may have bound a transport before."""

_Opened = Callable[..., AbstractAsyncContextManager[Any]]


def record(module: ModuleType, recording: Recording, undo: ExitStack) -> None:
    """Record what passes the sessions of `module`."""
    if module.__name__ == _SESSION:
        _replace(undo, module.ClientSession, send_request=_recorded(module, recording))
    for name in _TRANSPORTS.get(module.__name__, ()):
        _replace_transport(undo, module, name, _unrecorded(getattr(module, name)))


def replay(module: ModuleType, replay: Replay, undo: ExitStack) -> None:
    """Answer what passes the sessions of `module` from a tape."""
    if module.__name__ == _SESSION:
        _replace(
            undo,
            module.ClientSession,
            send_request=_replayed(replay),
            send_notification=_unsent,
        )
    for name in _TRANSPORTS.get(module.__name__, ()):
        has_session_id = module.__name__.endswith("http")
        _replace_transport(undo, module, name, _silent(has_session_id=has_session_id))


def _replace(undo: ExitStack, owner: Any, **functions: Any) -> None:
    for name, function in functions.items():
        if name in vars(owner):
            undo.callback(setattr, owner, name, getattr(owner, name))
        else:  # a method of a class above
            undo.callback(delattr, owner, name)
        setattr(owner, name, function)


def _replace_transport(undo: ExitStack, module: ModuleType, name: str, opened: _Opened) -> None:
    original = getattr(module, name)
    aliases = [sys.modules[alias] for alias in _ALIASES if alias in sys.modules]
    for owner in (module, *aliases):
        if vars(owner).get(name) is original:
            _replace(undo, owner, **{name: opened})


def _recorded(module: ModuleType, recording: Recording) -> Callable[..., Any]:
    original = module.ClientSession.send_request

    async def send_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        asked, stream = _document(request), current_stream()
        number = recording.number(MCP, stream)

        def keep(outcome: Line) -> None:
            recording.exchange(
                MCP,
                stream,
                number=number,
                exchange=lambda redaction: {
                    "request": redaction.named(asked),
                    **redaction.answered(outcome),
                },
            )

        try:
            result = await original(self, request, *args, **kwargs)
        except asyncio.CancelledError:
            keep({"outcome": CANCELLED})
            raise
        except McpError as error:
            keep({"error": error.error.model_dump(mode="json")})
            raise
        except Exception as error:
            kind = f"{type(error).__module__}.{type(error).__name__}"
            keep({"failure": {"type": kind, "message": str(error)}})
            raise
        keep({"result": _document(result)})
        return result

    return send_request


def _replayed(replay: Replay) -> Callable[..., Any]:
    async def send_request(
        _self: Any, request: Any, result_type: Any, *_args: Any, **_: Any
    ) -> Any:
        asked = replay.redaction.named(_document(request))
        line = replay.answer(MCP, current_stream(), asked)
        if line.get("outcome") == CANCELLED:
            await asyncio.Event().wait()  # until it is given up again
        if "error" in line:
            raise McpError(ErrorData.model_validate(line["error"]))
        if "failure" in line:
            raise _failure(line["failure"])
        return result_type.model_validate(line["result"])

    return send_request


async def _unsent(_self: Any, *_args: Any, **_kwargs: Any) -> None:
    """Nobody is there to be notified."""


def _document(message: Any) -> Line:
    document: Line = message.model_dump(by_alias=True, mode="json", exclude_none=True)
    return document


def _failure(failure: Line) -> Exception:
    module, _, name = failure["type"].rpartition(".")
    cls = getattr({"builtins": builtins}.get(module, anyio), name, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        return cls(failure["message"])
    return McpError(ErrorData(code=0, message=f"{failure['type']}: {failure['message']}"))


def _unrecorded(original: _Opened) -> _Opened:
    """Open a transport so that its own HTTP calls, made in tasks of its own, are not recorded."""

    @asynccontextmanager
    async def opened(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        transport = original(*args, **kwargs)
        token = carries_mcp.set(True)
        try:
            streams = await transport.__aenter__()
        finally:
            carries_mcp.reset(token)
        try:
            yield streams
        except BaseException as error:
            if not await transport.__aexit__(type(error), error, error.__traceback__):
                raise
        else:
            token = carries_mcp.set(True)
            try:
                await transport.__aexit__(None, None, None)
            finally:
                carries_mcp.reset(token)

    return opened


def _silent(*, has_session_id: bool) -> _Opened:
    @asynccontextmanager
    async def opened(*_args: Any, **_kwargs: Any) -> AsyncIterator[Any]:
        sender, received = anyio.create_memory_object_stream[Any](0)
        sent, taker = anyio.create_memory_object_stream[Any](math.inf)
        async with sender, received, sent, taker:
            yield (received, sent, _no_session_id) if has_session_id else (received, sent)

    return opened


def _no_session_id() -> None:
    """There is no server that could have given one."""
