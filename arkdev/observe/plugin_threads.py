"""What the threads of plugins belong to: the attempt, and the span, of the code that started them.

A call that is submitted to a pool belongs
to the attempt of whoever submitted it, whichever thread of the pool runs it, and is in their span.
A thread that a plugin started for itself belongs to the attempt that started it while that is under
way (`attempt_here`), and is in its span; what it records counts only if it ends with the attempt: a
worker that lives on serves other rollouts too, and nobody could tell them apart.

Other context variables, which are the plugin's own, stay as they would be without arkdev.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from arkdev.observe.attempt import attempt_here, current_attempt, thread_of
from arkdev.observe.following_threads import Enter, threads_carry
from arkdev.observe.held_calls import current_held_calls
from arkdev.observe.spans import current_span, own_threads

_OF_A_CALL: tuple[ContextVar[Any], ...] = (
    current_attempt,
    current_held_calls,
    thread_of,
    current_span,
    own_threads,
)


def threads_follow() -> AbstractContextManager[None]:
    """Let the threads that plugins start inside the block belong where they were started."""
    return threads_carry(_belonging)


def _belonging(thread: threading.Thread | None) -> Enter | None:
    carried: list[tuple[ContextVar[Any], Any]]
    if thread is None:
        carried = [(variable, variable.get()) for variable in _OF_A_CALL]
    else:
        attempt, span = attempt_here(), current_span.get()
        if attempt is None and span is None:
            return None
        # a worker that lives on must not keep the attempt alive
        starter = weakref.ref(attempt) if attempt is not None else None
        threads = (*own_threads.get(), thread)
        carried = [(thread_of, starter), (current_span, span), (own_threads, threads)]

    @contextmanager
    def entered() -> Iterator[None]:
        tokens = [(variable, variable.set(value)) for variable, value in carried]
        try:
            yield
        finally:
            for variable, token in tokens:
                variable.reset(token)

    return entered
