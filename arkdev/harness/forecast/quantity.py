"""A number of a forecast with its two intervals, and how they are made for shares and for means.

Nominal 90 %, of two kinds, because they answer two questions:

* *true* (a confidence interval): what endless such runs would give on the average;
* *job* (a prediction interval): what one such job, or step, itself will give. Wider: chance comes
  in twice, in what was measured and in what is to come.

The unit is the prompt: rollouts of one prompt, and groups of one prompt in several epochs, are not
independent. So each number is made from a (sum, count) pair for every prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from arkdev.harness.bootstrap import FEWEST, LEVEL
from arkdev.harness.distributions import clustered_standard_error
from arkdev.harness.forecast.quantiles import beta_binomial_shares, beta_quantile, t_quantile
from arkdev.harness.thresholds import Z

TAIL = (1 - LEVEL) / 2
_ALL_EQUAL = 1e-12


@dataclass(frozen=True)
class Interval:
    """Both ends; `high` None: no bound is known."""

    low: float
    high: float | None


@dataclass(frozen=True)
class Quantity:
    """A number with its intervals; None is not known. `why` says why, or what it leaves out."""

    value: float | None
    true: Interval | None = None
    job: Interval | None = None
    why: str = ""

    def times(self, factor: float) -> Quantity:
        """Return the same in other units, or of so many groups."""
        value = None if self.value is None else self.value * factor
        return Quantity(value, _times(self.true, factor), _times(self.job, factor), self.why)


@dataclass(frozen=True)
class Clusters:
    """What was measured of each prompt: the sum of its values, and how many they are."""

    sums: Sequence[float]
    counts: Sequence[float]

    @property
    def num_prompts(self) -> float:
        """Prompts, where their weights differ those that the same precision would take.

        (Σw)² / Σw² (Kish 1965).
        """
        squares = math.fsum(count * count for count in self.counts)
        return math.fsum(self.counts) ** 2 / squares if squares else 0.0

    @property
    def mean(self) -> float | None:
        """Of all values."""
        total = math.fsum(self.counts)
        return math.fsum(self.sums) / total if total else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean, clustered by prompt."""
        mean = self.mean
        if mean is None:
            return None
        kept = [(s, c) for s, c in zip(self.sums, self.counts, strict=True) if c]
        sums, counts = [s for s, _ in kept], [c for _, c in kept]
        return clustered_standard_error(sums, counts=counts, mean=mean)

    @property
    def skewness(self) -> float:
        """Of what each prompt has above or below the mean; 0 when all are equal."""
        mean = self.mean or 0.0
        rest = [s - c * mean for s, c in zip(self.sums, self.counts, strict=True) if c]
        variance = math.fsum(r * r for r in rest) / len(rest) if rest else 0.0
        if variance < _ALL_EQUAL * mean * mean or len(rest) < 3:
            return 0.0
        third = math.fsum(r**3 for r in rest) / len(rest)
        return third / math.sqrt(variance) ** 3 * len(rest) / (len(rest) - 2)


def too_few(num_prompts: float) -> str:
    """Say how many prompts an interval needs; "" when there are enough."""
    if num_prompts >= FEWEST:
        return ""
    return f"an interval needs {FEWEST} prompts, there are {num_prompts:.0f}"


