"""Which attempt the running code belongs to, for logs and meters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol
from weakref import ref


@dataclass(frozen=True)
class AttemptPlace:
    """Which attempt of which plugin, for log lines."""

    trajectory_ids: tuple[str, ...]
    """Several for a grader that sees a group."""
    attempt: int
    """From 0."""
    grader: str | None = None
    """None: a rollout's."""
    step: int | None = None
    """Of the training; None in a test."""

    @property
    def name(self) -> str:
        """``7.1``, ``7.0+7.1 judge``"""
        ids = "+".join(self.trajectory_ids)
        return f"{ids} {self.grader}" if self.grader else ids


class Attempt(Protocol):
    """What an observer needs of an attempt."""

    @property
    def name(self) -> str:
        """The trajectory's id, with the grader's name when it is being graded."""
        ...

    @property
    def number(self) -> int:
        """1 is the first attempt, of the rollout or of the grading."""
        ...

    @property
    def place(self) -> AttemptPlace:
        """Which attempt it is."""
        ...

    def note(self, code: str, detail: str = "") -> None:
        """Count a warning for the report."""
        ...

    def fault(
        self, side: str, kind: str, target: str, *, detail: str = "", is_injected: bool = False
    ) -> object:
        """Record something that went wrong (`arkdev.runs.records.FaultRecord` has the words).

        Returns the record, for `answered_later`.
        """
        ...

    def answered_later(self, fault: object) -> None:
        """Note that the plugin sent the same again after `fault`, and that it was answered."""
        ...


in_flight: dict[Attempt, bool] = {}
"""Attempts that have begun and not ended, in this order; True for those on the event loop."""

current_attempt: ContextVar[Attempt | None] = ContextVar("current_attempt", default=None)
"""Set in the task of an attempt; threads started for it inherit it."""

thread_of: ContextVar[ref[Attempt] | None] = ContextVar("thread_of", default=None)
"""The attempt that started the running thread, where a plugin started it for itself."""


def attempt_here() -> Attempt | None:
    """Return the attempt that the running code belongs to.

    A thread that a plugin started for itself belongs to the attempt that started it only while that
    is under way: one that lives on may serve any other.
    """
    attempt = current_attempt.get()
    starter = thread_of.get() if attempt is None else None
    if starter is not None:
        attempt = starter()
        return attempt if attempt in in_flight else None
    return attempt


def place_here() -> AttemptPlace | None:
    """Return the place of `attempt_here`."""
    attempt = attempt_here()
    return attempt.place if attempt is not None else None


@contextmanager
def no_attempt() -> Iterator[None]:
    """Let the code inside the block belong to no attempt: it is arkdev's own."""
    attempt, thread = current_attempt.set(None), thread_of.set(None)
    try:
        yield
    finally:
        current_attempt.reset(attempt)
        thread_of.reset(thread)
