"""The clock as a workspace's own code reads it. Libraries and event loops keep the real one.

`time.time` and its kin are replaced in their module; `datetime.now` and `date.today` in their
types, which C code defines: a subclass in their place would be another type for pydantic, pickle
and whoever imported the real one before.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from arkdev.tape.callers import Workspace


class Clock(Protocol):
    """Where readings go to, or come from."""

    def reading(self, name: str, read: Callable[[], Any]) -> Any:
        """Return a reading of the clock called `name`; `read` reads the real one."""
        ...


_NUMBERS = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
)
_NUMBERS_OF_A_CLOCK = ("clock_gettime", "clock_gettime_ns")
_OF_NOW = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
"""Functions that read the clock when their argument of this position is missing."""
_OF_PARTS = ("asctime", "strftime")
"""Those of which the argument is a ``struct_time``."""


def clock_read_through(clock: Clock, workspace: Workspace) -> ExitStack:
    """Let the workspace's code read `clock` until the returned stack is closed."""
    undo = ExitStack()
    for name in _NUMBERS:
        _replace(undo, time, name, _number(clock, workspace, name))
    for name in _NUMBERS_OF_A_CLOCK:
        if hasattr(time, name):  # not on Windows
            _replace(undo, time, name, _number_of_a_clock(clock, workspace, name))
    for name, position in _OF_NOW.items():
        _replace(undo, time, name, _of_now(clock, workspace, name, position=position))
    _replace(undo, uuid, "uuid1", _uuid1(clock, workspace))
    for cls, name in (
        (datetime.datetime, "now"),
        (datetime.datetime, "utcnow"),
        (datetime.date, "today"),
    ):
        _replace_in_type(undo, cls, name, _moment(clock, workspace, cls, name))
    return undo


def _replace(undo: ExitStack, module: Any, name: str, function: Any) -> None:
    undo.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, function)


def _replace_in_type(undo: ExitStack, cls: type, name: str, function: Any) -> None:
    namespace = gc.get_referents(cls.__dict__)[0]  # the dict behind the read-only view

    def put(value: Any) -> None:
        namespace[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))

    undo.callback(put, namespace[name])
    put(classmethod(function))


def _number(clock: Clock, workspace: Workspace, name: str) -> Callable[[], Any]:
    real = getattr(time, name)

    def read() -> Any:
        if not workspace.is_calling():
            return real()
        return clock.reading(f"time.{name}", real)

    return read


def _number_of_a_clock(clock: Clock, workspace: Workspace, name: str) -> Callable[[int], Any]:
    real = getattr(time, name)

    def read(which: int, /) -> Any:
        if not workspace.is_calling():
            return real(which)
        return clock.reading(f"time.{name}({which})", lambda: real(which))

    return read


def _of_now(clock: Clock, workspace: Workspace, name: str, *, position: int) -> Callable[..., Any]:
    real, real_time, local = getattr(time, name), time.time, time.localtime

    def read(*args: Any) -> Any:
        is_given = len(args) > position and (args[position] is not None or name in _OF_PARTS)
        if is_given or not workspace.is_calling():
            return real(*args)
        seconds = clock.reading("time.time", _seconds)
        return real(*args[:position], local(seconds) if name in _OF_PARTS else seconds)

    def _seconds() -> float:
        return float(real_time())

    return read


def _uuid1(clock: Clock, workspace: Workspace) -> Callable[..., uuid.UUID]:
    real = uuid.uuid1

    def uuid1(*args: Any, **kwargs: Any) -> uuid.UUID:
        if not workspace.is_calling():
            return real(*args, **kwargs)
        return uuid.UUID(clock.reading("uuid.uuid1", lambda: str(real(*args, **kwargs))))

    return uuid1


def _moment(clock: Clock, workspace: Workspace, base: type, name: str) -> Callable[..., Any]:
    real = vars(base)[name]

    def read(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not workspace.is_calling():
            return real.__get__(None, cls)(*args, **kwargs)
        zone = args[0] if args else kwargs.get("tz")

        def now() -> str:
            moment = real.__get__(None, cls)(*args, **kwargs)
            return str(moment.isoformat() if zone is None else moment.timestamp())

        is_moment = issubclass(cls, datetime.datetime)
        kind = "datetime" if is_moment else "date"
        said = clock.reading(f"{kind}.{name}{'' if zone is None else '(tz)'}", now)
        return cls.fromisoformat(said) if zone is None else cls.fromtimestamp(float(said), zone)

    return read
