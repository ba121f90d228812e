"""What a job.py hands over while arkdev reads it: the jobs that it makes and the one it submits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    invalid: list[Any] = field(default_factory=list)
    """`arkdev.job.invalid_objects.InvalidObject` of each object that is no part of a job."""


@dataclass(frozen=True)
class SubmittedJob:
    """What became of a job that a script submitted."""

    id: str
    url: str
    phase: str
    """As the platform's jobs have one: ``Completed`` or ``Failed``."""


Submitter = Callable[[Any], SubmittedJob]
"""Runs a job that was submitted for debugging."""

_submitter: ContextVar[Submitter | None] = ContextVar("arkdev_submitter", default=None)


def current_submitter() -> Submitter | None:
    """Return what runs debug jobs, or None where nothing does."""
    return _submitter.get()


@contextmanager
def submitting(submitter: Submitter) -> Iterator[None]:
    """Let `submitter` run the debug jobs that are submitted inside of the block."""
    token = _submitter.set(submitter)
    try:
        yield
    finally:
        _submitter.reset(token)


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
