"""Whose code is running: the workspace's own, or a library's; and where in it a call is made."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_LIBRARIES = ("site-packages", "dist-packages")
_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep


_OBSERVING = _PACKAGE + "observe" + os.sep + "following_threads.py"
_STARTING = (
    _OBSERVING,
    _PACKAGE + "tape" + os.sep + "threads.py",
    threading.__file__,
    *(futures.__file__ for futures in (concurrent.futures._base, concurrent.futures.thread)),
    *(module.__file__ for module in (asyncio.base_events, asyncio.threads)),
)
_CALLING = (_OBSERVING, threading.__file__, concurrent.futures.thread.__file__)

_thread = threading.local()
"""`is_workspaces`: the workspace's code gave this thread what it calls."""


@contextlib.contextmanager
def calling_for_workspace(is_workspaces: bool) -> Iterator[None]:
    """Say whether the workspace's code gave this thread what it calls inside the block."""
    before = getattr(_thread, "is_workspaces", False)
    _thread.is_workspaces = is_workspaces
    try:
        yield
    finally:
        _thread.is_workspaces = before


def _starts_threads(filename: str) -> bool:
    return filename in _STARTING


@functools.cache
def _calls_what_it_was_given(filename: str) -> bool:
    is_generated = filename.startswith("<")  # a dataclass's methods, what `eval` was given
    is_pydantic = any(f"/{folder}/pydantic/" in filename for folder in _LIBRARIES)
    return is_generated or is_pydantic or filename in _CALLING


class Workspace:
    """The files under `root` that are the user's own code."""

    def __init__(self, root: Path) -> None:
        self._roots = tuple({str(root.absolute()) + os.sep, str(root.resolve()) + os.sep})
        self._known: dict[str, bool] = {}

    def has(self, filename: str) -> bool:
        """Tell whether the code of `filename` is the workspace's own."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = (
                filename.startswith(self._roots)
                and not filename.startswith(_PACKAGE)
                and not any(f"/{folder}/" in filename for folder in _LIBRARIES)
            )
        return known

    def is_calling(self, *, past: tuple[str, ...] = ()) -> bool:
        """Tell whether the caller's caller is the workspace's; files in `past` are stepped over.

        So is what calls a function that it was given: a generated ``__init__``, pydantic, the
        thread of a pool.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename not in past and not _calls_what_it_was_given(filename):
                return self.has(filename)
            frame = frame.f_back
        return getattr(_thread, "is_workspaces", False)

    def is_starting(self) -> bool:
        """Tell whether the workspace's code starts the thread, or submits the call to a pool."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _starts_threads(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and self.has(frame.f_code.co_filename)

    def place(self, loops: Iterable[asyncio.AbstractEventLoop]) -> str:
        """Return file:line of the workspace's code that waits for the running call, or "".

        That is code on this stack, else a task of `loops` that waits, else another thread: the call
        of a raw client comes over HTTP, that of a synchronous plugin from the thread that waits.
        """
        places = (
            *self._on_stack(sys._getframe(1)),
            *self._in_tasks(loops),
            *(place for frame in sys._current_frames().values() for place in self._on_stack(frame)),
        )
        return next(iter(places), "")

    def _on_stack(self, frame: FrameType | None) -> Iterator[str]:
        while frame is not None:
            if self.has(frame.f_code.co_filename):
                yield f"{frame.f_code.co_filename}:{frame.f_lineno}"
                return
            frame = frame.f_back

    def _in_tasks(self, loops: Iterable[asyncio.AbstractEventLoop]) -> Iterator[str]:
        for task in [task for loop in loops for task in asyncio.all_tasks(loop)]:
            place = self._awaited(task.get_coro())
            if place:
                yield place

    def _awaited(self, awaited: Any) -> str:
        """Return the innermost place in a chain of coroutines that await each other."""
        place = ""
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
            if frame is not None and self.has(frame.f_code.co_filename):
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        return place
