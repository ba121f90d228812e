"""How alike two lists of rewards are: Pearson's correlation, and Spearman's of their ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import StatisticsError, correlation


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the correlation; None when one of the lists is constant or shorter than two."""
    try:
        return correlation(_scaled(first), _scaled(second))
    except StatisticsError:
        return None


def _scaled(values: Sequence[float]) -> list[float]:
    """Divide by a power of two near the largest: squares of very large rewards are no floats."""
    _, exponent = math.frexp(max(map(abs, values), default=0.0))
    return [math.ldexp(value, -exponent) for value in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the correlation of the ranks, where equal values share the mean of theirs.

    >>> spearman([1.0, 2.0, 3.0], [1.0, 10.0, 100.0])
    1.0
    """
    return pearson(ranks(first), ranks(second))


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 1.

    >>> ranks([10.0, 30.0, 10.0])
    [1.5, 3.0, 1.5]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            found[index] = (start + 1 + end) / 2
        start = end
    return found
