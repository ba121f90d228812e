"""How much memory a process has held, for both sides of `train.py`; the standard library alone."""

from __future__ import annotations


def peak_mb() -> float:
    """The most memory that this process has held, libraries included."""
    with open("/proc/self/status", encoding="utf-8") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM"].split()[0]) / 1e3
