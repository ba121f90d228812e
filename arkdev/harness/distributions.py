"""What a report says of many numbers: mean and its standard error, quantiles, histogram.

Plain Python over lists of floats. Every summary is a frozen dataclass of JSON values.
"""

from __future__ import annotations

import math
import statistics
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

MAX_DISTINCT_BINS = 10
"""Up to so many distinct values get a bar each; more are put into intervals of equal width."""

_MAX_INTERVALS = 12

_SAFE_TO_ADD = 2.0**960
"""So many of these as fit into memory have a sum that is a float."""
_VERY_LARGE_UNIT = 2.0**512
_SAFE_TO_SQUARE = 2.0**448
"""So many squares of these as fit into memory have a sum that is a float."""


@dataclass(frozen=True)
class Bin:
    """A bar of a histogram: values in [low, high), the last bar in [low, high]; or one value."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class RewardSummary:
    """The distribution of one kind of reward over the graded rollouts, each counted once."""

    num_graded: int
    num_ungraded: int
    """Rollouts without a reward; they are not part of any number below."""
    mean: float
    standard_error: float | None
    """Of the mean, clustered by sample (`clustered_standard_error`); None for only one sample."""
    std: float | None
    """Sample standard deviation (n - 1); None for fewer than 2 rewards."""
    min: float
    max: float
    quantiles: dict[str, float]
    """p5, p25, p50, p75, p95."""
    histogram: tuple[Bin, ...]


@dataclass(frozen=True)
class LatencySummary:
    """Durations in seconds."""

    count: int
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True)
class CountSummary:
    """Counts per rollout. Unknown ones are counted as unknown and are in no average."""

    num_known: int
    num_unknown: int
    total: int
    mean: float | None
    p50: float | None
    p95: float | None
    max: int | None


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value; exact when all are equal."""
    if min(values) == max(values):
        return values[0]
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is past the largest float, the mean is not
        return statistics.mean(values)


def unit_of(values: Sequence[float]) -> float:
    """Return what to divide values by whose sums might be past the largest float; else 1.0.

    It is a power of two, so that nothing is rounded.
    """
    largest = max(map(abs, values), default=0.0)
    return 1.0 if largest < _SAFE_TO_ADD else _VERY_LARGE_UNIT


def unit_of_squares(values: Sequence[float]) -> float:
    """Return what to divide values by whose squares might be past the largest float; else 1.0.

    As of `unit_of`; what is divided is below 2 then.
    """
    largest = max(map(abs, values), default=0.0)
    return 1.0 if largest < _SAFE_TO_SQUARE else 2.0 ** (math.frexp(largest)[1] - 1)


def sample_std(values: Sequence[float]) -> float | None:
    """Sample standard deviation, divided by n - 1; None for fewer than two values.

    One past the largest float is the largest float.
    """
    if len(values) < 2:
        return None
    unit = unit_of(values)
    mean = mean_of(values) / unit
    spread = math.hypot(*(value / unit - mean for value in values)) / math.sqrt(len(values) - 1)
    return min(spread * unit, sys.float_info.max)


def clustered_standard_error(
    sums: Sequence[float], *, counts: Sequence[float], mean: float
) -> float | None:
    """Standard error of a mean of rewards whose errors are correlated within a group.

    `sums` and `counts` give the sum and the number of rewards of each of G groups, `mean` the mean
    of all N rewards. With x_gi the i-th reward of group g::

        SE = sqrt( G / (G - 1) * sum over g of ( sum over i of (x_gi - mean) )^2 ) / N

    This is the cluster-robust variance of Liang and Zeger (Biometrika 73, 1986) with the usual
    finite-sample factor G / (G - 1); Miller, "Adding Error Bars to Evals" (2024, arXiv:2411.00640,
    section 2.2) applies it to model evaluations. With one reward in each group it is exactly
    std / sqrt(N). None for fewer than two groups.
    """
    num_groups = len(sums)
    if num_groups < 2:
        return None
    deviations = (total - count * mean for total, count in zip(sums, counts, strict=True))
    return math.hypot(*deviations) * math.sqrt(num_groups / (num_groups - 1)) / sum(counts)


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Quantile of sorted values, interpolated linearly between neighbours (Hyndman-Fan type 7)."""
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:
        return ordered[low]
    return ordered[low] * (high - position) + ordered[high] * (position - low)


def histogram(ordered: Sequence[float]) -> tuple[Bin, ...]:
    """Bars over sorted values: one for each value when they are few, else round intervals."""
    distinct = _few_distinct(ordered)
    if distinct is not None:
        return tuple(Bin(value, value, count) for value, count in distinct.items())
    low, high = ordered[0], ordered[-1]
    width = _round_width(high / _MAX_INTERVALS - low / _MAX_INTERVALS)
    first = math.floor(low / width)
    counts = [0] * max(1, math.ceil(high / width) - first)
    for value in ordered:
        counts[min(int(value / width - first), len(counts) - 1)] += 1
    return tuple(
        Bin(_rounded(first + i, width), _rounded(first + i + 1, width), count)
        for i, count in enumerate(counts)
    )


def _few_distinct(ordered: Sequence[float]) -> dict[float, int] | None:
    counts: dict[float, int] = {}
    for value in ordered:
        counts[value] = counts.get(value, 0) + 1
        if len(counts) > MAX_DISTINCT_BINS:
            return None
    return counts


def _round_width(at_least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 or 10 times a power of ten that is >= `at_least`."""
    power = 10.0 ** math.floor(math.log10(at_least))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= at_least * (1 - 1e-9))


