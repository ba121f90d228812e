"""How much of a core each thread got, where the system says so (Linux); unknown elsewhere."""

from __future__ import annotations

import os
from dataclasses import dataclass

_MAX_KEPT = 4096


@dataclass(frozen=True)
class Used:
    """Seconds of a thread's life; None is unknown."""

    cpu_s: float | None = None
    queued_s: float | None = None
    """It could have run, but no core was free."""

    def since(self, before: Used) -> Used:
        """Return the difference."""
        return Used(
            _difference(self.cpu_s, before.cpu_s), _difference(self.queued_s, before.queued_s)
        )


class ThreadTimes:
    """Reads the times of this process's threads, 20 µs each."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, float]] = {}
        """By native id: when it was read, and the thread's CPU seconds then."""

    def read(self, native_id: int) -> Used:
        """Return what a thread has used since its start."""
        try:
            file = os.open(f"/proc/self/task/{native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                cpu_ns, queued_ns, _ = os.read(file, 100).split()
            finally:
                os.close(file)
        except (OSError, ValueError):  # another system, or the thread has ended
            return Used()
        return Used(int(cpu_ns) / 1e9, int(queued_ns) / 1e9)

    def since_look(self, native_id: int, *, now: float, not_before: float) -> float | None:
        """Return the CPU seconds of a thread since it was asked for last.

        None when that was before `not_before`, or never, or is unknown.
        """
        cpu_s = self.read(native_id).cpu_s
        if cpu_s is None:
            return None
        if len(self._last) >= _MAX_KEPT:  # most of them have ended
            self._last.clear()
        at, before_s = self._last.get(native_id, (float("-inf"), 0.0))
        self._last[native_id] = (now, cpu_s)
        return cpu_s - before_s if at >= not_before else None


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else max(0.0, after - before)
