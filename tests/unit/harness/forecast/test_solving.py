"""pass@k, and by difficulty."""

from __future__ import annotations

from random import Random

import pytest

from arkdev.harness.forecast.size import JobSize
from arkdev.harness.forecast.solving import forecast_solving
from tests.unit.harness.forecast.observing import group, left, run, solved

SIZE = JobSize(num_steps=None, batch_size=8, num_generations=8)


def test_pass_at_k_is_the_unbiased_estimator() -> None:
    found = forecast_solving(run([solved(0, 1, 4), solved(1, 0, 4)], 4), SIZE)
    assert found is not None
    assert {one.k: one.chance.value for one in found.pass_at_k} == pytest.approx(
        {1: 0.125, 2: 0.25, 4: 0.5}
    )


def test_luck_is_not_taken_for_an_easy_prompt() -> None:
    """All prompts are solved half of the time: no bin may look easier than another."""
    random = Random(3)
    groups = [solved(i, sum(random.random() < 0.5 for _ in range(8)), 8) for i in range(800)]
    found = forecast_solving(run(groups, 8), SIZE)
    assert found is not None
    assert [(one.low, one.high) for one in found.difficulty] == [(0, 0), (1, 2), (3, 3), (4, 4)]
    for one in found.difficulty:
        assert one.pass_at_k[0].chance.value == pytest.approx(0.5, abs=0.07)
    assert sum(one.num_groups for one in found.difficulty) == pytest.approx(800)


def test_hard_and_easy_prompts_are_told_apart() -> None:
    found = forecast_solving(run([solved(i, 8 * (i % 2), 8) for i in range(20)], 8), SIZE)
    assert found is not None
    hard, easy = found.difficulty
    assert (hard.pass_at_k[-1].chance.value, easy.pass_at_k[0].chance.value) == (0.0, 1.0)


def test_a_bin_of_a_few_scraps_has_no_interval() -> None:
    """Of 96 prompts that are solved 3 times in 10, less than one is expected among the easiest."""
    random = Random(5)
    groups = [solved(i, sum(random.random() < 0.3 for _ in range(8)), 8) for i in range(96)]
    found = forecast_solving(run(groups, 8), SIZE)
    assert found is not None
    easiest = found.difficulty[-1]
    assert easiest.low == 4 and easiest.num_groups < 5
    for one in found.difficulty:
        for passed in one.pass_at_k:
            assert (passed.chance.true is None) == (one.num_groups < 5)
            assert passed.chance.value is not None
    assert "an interval needs 5" in easiest.pass_at_k[0].chance.why


def test_groups_that_miss_a_reward_are_left_out_and_counted() -> None:
    cut = group(2, [1.0, 1.0], num_members=4)
    found = forecast_solving(run([solved(0, 4, 4), left(1, 4), cut], 4), SIZE)
    assert found is not None
    assert (found.num_groups, found.num_incomplete) == (1, 2)


def test_one_rollout_of_each_has_no_difficulty() -> None:
    found = forecast_solving(run([solved(i, i % 2, 1) for i in range(6)], 1), SIZE)
    assert found is not None
    assert found.difficulty == ()
    assert [one.k for one in found.pass_at_k] == [1]
