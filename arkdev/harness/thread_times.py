"""How much of a core each thread got, where the system says so (Linux); unknown elsewhere.

The clocks are read without giving the interpreter away. To open a file in ``/proc`` would: among
threads that compute, each such step waits for tens of milliseconds to get it back.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

_HAS_THREAD_CLOCKS = sys.platform == "linux"
_MAX_KEPT = 4096


def thread_cpu_s(native_id: int) -> float | None:
    """Return the CPU seconds of a thread since its start; None when they are unknown."""
    if not _HAS_THREAD_CLOCKS:
        return None
    try:
        # the kernel's number for "CPU time of the thread of this id" (clock_getcpuclockid(3))
        return time.clock_gettime((~native_id << 3) | 0b110)
    except OSError:  # the thread has ended
        return None


@dataclass(frozen=True)
class Reading:
    """What an event loop's thread and its process used, at a time or between two of them."""

    at: float
    """The time; between two readings: the seconds."""
    cpu_s: float | None
    """Of the loop's thread; None is unknown."""
    process_s: float
    """CPU seconds of all threads."""
    collected_s: float
    """Seconds in long garbage collections."""

    def since(self, before: Reading) -> Reading:
        """Return the difference."""
        is_known = self.cpu_s is not None and before.cpu_s is not None
        return Reading(
            at=max(1e-6, self.at - before.at),
            cpu_s=(self.cpu_s or 0.0) - (before.cpu_s or 0.0) if is_known else None,
            process_s=self.process_s - before.process_s,
            collected_s=self.collected_s - before.collected_s,
        )

    def is_busy(self, *, enough: float) -> bool | None:
        """Whether the loop's thread is what computed; None is unknown.

        `enough` is the least share of the time: on a busy machine a thread that computes all the
        time still gets a part of a core only.
        """
        return None if self.cpu_s is None else self._is_most(self.cpu_s, enough)

    def is_busy_beside(self, *, enough: float) -> bool:
        """Whether it was other threads that computed."""
        return self._is_most(self.beside_s, enough)

    @property
    def beside_s(self) -> float:
        """CPU seconds of the other threads, without long garbage collections."""
        return max(0.0, self.process_s - (self.cpu_s or 0.0) - self.collected_s)

    def _is_most(self, cpu_s: float, enough: float) -> bool:
        return cpu_s >= self.process_s / 2 and cpu_s >= enough * self.at

    @property
    def collected_part(self) -> float:
        """Share of the time that long garbage collections took."""
        return min(1.0, self.collected_s / self.at)


class CpuSince:
    """What threads computed since they were asked for last."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, float]] = {}
        """By native id: when it was read, and the thread's CPU seconds then."""

    def read(self, native_id: int, *, now: float, not_before: float) -> float | None:
        """Return the CPU seconds of a thread since it was asked for last.

        None when that was before `not_before`, or never, or is unknown.
        """
        cpu_s = thread_cpu_s(native_id)
        if cpu_s is None:
            return None
        if len(self._last) >= _MAX_KEPT:  # most of them have ended
            self._last.clear()
        at, before_s = self._last.get(native_id, (float("-inf"), 0.0))
        self._last[native_id] = (now, cpu_s)
        return cpu_s - before_s if at >= not_before else None
