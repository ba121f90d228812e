"""What the running code is in, such as an attempt or a span, goes along into the threads it starts.

The standard library gives a new thread an empty context, and `loop.run_in_executor` and pools give
their threads none either (`asyncio.to_thread` does). A call that is submitted to a pool gets what
its submitter is in, whichever thread of the pool runs it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

Enter = Callable[[], AbstractContextManager[None]]
"""Called in the thread: what its code is to be in."""
Carry = Callable[[threading.Thread | None], Enter | None]
"""Called where a thread is started, or with None where a call is submitted to a pool."""

_carries: list[Carry] = []
_undo = ExitStack()


@contextmanager
def threads_carry(carry: Carry) -> Iterator[None]:
    """Let the threads that are started inside the block enter what `carry` returns."""
    if not _carries:
        _patch()
    _carries.append(carry)
    try:
        yield
    finally:
        _carries.remove(carry)
        if not _carries:
            _undo.close()


def _patch() -> None:
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    threading.Thread.start = _following_start(start)  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = _following_submit(submit)  # type: ignore[method-assign]
    _undo.callback(setattr, threading.Thread, "start", start)
    _undo.callback(setattr, ThreadPoolExecutor, "submit", submit)


def _carried(thread: threading.Thread | None) -> list[Enter]:
    return [enter for carry in tuple(_carries) if (enter := carry(thread)) is not None]


def _following_start(start: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(start)
    def following(thread: threading.Thread) -> None:
        enters = _carried(thread)
        if enters:
            run = thread.run

            def carried() -> None:
                with ExitStack() as stack:
                    for enter in enters:
                        stack.enter_context(enter())
                    run()

            thread.run = carried  # type: ignore[method-assign]
        start(thread)

    return following


def _following_submit(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(submit)
    def following(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        enters = _carried(None)
        if not enters:
            return submit(pool, function, *args, **kwargs)

        def carried(*args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                for enter in enters:
                    stack.enter_context(enter())
                return function(*args, **kwargs)

        return submit(pool, carried, *args, **kwargs)

    return following
