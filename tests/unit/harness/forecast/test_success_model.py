"""Groups larger than those of a run, from a distribution of success rates."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from arkdev.harness.forecast.profile_ends import Mixture, largest
from arkdev.harness.forecast.quantity import Interval, Quantity
from arkdev.harness.forecast.success_model import SuccessModel


def true_of(found: Quantity) -> Interval:
    assert found.true is not None
    return found.true


@pytest.mark.parametrize(
    "counts",
    [
        {(4, 4): 12},
        {(4, 0): 30},
        {(8, 8): 20, (8, 0): 20},
        {(8, 3): 10, (8, 8): 10},
        {(2, 0): 5, (2, 1): 1},
        {(4, 0): 15, (4, 1): 2, (4, 3): 2, (4, 4): 1},  # its floor is near: badly conditioned
    ],
    ids=str,
)
def test_a_larger_group_can_only_have_more_signal(counts: dict[tuple[int, int], float]) -> None:
    model = SuccessModel(counts)
    ends = [true_of(model.signal(size, num_future=1000)) for size in (8, 16, 32, 64)]
    for smaller, larger in pairwise(ends):
        assert larger.low >= smaller.low - 2e-4
        assert (larger.high or 0) >= (smaller.high or 0) - 2e-4


def test_prompts_that_were_never_solved_may_all_be_hard_rather_than_hopeless() -> None:
    """All 30 prompts may have any one rate whose likelihood is within the limit; so p does.

    With 29 degrees of freedom t = 1.699, so 120 log (1 - p) ≥ -t² / 2 up to p = 0.01195. The grid
    has rates of 0.01 and 0.02, and with weights on both the end is no lower than with one.
    """
    rate = 0.01
    assert 120 * math.log(1 - rate) > -(1.699**2) / 2
    for size in (16, 32):
        high = true_of(SuccessModel({(4, 0): 30}).signal(size, num_future=1000)).high
        assert high is not None
        assert 1 - (1 - rate) ** size < high < 0.35


def test_the_end_is_that_of_a_problem_with_a_known_answer() -> None:
    """Two rates with a cell each: n log w + n log (1 - w) = floor is quadratic in w."""
    mixture = Mixture([10.0, 10.0], [[1.0, 0.0], [0.0, 1.0]])
    floor = 20 * math.log(0.5) - 1.5
    product = math.exp(floor / 10)
    expected = 0.5 + math.sqrt(0.25 - product)
    found = largest([1.0, 0.0], mixture, start=[0.5, 0.5], floor=floor)
    assert found == pytest.approx(expected, abs=2e-4)
    low = -largest([-3.0, 0.0], mixture, start=[0.5, 0.5], floor=floor)
    assert low == pytest.approx(3 * (1 - expected), abs=6e-4)
    assert largest([0.0, 0.0], mixture, start=[0.5, 0.5], floor=floor) == 0.0
