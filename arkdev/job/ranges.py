"""Which values the sampling parameters can have: one table for flags, samples and the job."""

from __future__ import annotations

from collections.abc import Callable

_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "n": (lambda value: value >= 1, "at least 1"),
    "max_new_tokens": (lambda value: value >= 1, "at least 1"),
    "temperature": (lambda value: 0 <= value <= 2, "a number from 0 to 2"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0, at most 1"),
    "test_top_p": (lambda value: 0 < value <= 1, "a number above 0, at most 1"),
}


def range_missed(name: str, value: float) -> str:
    """Name the range of the parameter `name` when `value` (NaN, say) lies outside; else "".

    >>> range_missed("top_p", 7), range_missed("top_k", 7)
    ('a number above 0, at most 1', '')
    """
    if name not in _RANGES:
        return ""
    is_allowed, wanted = _RANGES[name]
    return "" if is_allowed(value) else wanted
