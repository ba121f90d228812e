"""How success rates differ between prompts, so that groups larger than those of a run are forecast.

For rewards of two values. Prompts have rates p drawn from a distribution of which nothing is
assumed: weights w on a grid of rates, 0 and 1 included. A group of n has c successes with the
probability Σ w_j Binomial(c | n, p_j), and what is asked for is linear in the weights, such as the
share of groups of m with a signal, Σ w_j (1 - p_j^m - (1 - p_j)^m).

The estimate is that of the greatest likelihood (Laird 1978), by EM. The interval is that of the
profile likelihood: the smallest and the largest value among weights whose log-likelihood is at
most t² / 2 below the greatest (Murphy and van der Vaart 2000; Student's t for few groups). Each end
maximises the likelihood plus a multiple of the value, which EM does too. Whether a prompt that
failed 8 times can be solved at all, 8 rollouts do not say: the interval is as wide as that. With a
beta distribution instead of the grid, also beside shares of rates 0 and 1, intervals are narrower
and miss the truth where rates have two peaks (benchmarks/README.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from arkdev.harness.forecast.quantiles import t_quantile
from arkdev.harness.forecast.quantity import TAIL, Interval, Quantity

Counts = Mapping[tuple[int, int], float]
"""Groups by (rollouts, successes)."""

_BELOW_HALF = (0.0, 0.003, 0.01, 0.02, 0.035, 0.055, 0.08, 0.11, 0.15, 0.2, 0.26, 0.33, 0.41)
RATES = (*_BELOW_HALF, 0.5, *(1 - p for p in reversed(_BELOW_HALF)))
_NUM_FIT = 300
_NUM_AGAIN = 40
_NUM_HALVINGS = 10
_WEAKEST, _STRONGEST = 1e-3, 30.0
"""Multiples of the value, per group."""
_LEAST = 1e-9
"""Of a weight: EM could not bring back one of 0."""


@dataclass(frozen=True)
class _Fit:
    weights: Sequence[float]
    log_likelihood: float


class SuccessModel:
    """The distribution of success rates from the groups of a run, each of another prompt."""

    def __init__(self, counts: Counts) -> None:
        self._counts = list(counts.values())
        self._num_groups = math.fsum(self._counts)
        self._t = t_quantile(1 - TAIL, max(1.0, self._num_groups - 1))
        self._signals: dict[int, Quantity] = {}
        by_cell = [[_binomial(n, c, p) for p in RATES] for n, c in counts]
        self._by_cell = by_cell
        self._by_rate = list(zip(*by_cell, strict=True))
        start = [1 / len(RATES)] * len(RATES)
        self._best = self._fitted(start, [0.0] * len(RATES), 0.0, num=_NUM_FIT)

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
        share = math.fsum(map(mul, settled, self._best.weights))
        if not share:
            return Quantity(None)
        values = [s * _mixed(p, num_generations) for s, p in zip(settled, RATES, strict=True)]
        return self._profiled([value / share for value in values])

    def _profiled(self, values: Sequence[float]) -> Quantity:
        value = math.fsum(map(mul, values, self._best.weights))
        low, high = self._end(values, -1.0), self._end(values, 1.0)
        return Quantity(value, Interval(max(0.0, min(low, value)), min(1.0, max(high, value))))

    def _end(self, values: Sequence[float], side: float) -> float:
        """Return the value where the likelihood has fallen far enough on one side."""
        weakest, strongest = math.log(_WEAKEST), math.log(_STRONGEST)
        fit = self._best
        for _ in range(_NUM_HALVINGS):
            middle = (weakest + strongest) / 2
            factor = side * self._num_groups * math.exp(middle)
            fit = self._fitted(fit.weights, values, factor, num=_NUM_AGAIN)
            if self._best.log_likelihood - fit.log_likelihood > self._t**2 / 2:
                strongest = middle
            else:
                weakest = middle
        return math.fsum(map(mul, values, fit.weights))

    def _fitted(
        self, weights: Sequence[float], values: Sequence[float], factor: float, *, num: int
    ) -> _Fit:
        """Maximise the log-likelihood + factor · Σ w · value by EM, from `weights` on."""
        for _ in range(num):
            ratios = [
                number / sum(map(mul, weights, cell))
                for number, cell in zip(self._counts, self._by_cell, strict=True)
            ]
            taken = [
                max(weight * sum(map(mul, ratios, rate)), self._num_groups * _LEAST)
                for weight, rate in zip(weights, self._by_rate, strict=True)
            ]
            weights = _shared(taken, [factor * value for value in values])
        chances = [math.fsum(map(mul, weights, cell)) for cell in self._by_cell]
        return _Fit(
            weights, math.fsum(n * math.log(c) for n, c in zip(self._counts, chances, strict=True))
        )


def _shared(taken: Sequence[float], pulls: Sequence[float]) -> list[float]:
    """Return weights that maximise Σ taken · log w + Σ w · pull and add up to 1.

    They are taken / (m - pull), where m makes the sum right: by Newton's method from the left,
    where the sum is too large and convex, so that it never goes too far.
    """
    most = max(pull + take for take, pull in zip(taken, pulls, strict=True))
    multiplier = most
    for _ in range(60):
        parts = [take / (multiplier - pull) for take, pull in zip(taken, pulls, strict=True)]
        over = math.fsum(parts) - 1
        if over < 1e-9:
            break
        slope = math.fsum(
            part / (multiplier - pull) for part, pull in zip(parts, pulls, strict=True)
        )
        multiplier += over / slope
    total = math.fsum(parts)
    return [part / total for part in parts]


def _mixed(rate: float, num_generations: int) -> float:
    return 1 - rate**num_generations - (1 - rate) ** num_generations


def _binomial(n: int, c: int, rate: float) -> float:
    return math.comb(n, c) * rate**c * (1 - rate) ** (n - c)
