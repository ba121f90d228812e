"""Tasks of the harness, out of the plugins' reach.

A plugin that cleans up with ``for task in asyncio.all_tasks(): task.cancel()`` means its own tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

_Task = TypeVar("_Task", bound="asyncio.Task[object]")


def hidden(task: _Task) -> _Task:
    """Keep `task` out of `asyncio.all_tasks()`; its owner alone can cancel it. Returns it."""
    asyncio._unregister_task(task)
    return task


@contextmanager
def current_task_hidden() -> Iterator[None]:
    """Hide the task that is running for as long as the block lasts."""
    task = asyncio.current_task()
    assert task is not None
    hidden(task)
    try:
        yield
    finally:
        asyncio._register_task(task)
