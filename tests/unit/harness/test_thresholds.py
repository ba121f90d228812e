"""Thresholds against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from arkdev.harness.statistics import RunStatistics
from arkdev.harness.summary import Summary
from arkdev.harness.thresholds import reward_mean_at_least, success_rate_at_least
from arkdev.runs.records import Attempt, GraderRecord, GroupRecord, TrajectoryRecord, Verdict


def summary_of(*groups: tuple[float | None, ...]) -> Summary:
    statistics = RunStatistics(len(groups[0]) if groups else 1)
    for index, rewards in enumerate(groups):
        names = tuple(f"{index}.{generation}" for generation in range(len(rewards)))
        for generation, name in enumerate(names):
            attempts = (Attempt(Verdict.SUCCESS, 1.0),)
            statistics.add_trajectory(
                TrajectoryRecord(name, index, generation, Verdict.SUCCESS, 1.0, attempts)
            )
        grader = GraderRecord("g", weight=1.0, verdict=Verdict.SUCCESS, rewards=rewards)
        statistics.add_group(GroupRecord(index, Verdict.SUCCESS, names, rewards, (grader,)))
    return statistics.summary()


def test_the_lower_end_of_the_interval_must_reach_the_threshold() -> None:
    """Samples of two: sums of deviations from 0.5 are 1, -1, 0, 0: se = sqrt(4/3 · 2) / 8."""
    summary = summary_of((1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    error = math.sqrt(4 / 3 * 2) / 8
    result = reward_mean_at_least(0.1, summary=summary)
    assert (result.value, result.num_graded) == (0.5, 8)
    assert result.standard_error == pytest.approx(error)
    assert result.lower_end == pytest.approx(0.5 - 1.645 * error)
    assert result.is_met
    assert not reward_mean_at_least(0.2, summary=summary).is_met
    assert reward_mean_at_least(0.2, summary=summary, z=1.0).is_met
    assert reward_mean_at_least(0.5, summary=summary, z=0).is_met


def test_a_success_reaches_the_threshold_of_pass_at_k() -> None:
    summary = summary_of((1.0, 0.99), (1.0, 3.0), (0.0, None))
    assert summary.success is not None
    assert (summary.success.num_successes, summary.success.num_graded) == (3, 5)
    assert summary.success.rate == pytest.approx(0.6)
    assert success_rate_at_least(0.6, summary=summary, z=0).is_met


def test_equal_rewards_leave_no_doubt_and_one_sample_has_no_error() -> None:
    assert reward_mean_at_least(1.0, summary=summary_of((1.0,), (1.0,))).is_met
    result = reward_mean_at_least(0.5, summary=summary_of((1.0, 0.0)))
    assert (result.standard_error, result.is_met) == (None, True)
    assert "one sample: no standard error" in str(result)


def test_rounding_of_sums_does_not_miss_a_threshold() -> None:
    assert reward_mean_at_least(0.3, summary=summary_of((0.1 + 0.2,), (0.3,)), z=0).is_met


def test_nothing_graded_misses_every_threshold() -> None:
    summary = summary_of((None,), (None,))
    for result in (
        reward_mean_at_least(-5.0, summary=summary),
        success_rate_at_least(0.0, summary=summary),
    ):
        assert not result.is_met
        assert "nothing was graded" in str(result)
