"""Correlations of rewards, also of such as graders hardly give."""

import math

import pytest

from arkdev.harness.rank_correlation import pearson, ranks, spearman


def test_equal_values_share_their_rank():
    assert ranks([10.0, 30.0, 10.0, 20.0]) == [1.5, 4.0, 1.5, 3.0]


def test_ranks_come_to_an_end_for_what_is_not_equal_to_itself():
    assert len(ranks([math.nan, 1.0, math.nan])) == 3


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200, 8e307])
def test_a_correlation_is_the_same_in_every_unit(size):
    first = [0.0 * size, 1.0 * size, 2.0 * size, -2.0 * size]
    expected = 4.75 / math.sqrt(8.75 * 2.75)  # worked by hand
    assert pearson(first, [1.0, 2.0, 2.0, 0.0]) == pytest.approx(expected)
    assert pearson(first, first) == pytest.approx(1.0)
    assert spearman(first, [size * value for value in (1.0, 2.0, 3.0, 0.0)]) == 1.0


def test_constant_rewards_have_none():
    assert pearson([1.0, 1.0], [0.0, 1.0]) is None
