"""Reading the stacks of other threads: the user's place in them, its call, its attempt.

Everything here looks at threads that go on running; it is called with the interpreter held, reads,
and changes nothing.
"""

from __future__ import annotations

import ast
import asyncio
import dis
import functools
import inspect
import itertools
import linecache
from collections.abc import Iterator
from contextvars import Context
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from arkdev.harness.stalls import AWAIT
from arkdev.observe.attempt import Attempt, current_attempt
from arkdev.plugin.source import is_ours, is_users
from arkdev.plugin.threads import call_in_thread

_CALLBACK_OF_LOOP = asyncio.Handle._run.__code__
_TURN_OF_LOOP = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
_JOB_OF_THREAD = next(
    constant
    for constant in call_in_thread.__code__.co_consts
    if isinstance(constant, CodeType) and constant.co_name == "job"
)
_BLOCKING_CALLS = ("complete_blocking", "respond_blocking")
_TRAFFIC = "/plugin/traffic/"
"""Wraps the HTTP clients of plugins: what waits below it is the user's call all the same."""
_WAITING_FILES = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/socket.py",
    "/ssl.py",
    "/subprocess.py",
    "/concurrent/futures/_base.py",
)
_WAITING_CALLS = {"accept", "acquire", "connect", "join", "poll", "read", "readinto", "recv"}
_WAITING_CALLS |= {"recv_into", "select", "sleep", "wait"}
_CALLING = ("CALL", "PRECALL", "BEFORE_WITH", "FOR_ITER")
_MAX_CALL = 60

not_the_threads_own: set[CodeType] = set()
"""Code that the interpreter calls in whatever thread is running, as at a garbage collection."""


@dataclass(frozen=True)
class Place:
    """Where a thread is in the user's code."""

    file: str
    line: int
    function: str
    called: str
    """What the line calls, after ``await `` where it awaits that; "" when it computes."""
    plugin: str
    """The outermost function of the user's."""
    is_within_arkdev: bool
    """The user's line called arkdev, which computes: that is not the user's time."""
    is_waiting: bool
    """The thread waits for something, as far as its stack tells."""


def users_place(frame: FrameType) -> Place | None:
    """Return the innermost place of the user's code on a stack, or None.

    On an event loop's thread what called the loop is left out.
    """
    inner: list[FrameType] = []
    users: list[FrameType] = []
    for each in _frames(frame):
        if _is_users(each):
            users.append(each)
        elif not users:
            inner.append(each)
    if not users:
        return None
    ours = [each for each in inner if _is_arkdevs(each)]
    is_model_call = any(each.f_code.co_name in _BLOCKING_CALLS for each in ours)
    # a comprehension or lambda is a part of the function around it
    named = next((each for each in users if each.f_code.co_name[:1] != "<"), users[0])
    outermost = next((e for e in reversed(users) if e.f_code.co_name[:1] != "<"), named)
    called = _called(users[0].f_code, users[0].f_lasti) or (_entered(inner[-1]) if inner else "")
    leaf = inner[0] if inner else users[0]
    return Place(
        file=users[0].f_code.co_filename,
        line=_line(users[0]),
        function=named.f_code.co_qualname,
        called=called,
        plugin=outermost.f_code.co_qualname,
        is_within_arkdev=bool(ours) and not is_model_call,
        is_waiting=is_model_call
        or leaf.f_code.co_filename.endswith(_WAITING_FILES)
        or (bool(inner) and leaf.f_code.co_name in _WAITING_CALLS)
        or (not inner and called.rpartition(".")[2] in _WAITING_CALLS),
    )


def attempt_on(frame: FrameType) -> Attempt | None:
    """Return the attempt that a thread works for: a loop's current callback, or a sync plugin."""
    inner: FrameType | None = frame
    while inner is not None:
        if inner.f_code is _CALLBACK_OF_LOOP:
            context = getattr(inner.f_locals.get("self"), "_context", None)
        elif inner.f_code is _JOB_OF_THREAD:
            context = inner.f_locals.get("context")
        else:
            inner = inner.f_back
            continue
        return context.get(current_attempt) if isinstance(context, Context) else None
    return None


def is_at_a_call(frame: FrameType) -> bool:
    """True when the innermost instruction of a thread calls something that is not Python code.

    Also the statements that call: ``with`` a lock, ``for`` each line of a pipe.
    """
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""
    return name.startswith(_CALLING)


def awaiting_place(coroutine: Any) -> Place | None:
    """Return the innermost place of the user's code where a task waits, or None."""
    users: list[FrameType] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and _is_users(frame):
            users.append(frame)
        coroutine = getattr(coroutine, "cr_await", None)
    if not users:
        return None
    at = users[-1]
    return Place(
        file=at.f_code.co_filename,
        line=_line(at),
        function=at.f_code.co_qualname,
        called="",
        plugin=users[0].f_code.co_qualname,
        is_within_arkdev=False,
        is_waiting=True,
    )


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code not in (_CALLBACK_OF_LOOP, _TURN_OF_LOOP):
        if frame.f_code not in not_the_threads_own:
            yield frame
        frame = frame.f_back


def _line(frame: FrameType) -> int:
    return frame.f_lineno or frame.f_code.co_firstlineno  # some instructions belong to no line


def _is_users(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    return filename[:1] != "<" and is_users(filename)  # "<string>" is often generated by a library


def _is_arkdevs(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    return is_ours(filename) and _TRAFFIC not in filename.replace("\\", "/")


def _entered(frame: FrameType) -> str:
    """Return the name of what the user's code entered without a call of its own."""
    module = str(frame.f_globals.get("__name__", ""))
    name = f"{module}.{frame.f_code.co_qualname}".lstrip(".")
    return f"{AWAIT}{name}" if frame.f_code.co_flags & inspect.CO_COROUTINE else name


@functools.lru_cache(maxsize=1024)
def _called(code: CodeType, instruction: int) -> str:
    """Return what an instruction calls, as the source has it, or ""."""
    positions = next(itertools.islice(code.co_positions(), max(0, instruction // 2), None), None)
    if positions is None or None in positions:
        return ""
    first, last, begin, end = positions
    assert first is not None and last is not None
    lines = [
        linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)
    ]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        tree = ast.parse(b"".join(lines).decode(errors="replace"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    text = ast.unparse(tree.body.func) if isinstance(tree.body, ast.Call) else ""
    return text if len(text) <= _MAX_CALL else "..." + text[3 - _MAX_CALL :]