def _rounded(index: int, width: float) -> float:
    return float(f"{index * width:.12g}")


class RewardDistribution:
    """Collects rewards group by group."""

    def __init__(self) -> None:
        self._values = array("d")
        self._counts = array("l")
        self._num_ungraded = 0

    def add_group(self, rewards: Sequence[float], *, num_ungraded: int) -> None:
        """Add the rewards of one sample and count those of its rollouts that have none."""
        self._num_ungraded += num_ungraded
        if rewards:
            self._values.extend(rewards)
            self._counts.append(len(rewards))

    def summary(self) -> RewardSummary | None:
        """None when nothing was graded."""
        if not self._values:
            return None
        ordered = sorted(self._values)
        mean = mean_of(ordered)
        is_constant = ordered[0] == ordered[-1]
        error = self._standard_error(mean, unit=unit_of(ordered))
        return RewardSummary(
            num_graded=len(ordered),
            num_ungraded=self._num_ungraded,
            mean=mean,
            standard_error=0.0 if is_constant and error is not None else error,
            std=sample_std(ordered),
            min=ordered[0],
            max=ordered[-1],
            quantiles={f"p{p}": quantile(ordered, p / 100) for p in (5, 25, 50, 75, 95)},
            histogram=histogram(ordered),
        )

    def _standard_error(self, mean: float, *, unit: float) -> float | None:
        values = iter(self._values)
        sums = [
            math.fsum(value / unit for value in islice(values, count)) for count in self._counts
        ]
        error = clustered_standard_error(sums, counts=self._counts, mean=mean / unit)
        return None if error is None else error * unit


class LatencyDistribution:
    """Collects durations in seconds."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, duration_s: float) -> None:
        """Add one duration."""
        self._values.append(duration_s)

    @property
    def values(self) -> Sequence[float]:
        """All durations, in the order in which they were added."""
        return self._values

    def summary(self) -> LatencySummary | None:
        """None when there is nothing."""
        if not self._values:
            return None
        ordered = sorted(self._values)
        return LatencySummary(
            count=len(ordered),
            p50_s=quantile(ordered, 0.5),
            p90_s=quantile(ordered, 0.9),
            p95_s=quantile(ordered, 0.95),
            p99_s=quantile(ordered, 0.99),
            max_s=ordered[-1],
        )


class CountDistribution:
    """Collects counts, some of them unknown."""

    def __init__(self) -> None:
        self._values = array("q")
        self._num_unknown = 0

    def add(self, count: int | None) -> None:
        """Add one count; None is unknown."""
        if count is None:
            self._num_unknown += 1
        else:
            self._values.append(count)

    def summary(self) -> CountSummary | None:
        """None when there is nothing, not even an unknown."""
        if not self._values and not self._num_unknown:
            return None
        ordered = sorted(self._values)
        return CountSummary(
            num_known=len(ordered),
            num_unknown=self._num_unknown,
            total=sum(ordered),
            mean=mean_of(ordered) if ordered else None,
            p50=quantile(ordered, 0.5) if ordered else None,
            p95=quantile(ordered, 0.95) if ordered else None,
            max=ordered[-1] if ordered else None,
        )
