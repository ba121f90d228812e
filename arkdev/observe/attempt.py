"""Which attempt the running code belongs to, for logs and meters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


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
