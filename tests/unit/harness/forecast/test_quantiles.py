"""Quantiles, against values of scipy 1.17.1."""

from __future__ import annotations

import math

import pytest

from arkdev.harness.forecast.quantiles import (
    beta_binomial_pmf,
    beta_binomial_shares,
    beta_quantile,
    t_quantile,
)


@pytest.mark.parametrize(
    ("fraction", "a", "b", "expected"),
    [
        (0.05, 2.0, 2.0, 0.1353503622),
        (0.95, 0.5, 20.5, 0.0904764265),
        (0.05, 8.5, 0.5, 0.7924919583),
        (0.95, 3000.5, 1000.5, 0.7611259045),
    ],
)
def test_beta(fraction: float, a: float, b: float, expected: float) -> None:
    assert beta_quantile(fraction, a, b) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("degrees", "expected"), [(1, 6.3138), (4, 2.1318), (19, 1.7291)])
def test_student(degrees: int, expected: float) -> None:
    assert t_quantile(0.95, degrees) == pytest.approx(expected, abs=1e-4)


def test_a_beta_binomial_adds_up_and_has_its_mean() -> None:
    pmf = beta_binomial_pmf(20, 2.5, 3.5)
    assert math.fsum(pmf) == pytest.approx(1.0)
    assert math.fsum(c * p for c, p in enumerate(pmf)) == pytest.approx(20 * 2.5 / 6)


def test_many_trials_go_over_into_the_continuous_form() -> None:
    counted = beta_binomial_shares(1999, 30, 40, tail=0.05)
    near = beta_binomial_shares(2001, 30, 40, tail=0.05)
    assert counted == pytest.approx(near, abs=1e-3)


def test_few_trials_leave_at_most_the_tail_on_each_side() -> None:
    low, high = beta_binomial_shares(10, 5.5, 5.5, tail=0.05)
    pmf = beta_binomial_pmf(10, 5.5, 5.5)
    assert math.fsum(pmf[: round(low * 10)]) <= 0.05 < math.fsum(pmf[: round(low * 10) + 1])
    assert high == pytest.approx(1 - low)
