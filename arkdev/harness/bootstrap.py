"""Intervals by resampling whole groups: trajectories of one group are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

_T = TypeVar("_T")

LEVEL = 0.9
FEWEST = 5
"""Groups; with fewer an interval would say more than is known."""
_MOST_RESAMPLES, _FEWEST_RESAMPLES = 1000, 200
_BUDGET = 200_000
"""Groups that are drawn in all."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 90 % interval; None where it is not defined or not known."""

    value: float | None
    low: float | None = None
    high: float | None = None


def bootstrapped(
    groups: Sequence[_T],
    statistic: Callable[[Sequence[_T]], float | None],
    *,
    seed: int,
    work: int | None = None,
) -> Estimate:
    """Return a statistic of groups with the percentile interval of a bootstrap over them.

    Resamples for which it is not defined count as larger than all others: an upper end of None
    with a lower one means no bound. `work` is what the statistic costs, in groups that it looks at
    (default: each once); a costly one is computed for fewer resamples.
    """
    value = statistic(groups)
    if value is None or len(groups) < FEWEST:
        return Estimate(value)
    random = Random(seed)
    num = max(_FEWEST_RESAMPLES, min(_MOST_RESAMPLES, _BUDGET // (work or len(groups))))
    drawn = [statistic(random.choices(groups, k=len(groups))) for _ in range(num)]
    known = sorted(one for one in drawn if one is not None)
    tail = (1 - LEVEL) / 2
    low, high = round(tail * (num - 1)), round((1 - tail) * (num - 1))
    return Estimate(
        value,
        low=known[low] if low < len(known) else None,
        high=known[high] if high < len(known) else None,
    )