def share(clusters: Clusters, *, num_future: float, is_binary: bool = True) -> Quantity:
    """Return the mean of values in 0..1, which are 0 or 1 each when `is_binary`.

    The true share by the intervals of Wilson and of Jeffreys, the wider one at each end (Brown, Cai
    and DasGupta, "Interval Estimation for a Binomial Proportion", 2001): with 20 groups either
    alone covers fewer than 85 % at some shares. The number of values is the effective one: divided
    by the design effect of the prompts (Korn and Graubard 1998, also for the factor with Student's
    t). The share of `num_future` prompts to come by the beta-binomial that follows from Jeffreys',
    and at least as wide as the interval of the true one.
    """
    mean, error = clusters.mean, clusters.standard_error
    problem = too_few(clusters.num_prompts)
    if mean is None or error is None or problem:
        return Quantity(mean, why=problem)
    num_prompts = clusters.num_prompts
    number = _effective(clusters, mean, error)
    a, b = mean * number + 0.5, (1 - mean) * number + 0.5
    wilson = _wilson(mean, number)
    low = 0.0 if mean < _ALL_EQUAL else min(wilson.low, beta_quantile(TAIL, a, b))
    high = 1.0 if mean > 1 - _ALL_EQUAL else beta_quantile(1 - TAIL, a, b)
    high = max(high, wilson.high or 0.0)
    trials = num_future if is_binary else num_future * number / num_prompts
    trials = max(1.0, trials if is_binary else round(trials))
    first, last = beta_binomial_shares(trials, a, b, tail=TAIL)
    return Quantity(mean, Interval(low, high), Interval(min(first, low), max(last, high)))


def _wilson(mean: float, number: float) -> Interval:
    centre = (mean + Z * Z / 2 / number) / (1 + Z * Z / number)
    half = Z / (1 + Z * Z / number)
    half *= math.sqrt(mean * (1 - mean) / number + Z * Z / 4 / number**2)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def _effective(clusters: Clusters, mean: float, error: float) -> float:
    """Return how many independent values of 0 and 1 would tell as much about the mean."""
    number, num_prompts = math.fsum(clusters.counts), clusters.num_prompts
    independent = mean * (1 - mean) / number
    if independent < _ALL_EQUAL or error < _ALL_EQUAL:
        return min(number, num_prompts)
    design_effect = error**2 * (num_prompts - 1) / num_prompts / independent
    if math.isclose(design_effect, 1.0):
        return number
    degrees = num_prompts - 1
    return float(number / design_effect * (Z / t_quantile(1 - TAIL, degrees)) ** 2)


def mean_value(clusters: Clusters, *, num_future: float) -> Quantity:
    """Return the mean of values that are not below 0, such as the tokens of a group.

    The true mean by Student's t with the standard error clustered by prompt, corrected for skewness
    by Hall's transformation ("On the Removal of Skewness by Transformation", 1992): tokens and
    durations have a long upper tail, and few groups seldom show it. The mean of `num_future`
    prompts to come has their own chance added in quadrature on each side (Zou and Donner 2008).
    """
    mean, error = clusters.mean, clusters.standard_error
    problem = too_few(clusters.num_prompts)
    if mean is None or error is None or problem:
        return Quantity(mean, why=problem)
    t = t_quantile(1 - TAIL, clusters.num_prompts - 1)
    below, above = (error * distance for distance in skewed_distances(clusters))
    own = t * error * math.sqrt(clusters.num_prompts / num_future)
    return Quantity(
        mean,
        Interval(max(0.0, mean - below), mean + above),
        Interval(max(0.0, mean - math.hypot(below, own)), mean + math.hypot(above, own)),
    )


def skewed_distances(clusters: Clusters) -> tuple[float, float]:
    """Return how many standard errors below and above the mean the true one may be."""
    t = t_quantile(1 - TAIL, clusters.num_prompts - 1)
    skew = clusters.skewness / math.sqrt(clusters.num_prompts)
    return _unskewed(t, skew), -_unskewed(-t, skew)


def _unskewed(t: float, skew: float) -> float:
    """Return what Hall's transformation takes to `t`; `skew` is divided by the root of n."""
    if abs(skew) < _ALL_EQUAL:
        return t
    return 3 / skew * (math.cbrt(1 + skew * (t - skew / 6)) - 1)


def _times(interval: Interval | None, factor: float) -> Interval | None:
    if interval is None:
        return None
    high = None if interval.high is None else interval.high * factor
    return Interval(interval.low * factor, high)
