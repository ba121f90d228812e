"""Thread pools that are full: what their threads do, and who waits for one.

`asyncio.to_thread` has a pool of min(32, cores + 4) threads. When more calls than that come, they
wait in its queue, and nothing else tells. The queues of all `ThreadPoolExecutor`s are looked at
from outside, without touching what is submitted: an empty queue costs nothing.

A pool that only one attempt uses is its own affair: 20 calls over 4 threads are meant to wait.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread as pools
import functools
import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from arkdev.harness.stall_frames import Place, attempt_on, awaiting_place, users_place
from arkdev.harness.stalls import MAX_WAITED, Culprit, Share, Stall, StallKind, Waiting
from arkdev.observe.attempt import Attempt, current_attempt

_RUN = pools._WorkItem.run.__code__
_RESULT = Future.result.__code__
_UNKNOWN = Place("", 0, "", "", "", is_within_arkdev=False, is_waiting=False)


@dataclass
class _Pool:
    """A pool whose queue has not been empty for a while."""

    first_seen: weakref.WeakKeyDictionary[Any, float] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    """When each waiting call was seen first."""
    stall: Stall | None = None


class ExecutorWatch:
    """Looks at the queues of all thread pools.

    `on_end` gets each time in which a call waited for `threshold_s` or longer, `on_long` the same
    while it lasts.
    """

    def __init__(
        self,
        threshold_s: float,
        *,
        on_end: Callable[[Stall], None],
        on_long: Callable[[Stall], None],
    ) -> None:
        self._threshold_s = threshold_s
        self._on_end = on_end
        self._on_long = on_long
        self._pools: dict[int, _Pool] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def default_of(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say which loop's own pool is everyone's, whoever uses it."""
        self._loop = loop

    def look(self, now: float) -> None:
        """Look once."""
        full = {id(queue): (queue, threads) for queue, threads in _full_queues()}
        for key in [key for key in self._pools if key not in full]:
            self._end(self._pools.pop(key), now)
        for key, (queue, threads) in full.items():
            self._look_at(self._pools.setdefault(key, _Pool()), queue, threads, now=now)

    def settle(self, now: float) -> None:
        """End what is under way."""
        for pool in self._pools.values():
            self._end(pool, now)

    def _end(self, pool: _Pool, now: float) -> None:
        stall, pool.stall = pool.stall, None
        if stall is not None:
            stall.end(now)
            self._on_end(stall)

    def _look_at(self, pool: _Pool, queue: Any, threads: set[int], *, now: float) -> None:
        items = _waiting_items(queue)
        for item in items:
            pool.first_seen.setdefault(item, now)
        oldest = min((pool.first_seen[item] for item in items), default=now)
        if now - oldest < self._threshold_s:
            self._end(pool, now)
            return
        frames = sys._current_frames()
        busy = [_Worker.of(frames[ident]) for ident in threads if ident in frames]
        blocked_on = _blocked_on(frames)
        waiting = [blocked_on.get(item.future) or _awaiter(item.future)[0] for item in items]
        names = dict.fromkeys(attempt.name for attempt in waiting if attempt)
        users = {*names, *(worker.attempt.name for worker in busy if worker.attempt)}
        if len(users) < 2 and not self._is_default(queue):
            return
        if pool.stall is None:
            pool.stall = Stall(oldest)
        shares = _shares(busy)
        waits = Waiting(len(items), tuple(names)[:MAX_WAITED])
        for share in shares:
            pool.stall.wait_for(share.culprit, waits)
        pool.stall.add(now, shares)
        self._on_long(pool.stall)

    def _is_default(self, queue: Any) -> bool:
        executor = getattr(self._loop, "_default_executor", None)
        return getattr(executor, "_work_queue", None) is queue


@dataclass(frozen=True)
class _Worker:
    """What one thread of a pool does."""

    place: Place
    attempt: Attempt | None

    @classmethod
    def of(cls, frame: FrameType) -> _Worker:
        item = next((f.f_locals.get("self") for f in _outwards(frame) if f.f_code is _RUN), None)
        attempt, coroutine = _awaiter(getattr(item, "future", None))
        place = users_place(frame)
        if place is None:  # as in to_thread(time.sleep, 1): whoever awaits it is the user's
            place = awaiting_place(coroutine) or _UNKNOWN
            called = _name_of(getattr(item, "fn", None))
            place = Place(**{**vars(place), "called": called})
        return cls(place, attempt)


def _shares(busy: list[_Worker]) -> list[Share]:
    return [
        Share(
            Culprit(
                StallKind.EXECUTOR_STARVED, place.file, place.function, place.called, place.plugin
            ),
            place.line,
            1 / len(busy),
            id(worker.attempt),
        )
        for worker in busy
        for place in [worker.place]
    ]


def _full_queues() -> Iterator[tuple[Any, set[int]]]:
    """Yield each queue in which calls wait, with the threads of its pool."""
    try:
        everyone = list(getattr(pools, "_threads_queues", {}).items())
    except RuntimeError:  # a thread started or ended meanwhile: the next look will do
        return
    threads: dict[int, tuple[Any, set[int]]] = {}
    for thread, queue in everyone:
        threads.setdefault(id(queue), (queue, set()))[1].add(thread.ident or 0)
    for queue, idents in threads.values():
        if queue.qsize():
            yield queue, idents


def _waiting_items(queue: Any) -> list[Any]:
    """Return the calls in a pool's queue; it has no way to look without taking them out."""
    found: list[Any] = []
    for referent in gc.get_referents(queue):
        inside = list(referent) if isinstance(referent, list) else [referent]
        found += [item for item in inside if isinstance(getattr(item, "future", None), Future)]
    return found


def _awaiter(future: Any) -> tuple[Attempt | None, Any]:
    """Return the attempt and the coroutine that await a pool's future on an event loop."""
    for callback in list(getattr(future, "_done_callbacks", ())):
        for cell in getattr(callback, "__closure__", None) or ():
            try:
                awaited = cell.cell_contents
            except ValueError:  # not set any more
                continue
            if not asyncio.isfuture(awaited):
                continue
            for wake_up, context in getattr(awaited, "_callbacks", None) or ():
                task = getattr(wake_up, "__self__", None)
                if isinstance(task, asyncio.Task):
                    return context.get(current_attempt), task.get_coro()
    return None, None


def _blocked_on(frames: dict[int, FrameType]) -> dict[Any, Attempt | None]:
    """Return the futures for which threads of sync plugins wait, with their attempts."""
    return {
        inner.f_locals.get("self"): attempt_on(inner)
        for frame in frames.values()
        for inner in _outwards(frame)
        if inner.f_code is _RESULT
    }


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name_of(function: Any) -> str:
    """Name the function of a call as code writes it, also behind `asyncio.to_thread`."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        is_context = getattr(function.func, "__name__", "") == "run" and function.args
        function = function.args[0] if is_context else function.func
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module and module != "builtins" else name
