"""What the threads of plugins belong to: the attempt, and the span, of the code that started them.

The standard library gives a new thread an empty context. A call that is submitted to a pool belongs
to the attempt of whoever submitted it, whichever thread of the pool runs it, and is in their span.
A thread that a plugin started for itself belongs to the attempt that started it while that is under
way (`attempt_here`), and is in its span; what it records counts only if it ends with the attempt: a
worker that lives on serves other rollouts too, and nobody could tell them apart.

Other context variables, which are the plugin's own, stay as they would be without arkdev.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from arkdev.observe.attempt import attempt_here, current_attempt, thread_of
from arkdev.observe.spans import current_span, own_threads

_CARRIED: tuple[ContextVar[Any], ...] = (current_attempt, thread_of, current_span, own_threads)


@contextmanager
def threads_follow() -> Iterator[None]:
    """Let the threads that plugins start inside the block belong where they were started."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    threading.Thread.start = _following_start(start)  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = _following_submit(submit)  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]


def _following_start(start: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(start)
    def following(thread: threading.Thread) -> None:
        attempt, span = attempt_here(), current_span.get()
        if attempt is not None or span is not None:
            threads, run = (*own_threads.get(), thread), thread.run
            # a worker that lives on must not keep the attempt alive
            starter = weakref.ref(attempt) if attempt is not None else None

            def followed() -> None:
                thread_of.set(starter)
                own_threads.set(threads)
                current_span.set(span)
                run()

            thread.run = followed  # type: ignore[method-assign]
        start(thread)

    return following


def _following_submit(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(submit)
    def following(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        carried = [(variable, variable.get()) for variable in _CARRIED]

        def followed(*args: Any, **kwargs: Any) -> Any:
            tokens = [(variable, variable.set(value)) for variable, value in carried]
            try:
                return function(*args, **kwargs)
            finally:
                for variable, token in tokens:
                    variable.reset(token)

        return submit(pool, followed, *args, **kwargs)

    return following
