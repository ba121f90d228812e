"""Which attempt the running code belongs to, for logs and meters."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class Attempt(Protocol):
    """What an observer needs of an attempt."""

    @property
    def name(self) -> str:
        """The trajectory's id, with the grader's name when it is being graded."""
        ...

    def note(self, code: str, detail: str = "") -> None:
        """Count a warning for the report."""
        ...


current_attempt: ContextVar[Attempt | None] = ContextVar("current_attempt", default=None)
"""Set in the task of an attempt; threads started for it inherit it."""
