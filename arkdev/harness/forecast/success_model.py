"""How success rates differ between prompts, so that groups larger than those of a run are forecast.

For rewards of two values. Prompts have rates p drawn from a distribution of which nothing is
assumed: weights w on a grid of rates, 0 and 1 included. A group of n has c successes with the
probability Σ w_j Binomial(c | n, p_j), and what is asked for is linear in the weights, such as the
share of groups of m with a signal, Σ w_j (1 - p_j^m - (1 - p_j)^m).

The estimate is that of the greatest likelihood (Laird 1978), by EM. The interval is that of the
profile likelihood: the smallest and the largest value among weights whose log-likelihood is at
most t² / 2 below the greatest (Murphy and van der Vaart 2000; Student's t for few groups); how they
are found says `arkdev.harness.forecast.profile_ends`. Whether a prompt that failed 8 times can be
solved at all, 8 rollouts do not say: the interval is as wide as that. With a beta distribution
instead of the grid, also beside shares of rates 0 and 1, intervals are narrower and miss the truth
where rates have two peaks (benchmarks/README.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul

from arkdev.harness.forecast.profile_ends import Mixture, largest
from arkdev.harness.forecast.quantiles import t_quantile
from arkdev.harness.forecast.quantity import TAIL, Interval, Quantity

Counts = Mapping[tuple[int, int], float]
"""Groups by (rollouts, successes)."""

_BELOW_HALF = (0.0, 0.003, 0.01, 0.02, 0.035, 0.055, 0.08, 0.11, 0.15, 0.2, 0.26, 0.33, 0.41)
RATES = (*_BELOW_HALF, 0.5, *(1 - p for p in reversed(_BELOW_HALF)))
_NUM_FIT = 300
_LEAST = 1e-9
"""Of a weight: EM could not bring back one of 0."""


class SuccessModel:
    """The distribution of success rates from the groups of a run, each of another prompt."""

    def __init__(self, counts: Counts) -> None:
        by_cell = [[_binomial(n, c, p) for p in RATES] for n, c in counts]
        self._mixture = Mixture(list(counts.values()), by_cell)
        self._num_groups = math.fsum(self._mixture.counts)
        self._t = t_quantile(1 - TAIL, max(1.0, self._num_groups - 1))
        self._signals: dict[int, Quantity] = {}
        self._best = self._fitted()
        self._floor = self._mixture.log_likelihood(self._best) - self._t**2 / 2

    def signal(self, num_generations: int, *, num_future: float) -> Quantity:
        """Return the share of groups of any size in which some are solved and some are not."""
        found = self._signals.get(num_generations)
        if found is None:
            found = self._profiled([_mixed(p, num_generations) for p in RATES])
            self._signals[num_generations] = found
        value, true = found.value, found.true
        assert value is not None and true is not None and true.high is not None
        own = self._t * math.sqrt(value * (1 - value) / num_future)
        job = Interval(
            max(0.0, value - math.hypot(value - true.low, own)),
            min(1.0, value + math.hypot(true.high - value, own)),
        )
        return Quantity(value, true, job)

    def signal_after(self, num_seen: int, num_generations: int, *, is_solved: bool) -> Quantity:
        """Return the chance of a signal in the next group of a prompt that looks settled.

        Each of its `num_seen` rollouts so far solved it, or none of them did.
        """
        settled = [(p if is_solved else 1 - p) ** num_seen for p in RATES]
        share = math.fsum(map(mul, settled, self._best))
        if not share:
            return Quantity(None)
        values = [s * _mixed(p, num_generations) for s, p in zip(settled, RATES, strict=True)]
        return self._profiled([value / share for value in values])

    def _profiled(self, values: Sequence[float]) -> Quantity:
        value = math.fsum(map(mul, values, self._best))
        low = -largest([-v for v in values], self._mixture, start=self._best, floor=self._floor)
        high = largest(values, self._mixture, start=self._best, floor=self._floor)
        return Quantity(value, Interval(max(0.0, min(low, value)), min(1.0, max(high, value))))

    def _fitted(self) -> list[float]:
        """Return the weights of the greatest likelihood, by EM from equal ones on."""
        weights = [1 / len(RATES)] * len(RATES)
        by_rate = list(zip(*self._mixture.by_cell, strict=True))
        for _ in range(_NUM_FIT):
            chances = self._mixture.chances(weights)
            ratios = [n / c for n, c in zip(self._mixture.counts, chances, strict=True)]
            weights = [
                max(weight * sum(map(mul, ratios, rate)), self._num_groups * _LEAST)
                for weight, rate in zip(weights, by_rate, strict=True)
            ]
            total = math.fsum(weights)
            weights = [weight / total for weight in weights]
        return weights


def _mixed(rate: float, num_generations: int) -> float:
    return 1 - rate**num_generations - (1 - rate) ** num_generations


def _binomial(n: int, c: int, rate: float) -> float:
    return math.comb(n, c) * rate**c * (1 - rate) ** (n - c)
