"""The schedule of a step."""

from __future__ import annotations

from random import Random

import pytest

from arkdev.harness.forecast.observed import ObservedGrader
from arkdev.harness.forecast.size import JobSize
from arkdev.harness.forecast.step_time import StepClock, forecast_time
from tests.unit.harness.forecast.observing import group, run

RANDOM = Random(0)


def step_s(batch: list[object], *, slots: int, **changes: object) -> float:
    n = len(batch[0].calls_s)
    size = JobSize(num_steps=1, batch_size=slots, num_generations=n)
    return StepClock(run(batch, n, **changes), size).step_s(batch, random=RANDOM)


def test_as_many_rollouts_at_once_as_the_batch_size() -> None:
    batch = [group(i, [1.0, 0.0]) for i in range(4)]
    assert step_s(batch, slots=8) == 1.0
    assert step_s(batch, slots=4) == 2.0
    assert step_s(batch, slots=3) == 3.0


def test_the_slowest_rollout_ends_the_step() -> None:
    batch = [group(0, [1.0, 0.0]), group(1, [1.0, 0.0], calls_s=(1.0, 9.0))]
    assert step_s(batch, slots=2) == 10.0  # it begins when a slot is free


def test_grading_comes_after_a_group_and_holds_no_slot() -> None:
    batch = [group(i, [1.0], gradings_s=(5.0,)) for i in range(2)]
    assert step_s(batch, slots=1) == 7.0
    one_at_once = (ObservedGrader("one", max_calls=1, is_single=True),)
    assert step_s(batch, slots=1, graders=one_at_once) == 11.0


def test_more_rollouts_of_each_take_longer() -> None:
    seen = run([group(i, [1.0, 0.0], calls_s=(1.0, 2.0)) for i in range(8)], 2)
    times = [forecast_time(seen, JobSize(3, 4, n), seed=0).step.value for n in (2, 8)]
    assert times[1] == pytest.approx(4 * (times[0] or 0), rel=0.3)


def test_the_time_of_all_steps_is_known_better_than_that_of_one() -> None:
    random = Random(1)
    seen = run([group(i, [1.0], calls_s=(random.lognormvariate(0, 1),)) for i in range(40)], 1)
    found = forecast_time(seen, JobSize(100, 4, 1), seed=0)
    assert found.step.job is not None
    assert found.total.job is not None
    assert found.total.value == pytest.approx(100 * (found.step.value or 0))
    wide = ((found.step.job.high or 0) - found.step.job.low) * 100
    assert (found.total.job.high or 0) - found.total.job.low < 0.8 * wide


def test_a_group_rollout_is_one_call_and_another_size_is_not_known() -> None:
    seen = run([group(i, [1.0, 0.0], calls_s=(3.0,)) for i in range(6)], 2, makes_groups=True)
    assert forecast_time(seen, JobSize(2, 6, 2), seed=0).step.value == pytest.approx(3.0)
    assert forecast_time(seen, JobSize(2, 6, 4), seed=0).step.value is None


def test_without_num_steps_the_total_is_not_known() -> None:
    seen = run([group(i, [1.0]) for i in range(6)], 1)
    found = forecast_time(seen, JobSize(None, 6, 1), seed=0)
    assert found.total.value is None
    assert "num_steps" in found.total.why
