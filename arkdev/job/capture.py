"""What a job.py hands over while arkdev reads it: the jobs that it makes and the one it submits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


class JobSubmitted(BaseException):
    """Stops a captured job.py at `submit()`; not an `Exception`, so that scripts let it pass."""


@dataclass
class Capture:
    """The jobs made while a job.py runs, in order, and the first one that it submitted."""

    made: list[Any] = field(default_factory=list)
    submitted: Any = None


_capture: ContextVar[Capture | None] = ContextVar("arkdev_job_capture", default=None)


def current_capture() -> Capture | None:
    """Return the capture under way, or None outside of the reading of a job.py."""
    return _capture.get()


@contextmanager
def capturing() -> Iterator[Capture]:
    """Record the jobs made and submitted inside of the block."""
    capture = Capture()
    token = _capture.set(capture)
    try:
        yield capture
    finally:
        _capture.reset(token)
