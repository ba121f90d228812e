"""Daemon threads for synchronous plugins, one for each call in flight (decision 4).

The standard thread pool is not used: it caps the number of threads, and the interpreter waits for
its threads at exit, so that one blocked plugin would keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Job = Callable[[], Callable[[], None]]
"""Runs the plugin; returns what hands the result to the awaiting task."""
_idle: deque[SimpleQueue[_Job]] = deque()


class _Call:
    """One call of a plugin in a thread."""

    is_done = False


_abandoned: set[_Call] = set()
_abandoned_lock = threading.Lock()


def abandoned_calls() -> frozenset[object]:
    """Return the calls that still run in their threads although nobody waits for them any more."""
    with _abandoned_lock:
        return frozenset(_abandoned)


def _work(inbox: SimpleQueue[_Job]) -> None:
    while True:
        deliver = inbox.get()()
        _idle.append(inbox)  # before delivery, so that the next call finds this thread idle
        deliver()
        del deliver  # an idle thread must not keep a trajectory alive


def _start(job: _Job) -> None:
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        threading.Thread(target=_work, args=(inbox,), name="arkdev-plugin", daemon=True).start()
    inbox.put(job)


class _Results:
    """Results on their way to one event loop: those that come together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._waiting: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_called = False

    def deliver(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        """Hand a result over; from any thread."""
        self._waiting.append((future, value, error))
        loop = self._loop()
        if loop is None or self._is_called:
            return
        self._is_called = True
        # A closed loop means that nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._settle_all)

    def _settle_all(self) -> None:
        self._is_called = False  # first: what comes from now on calls again
        while self._waiting:
            _settle(*self._waiting.popleft())


_results: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Results] = (
    weakref.WeakKeyDictionary()
)


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():  # the caller gave up: the thread was abandoned and came back late
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


async def call_in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run `function` in a daemon thread with the caller's context variables; return its result.

    When the awaiting task is cancelled the thread is abandoned: its result is dropped.
    """
    loop = asyncio.get_running_loop()
    results = _results.get(loop) or _results.setdefault(loop, _Results(loop))
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()
    call = _Call()

    def job() -> Callable[[], None]:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function, *args, **kwargs)
        except StopIteration as stop:  # a future cannot carry it
            error = RuntimeError(f"the plugin raised {stop!r}")
        except BaseException as raised:  # noqa: BLE001 (handed to the awaiting task)
            error = raised
        with _abandoned_lock:
            call.is_done = True
            _abandoned.discard(call)
        return functools.partial(results.deliver, future, value, error)

    _start(job)
    try:
        return await future
    except asyncio.CancelledError:
        with _abandoned_lock:
            if not call.is_done:
                _abandoned.add(call)
        raise
