"""What the processes of an instance use, as Linux tells it: memory, CPU time.

A process counts with its descendants; one that was left by its parent (a daemon) is nobody's
descendant and does not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CAN_MEASURE = sys.platform == "linux"
_PROC = Path("/proc")
_MIB = 2**20
_FIND_EVERY = 3
"""Of so many measurements one looks for descendants: there is a file for each thread to read."""


@dataclass(frozen=True)
class GroupUsage:
    """What a process and its descendants use."""

    memory_mb: float
    """Resident, summed up: pages that they share count for each of them."""
    peak_mb: float
    """The most that the process itself ever used."""
    cpu_s: float
    """Of the living, and of those of them that ended and were waited for."""


class GroupMeter:
    """Measures a process and its descendants, whom it looks for now and then."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._members = [pid]
        self._num_measured = 0

    def usage(self) -> GroupUsage | None:
        """Return what they use; None when the process has ended, or cannot be measured here."""
        peak_mb = _peak_mb(self._pid)
        if not CAN_MEASURE or peak_mb is None:
            return None
        if self._num_measured % _FIND_EVERY == 0:
            self._members = list(_with_descendants(self._pid))
        self._num_measured += 1
        memory_mb = cpu_s = 0.0
        for member in self._members:
            with suppress(OSError, ValueError, IndexError):
                memory_mb += _memory_mb(member)
                cpu_s += _cpu_s(member)
        return GroupUsage(memory_mb, peak_mb, cpu_s)


def _with_descendants(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        member = waiting.pop()
        yield member
        with suppress(OSError):
            for task in (_PROC / str(member) / "task").iterdir():
                with suppress(OSError):
                    waiting += map(int, (task / "children").read_text(encoding="ascii").split())


def _memory_mb(pid: int) -> float:
    pages = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / _MIB


def _peak_mb(pid: int) -> float | None:
    try:
        status = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None  # it is a zombie


def _cpu_s(pid: int) -> float:
    stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
