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

    @property
    def number(self) -> int:
        """1 is the first attempt, of the rollout or of the grading."""
        ...

    def note(self, code: str, detail: str = "") -> None:
        """Count a warning for the report."""
        ...

    def fault(
        self, side: str, kind: str, target: str, *, detail: str = "", is_injected: bool = False
    ) -> None:
        """Record something that went wrong (`arkdev.runs.records.FaultRecord` has the words)."""
        ...


in_flight: dict[Attempt, bool] = {}
"""Attempts that have begun and not ended, in this order; True for those on the event loop."""

current_attempt: ContextVar[Attempt | None] = ContextVar("current_attempt", default=None)
"""Set in the task of an attempt; threads started for it inherit it."""
