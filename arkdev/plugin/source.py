"""Places in the user's code, as ``file:line``, for errors and reports."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = str(Path(inspect.__file__).parent) + os.sep
_MAX_WRAPPERS = 100


@functools.lru_cache(maxsize=4096)
def is_users(filename: str) -> bool:
    """Tell the user's files from arkdev's, the standard library's and installed packages'."""
    return not (
        filename.startswith((_PACKAGE, _STANDARD_LIBRARY, "<frozen"))
        or any(f"/{folder}/" in filename for folder in _LIBRARIES)
    )


def is_ours(filename: str) -> bool:
    """True for a file of arkdev's."""
    return filename.startswith(_PACKAGE)


def callers_place() -> str:
    """Return file:line of the innermost frame of the user's code on the stack, or ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def place_of(function: Callable[..., Any]) -> str:
    """Return file:line where `function` (behind its wrappers) is defined, or ""."""
    function = innermost(function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def with_inner(function: Any) -> Iterator[Any]:
    """Yield `function`, then what its `functools.wraps` wrappers and `functools.partial` hold."""
    for _ in range(_MAX_WRAPPERS):  # some objects, as mocks, have an attribute of any name
        yield function
        function = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if not callable(function):
            return


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind `functools.wraps` wrappers and `functools.partial`."""
    return list(with_inner(function))[-1]  # type: ignore[no-any-return]


class RaisedElsewhere(Exception):
    """What a plugin raised in an instance of its own; its class may not exist in this process.

    `text` is its ``Type: text``, `where` its place in the user's code, `traceback` as
    `users_traceback` formats it.
    """

    def __init__(self, text: str, *, where: str = "", traceback: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.where = where
        self.traceback = traceback


def place_of_exception(error: BaseException) -> str:
    """Return file:line of the last frame in the user's code that `error` passed, or ""."""
    if isinstance(error, RaisedElsewhere):
        return error.where
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    place = ""
    tb: TracebackType | None = error.__traceback__
    while tb is not None:
        filename = tb.tb_frame.f_code.co_filename
        if is_users(filename):
            place = f"{filename}:{tb.tb_lineno}"
        tb = tb.tb_next
    return place


def text_of_exception(error: BaseException) -> str:
    """Return ``Type: text``, also for an exception whose own text cannot be made."""
    if isinstance(error, RaisedElsewhere):
        return error.text
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 (a plugin's exception class may do anything)
        text = f"(its text cannot be made: {type(broken).__name__})"
    return f"{type(error).__name__}: {text}"


def users_traceback(error: BaseException) -> str:
    """Format `error`, with what led to it, as Python does, but without arkdev's own frames.

    An error that passed no other frame keeps its frames, unless it is in the user's syntax.
    """
    if isinstance(error, RaisedElsewhere):
        return error.traceback
    shown = traceback.TracebackException.from_exception(error)
    _leave_out_ours(shown)
    return "".join(shown.format())


def _leave_out_ours(shown: traceback.TracebackException) -> None:
    frames = [frame for frame in shown.stack if not frame.filename.startswith(_PACKAGE)]
    if frames:
        shown.stack[:] = frames
    elif shown.exc_type is not None and issubclass(shown.exc_type, SyntaxError):
        shown.stack = None  # type: ignore[assignment]  # then there is no header either
    groups = getattr(shown, "exceptions", None) or ()
    for inner in (shown.__cause__, shown.__context__, *groups):
        if inner is not None:
            _leave_out_ours(inner)
