"""Which span the threads of plugins are in: the one that the code that started them was in.

A thread that a plugin started for itself is in the span that started it, and what it records counts
only if it ends with the attempt: a worker that lives on serves other rollouts too, and nobody could
tell them apart.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from arkdev.observe.following_threads import Enter, threads_carry
from arkdev.observe.spans import current, current_is, own_threads


def threads_follow() -> AbstractContextManager[None]:
    """Let the threads that plugins start inside the block be in the span that started them."""
    return threads_carry(_span)


def _span(thread: threading.Thread | None) -> Enter | None:
    span, threads = current(), own_threads.get()
    if thread is not None:
        if span is None:
            return None
        threads = (*threads, thread)

    @contextmanager
    def entered() -> Iterator[None]:
        token = own_threads.set(threads)
        try:
            with current_is(span):
                yield
        finally:
            own_threads.reset(token)

    return entered
