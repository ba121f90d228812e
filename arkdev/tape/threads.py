"""Which attempt the threads of plugins belong to: the one of the code that started them.

A thread that a pool or a plugin keeps for several rollouts belongs to each call's own attempt in a
pool, and to the first one where the plugin started it by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from arkdev.observe.attempt import current_attempt
from arkdev.observe.following_threads import Enter, threads_carry
from arkdev.tape.callers import Workspace, calling_for_workspace


def threads_follow_attempts(workspace: Workspace) -> AbstractContextManager[None]:
    """Let the threads that plugins start inside the block be in the attempt that started them."""

    def carry(_thread: threading.Thread | None) -> Enter:
        attempt, is_workspaces = current_attempt.get(), workspace.is_starting()

        @contextmanager
        def entered() -> Iterator[None]:
            token = current_attempt.set(attempt)
            try:
                with calling_for_workspace(is_workspaces):
                    yield
            finally:
                current_attempt.reset(token)

        return entered

    return threads_carry(carry)
