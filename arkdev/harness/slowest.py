"""The longest calls of a tool or a grader, with the trajectories that waited for them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

MAX_KEPT = 3


@dataclass(frozen=True)
class SlowCall:
    """One of the longest calls of a tool or a grader, and the trajectory that waited for it."""

    trajectory_id: str
    duration_s: float


class SlowestCalls:
    """Keeps the longest calls, at most three."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, str]] = []

    def add(self, trajectory_id: str, duration_s: float) -> None:
        """Add one call."""
        if len(self._kept) < MAX_KEPT:
            heapq.heappush(self._kept, (duration_s, trajectory_id))
        elif duration_s > self._kept[0][0]:
            heapq.heapreplace(self._kept, (duration_s, trajectory_id))

    def summary(self) -> tuple[SlowCall, ...]:
        """Return the calls, the longest first."""
        longest_first = sorted(self._kept, reverse=True)
        return tuple(SlowCall(trajectory_id, seconds) for seconds, trajectory_id in longest_first)
