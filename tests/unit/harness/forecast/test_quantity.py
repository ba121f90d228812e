"""Shares and means with their two intervals."""

from __future__ import annotations

import pytest

from arkdev.harness.forecast.quantity import Clusters, mean_value, share


def clusters(*values: float) -> Clusters:
    return Clusters(list(values), [1] * len(values))


def test_what_comes_next_is_less_certain_than_the_mean() -> None:
    values = clusters(*[1.0] * 12, *[0.0] * 8)
    found = share(values, num_future=20)
    assert found.true is not None
    assert found.job is not None
    assert found.job.low < found.true.low < 0.6 < (found.true.high or 0) < (found.job.high or 0)


def test_very_many_to_come_are_as_certain_as_the_mean() -> None:
    values = clusters(*range(1, 21))
    found = mean_value(values, num_future=1e9)
    assert found.true is not None
    assert found.job == pytest.approx(found.true) or found.job is not None
    assert found.job.low == pytest.approx(found.true.low, rel=1e-3)


def test_a_share_that_was_never_seen_has_an_upper_end() -> None:
    found = share(clusters(*[0.0] * 20), num_future=20)
    assert found.true is not None
    assert found.true.low == 0.0
    assert 0.05 < (found.true.high or 0) < 0.2


def test_groups_of_one_prompt_count_as_less_than_groups_of_many() -> None:
    apart = share(clusters(*[1.0, 0.0] * 20), num_future=20)
    alike = share(Clusters([4.0, 0.0] * 5, [4] * 10), num_future=20)
    assert apart.value == alike.value == 0.5
    assert apart.true is not None
    assert alike.true is not None
    assert alike.true.low < apart.true.low - 0.05


def test_four_prompts_are_too_few_for_an_interval_and_it_says_so() -> None:
    found = mean_value(clusters(1.0, 2.0, 3.0, 4.0), num_future=8)
    assert (found.value, found.true, found.job) == (2.5, None, None)
    assert "needs 5 prompts, there are 4" in found.why


def test_a_long_upper_tail_widens_the_upper_end() -> None:
    found = mean_value(clusters(*[1.0] * 18, 2.0, 12.0), num_future=20)
    assert found.true is not None
    assert (found.true.high or 0) - 1.6 > 1.6 - found.true.low
