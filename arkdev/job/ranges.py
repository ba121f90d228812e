"""Which values numbers can have: one table for flags, samples and hyperparameters."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """From `minimum` to `maximum`; `is_open` leaves the minimum itself out."""

    minimum: float | None = None
    maximum: float | None = None
    is_open: bool = False

    def has(self, value: float) -> bool:
        """Tell whether `value` lies inside; NaN never does."""
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        return (low < value if self.is_open else low <= value) and value <= high

    @property
    def wanted(self) -> str:
        """What is expected, in words."""
        if self.maximum is None:
            return f"above {self.minimum:g}" if self.is_open else f"at least {self.minimum:g}"
        if self.minimum is None:
            return f"at most {self.maximum:g}"
        if self.is_open:
            return f"a number above {self.minimum:g}, at most {self.maximum:g}"
        return f"a number from {self.minimum:g} to {self.maximum:g}"

    def __str__(self) -> str:
        low = "(-inf" if self.minimum is None else f"{'(' if self.is_open else '['}{self.minimum:g}"
        return f"{low}, {'inf)' if self.maximum is None else f'{self.maximum:g}]'}"


AT_LEAST_1 = Range(1)
RANGES = {
    "n": AT_LEAST_1,
    "max_new_tokens": AT_LEAST_1,
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, is_open=True),
}
"""Of the sampling parameters, by name."""


def range_missed(name: str, value: float) -> str:
    """Name the range of the sampling parameter `name` when `value` lies outside of it; else "".

    >>> range_missed("top_p", 7), range_missed("top_k", 7)
    ('a number above 0, at most 1', '')
    """
    allowed = RANGES.get(name)
    return "" if allowed is None or allowed.has(value) else allowed.wanted
