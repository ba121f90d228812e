"""Whether what a thread or a pool calls was given to it by the workspace's code.

Which attempt they belong to, `arkdev.observe.plugin_threads` says.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import partial

from arkdev.observe.following_threads import Enter, threads_carry
from arkdev.tape.callers import Workspace, calling_for_workspace


def threads_call_for(workspace: Workspace) -> AbstractContextManager[None]:
    """Let the threads that are started inside the block know whose code started them."""

    def carry(_thread: threading.Thread | None) -> Enter:
        return partial(calling_for_workspace, workspace.is_starting())

    return threads_carry(carry)
