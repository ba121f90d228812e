import sys

import pytest

from arkdev.harness.distributions import (
    Bin,
    RewardDistribution,
    histogram,
    mean_of,
    quantile,
    sample_std,
)
from arkdev.harness.warnings import WARNINGS, describe_warning


def test_quantiles_interpolate_between_neighbours():
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([7.0], 0.99) == 7.0


def test_standard_deviation_divides_by_n_minus_1():
    assert sample_std([1.0, 3.0]) == pytest.approx(2**0.5)
    assert sample_std([0.1] * 7) == 0.0
    assert sample_std([1.0]) is None
    assert sample_std([1e308, -1e308] * 12) == pytest.approx(1e308 * (24 / 23) ** 0.5)
    assert sample_std([1.7e308, -1.7e308]) == sys.float_info.max


def test_rewards_whose_sum_is_no_float_still_have_a_mean_and_an_error():
    assert mean_of([1e308, 1.5e308]) == 1.25e308
    large, small = RewardDistribution(), RewardDistribution()
    for group in ([1.0, 1.5], [0.5, 1.75], [1.25]):
        large.add_group([reward * 2.0**1023 for reward in group], num_ungraded=0)
        small.add_group(group, num_ungraded=0)
    told, wanted = large.summary(), small.summary()
    assert told is not None and wanted is not None
    for name in ("mean", "standard_error", "std", "min", "max"):
        assert getattr(told, name) == pytest.approx(getattr(wanted, name) * 2.0**1023)


def test_equal_values_are_one_bar():
    assert histogram([0.3, 0.3, 0.3]) == (Bin(0.3, 0.3, 3),)


def test_few_distinct_values_get_a_bar_each():
    assert histogram([0.0, 0.0, 0.5, 1.0]) == (Bin(0, 0, 2), Bin(0.5, 0.5, 1), Bin(1, 1, 1))


def test_many_values_fall_into_round_intervals_that_lose_none():
    values = sorted(index / 97 for index in range(98))
    bars = histogram(values)
    assert [bar.low for bar in bars] == pytest.approx([i / 10 for i in range(10)])
    assert bars[-1].high == 1.0
    assert sum(bar.count for bar in bars) == len(values)


@pytest.mark.parametrize(
    "values",
    [
        [-1e300 + index * 1e298 for index in range(200)],
        [1e-12 * index for index in range(50)],
        [-1.7e308, *range(20), 1.7e308],
        [1000.0 + index * 1e-9 for index in range(50)],
        [-3.0 + index * 0.37 for index in range(40)],
    ],
)
def test_any_range_gives_at_most_a_screenful_of_bars(values):
    ordered = sorted(float(value) for value in values)
    bars = histogram(ordered)
    assert 1 <= len(bars) <= 14
    assert sum(bar.count for bar in bars) == len(ordered)
    assert bars[0].low <= ordered[0] or bars[0].low == pytest.approx(ordered[0])


def test_each_warning_says_what_happened_and_what_to_do():
    for code, text in WARNINGS.items():
        assert code == code.lower() and text.meaning and text.advice
    assert describe_warning("brand_new_code").meaning == "brand new code"
