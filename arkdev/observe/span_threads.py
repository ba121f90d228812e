"""Which span the threads of plugins are in: the one that the code that started them was in.

The standard library gives a new thread an empty context. A call that is submitted to a pool is in
the span of whoever submitted it, whichever thread of the pool runs it. A thread that a plugin
started for itself is in the span that started it, and what it records counts only if it ends with
the attempt: a worker that lives on serves other rollouts too, and nobody could tell them apart.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from arkdev.observe.spans import current, current_is, own_threads


@contextmanager
def threads_follow() -> Iterator[None]:
    """Let the threads that plugins start inside the block be in the span that started them."""
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
        span = current()
        if span is not None:
            threads, run = (*own_threads.get(), thread), thread.run

            def in_span() -> None:
                own_threads.set(threads)
                with current_is(span):
                    run()

            thread.run = in_span  # type: ignore[method-assign]
        start(thread)

    return following


def _following_submit(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(submit)
    def following(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        span, threads = current(), own_threads.get()

        def in_span(*args: Any, **kwargs: Any) -> Any:
            token = own_threads.set(threads)
            try:
                with current_is(span):
                    return function(*args, **kwargs)
            finally:
                own_threads.reset(token)

        return submit(pool, in_span, *args, **kwargs)

    return following
