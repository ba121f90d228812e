"""Durations as they are typed: ``100``, ``100ms``, ``0.5s``, ``off``."""

from __future__ import annotations

import re

from arkdev.errors import UsageError

_UNITS = {"": 0.001, "ms": 0.001, "s": 1.0}
_SHORTEST_S, _LONGEST_S = 0.05, 60.0


def stall_threshold_s(text: str | None) -> float | None:
    """Read ``--stall-threshold``: seconds, 0 for off, None when it was not given.

    Raises `UsageError` for what is no duration, and for one that the watch cannot measure.
    """
    if text is None:
        return None
    if text.strip().lower() in ("off", "0"):
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|)", text.strip().lower())
    seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise UsageError(
            f"--stall-threshold is {text}; 50 (milliseconds) to 60s is expected, or off",
            hint="write 100, 100ms or 0.5s; shorter ones are the loop's own turns",
        )
    return seconds
