"""Programs that plugins started: none of them stays behind when the command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 1.0
"""Between the request to end and the end."""

_PROC = Path("/proc")


def descendants() -> set[int]:
    """Return the ids of this process's children, and of theirs, that still run."""
    parents = _parents()
    found: set[int] = set()
    level = {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - found
        found |= level
    return found


def end_descendants(*, but: set[int]) -> int:
    """End all descendants except for `but`, first politely; return how many there were."""
    started = descendants() - but
    _signal(started, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    remaining = started
    while remaining and time.monotonic() < deadline:
        time.sleep(0.02)
        # by id: one whose parent has ended is no descendant any more
        remaining = started & _parents().keys()
    _signal(remaining, signal.SIGKILL)
    return len(started)


def pythons_own() -> set[int]:
    """Return the id of the process in which multiprocessing keeps its books, when there is one.

    It ends with this process, and ended sooner it would leave shared memory behind.
    """
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return set() if pid is None else {pid}


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _parents() -> dict[int, int]:
    """Map each process that has not ended to its parent."""
    if (_PROC / "self" / "stat").is_file():
        rows = [_stat(folder) for folder in _PROC.iterdir() if folder.name.isdigit()]
    else:
        rows = _listed_by_ps()
    return {int(row[0]): int(row[1]) for row in rows if len(row) > 2 and row[2][0] not in "ZX"}


def _stat(folder: Path) -> list[str]:
    """Process id, parent and state."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended in between
        return []
    state, parent = text.rpartition(")")[2].split()[:2]
    return [folder.name, parent, state]


def _listed_by_ps() -> list[list[str]]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=False
    )
    return [line.split() for line in listed.stdout.splitlines()]
