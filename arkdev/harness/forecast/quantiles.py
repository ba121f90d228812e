"""Quantiles of the beta, Student's t and beta-binomial distributions, in plain Python.

The core of arkdev has no scipy; these three are all that the intervals of a forecast need.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_PRECISION = 1e-12
_MAX_TERMS = 500
_MAX_STEPS = 100
_MAX_COUNTED = 2000
"""Trials up to which a beta-binomial is added up exactly."""


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b).

    By its continued fraction (DLMF 8.17.22), evaluated after Lentz as modified by Thompson and
    Barnett (1986).
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x) - _log_beta(a, b)
    return math.exp(log_front) * _continued_fraction(x, a, b) / a


def beta_quantile(fraction: float, a: float, b: float) -> float:
    """Return x with I_x(a, b) = `fraction`, by Newton's method inside a bracket that is halved.

    >>> round(beta_quantile(0.05, 2.0, 2.0), 6)
    0.13535
    """
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(_MAX_STEPS):
        over = beta_cdf(x, a, b) - fraction
        low, high = (low, x) if over > 0 else (x, high)
        log_density = (a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - _log_beta(a, b)
        step = over * math.exp(-min(700.0, max(-700.0, log_density)))
        new = x - step
        if not low < new < high:
            new = (low + high) / 2
        if abs(new - x) < _PRECISION * x or not 0.0 < new < 1.0:
            break
        x = new
    return x


@lru_cache(maxsize=256)
def t_quantile(fraction: float, degrees: float) -> float:
    """Return the quantile of Student's t, for a fraction above one half.

    From T² / (T² + degrees), which has the distribution Beta(1/2, degrees/2).

    >>> round(t_quantile(0.95, 19), 4)
    1.7291
    """
    x = beta_quantile(2 * fraction - 1, 0.5, degrees / 2)
    return math.sqrt(degrees * x / (1 - x))


def beta_binomial_shares(
    num_trials: float, a: float, b: float, *, tail: float
) -> tuple[float, float]:
    """Return the two shares of successes that leave at most `tail` beyond each of them.

    Successes of `num_trials` trials whose probability is drawn from Beta(a, b). Of very many
    trials, whose number may also be no whole one, the share is near to a beta distribution with the
    same mean and variance.
    """
    if num_trials < _MAX_COUNTED and float(num_trials).is_integer():
        low, high = _counted(int(num_trials), a, b, tail=tail)
        return low / num_trials, high / num_trials
    shrunk = (a + b + 1) / (1 + (a + b) / num_trials) - 1
    shrunk = max(shrunk, 1e-3)
    mean = a / (a + b)
    first, second = mean * shrunk, (1 - mean) * shrunk
    return beta_quantile(tail, first, second), beta_quantile(1 - tail, first, second)


def beta_binomial_pmf(num_trials: int, a: float, b: float) -> list[float]:
    """Return the probabilities of 0 to `num_trials` successes."""
    start = _log_beta(a, b + num_trials) - _log_beta(a, b)
    logs = [start]
    for c in range(num_trials):
        start += math.log((num_trials - c) * (a + c) / ((c + 1) * (b + num_trials - c - 1)))
        logs.append(start)
    return [math.exp(log) for log in logs]


def _counted(num_trials: int, a: float, b: float, *, tail: float) -> tuple[int, int]:
    pmf = beta_binomial_pmf(num_trials, a, b)
    low, below = 0, pmf[0]
    while below <= tail and low < num_trials:
        low += 1
        below += pmf[low]
    high, above = num_trials, pmf[num_trials]
    while above <= tail and high > 0:
        high -= 1
        above += pmf[high]
    return low, high


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    c = 1.0
    d = 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            step = c * d
            value *= step
        if abs(step - 1.0) < _PRECISION:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
