"""Which groups teach."""

from __future__ import annotations

import pytest

from arkdev.harness.forecast.signal import AT_LEAST, MODEL, SUBSETS, SignalSource, forecast_signal
from arkdev.harness.forecast.size import JobSize
from tests.unit.harness.forecast.observing import group, left, run, solved


def size(n: int) -> JobSize:
    return JobSize(num_steps=4, batch_size=10, num_generations=n)


def mixed(num: int) -> list[object]:
    return [solved(i, i % 5, 4) for i in range(num)]


def test_a_group_that_left_its_batch_is_not_useful_and_not_without_variance() -> None:
    seen = run([solved(0, 2, 4), solved(1, 4, 4), left(2, 4), left(3, 4), solved(4, 1, 4)], 4)
    found = forecast_signal(seen, SignalSource(seen), size(4))
    assert found.zero_variance.value == pytest.approx(1 / 3)
    assert found.useful_per_1000.value == pytest.approx(400)
    assert found.useful_per_step.value == pytest.approx(4)
    assert found.left == {"discarded": 2}


def test_smaller_groups_are_known_from_subsets_of_the_measured() -> None:
    seen = run([solved(i, 2, 4) for i in range(6)], 4)
    found, how = SignalSource(seen).useful(2, num_future=10)
    assert how == SUBSETS
    assert found.value == pytest.approx(4 / 6)  # 2 of C(4, 2) pairs are equal


def test_larger_groups_have_more_signal_and_a_wider_interval() -> None:
    seen = run(mixed(30), 4)
    source = SignalSource(seen)
    measured, _ = source.useful(4, num_future=30)
    larger, how = source.useful(16, num_future=30)
    assert how == MODEL
    assert larger.value is not None
    assert larger.value > (measured.value or 0)
    assert larger.true is not None
    assert measured.true is not None
    assert (larger.true.high or 0) - larger.true.low > (measured.true.high or 0) - measured.true.low


def test_rewards_of_many_values_give_a_lower_bound_for_larger_groups() -> None:
    seen = run([group(i, [0.1 * i, 0.2, 0.3, 0.4]) for i in range(10)], 4)
    found, how = SignalSource(seen).useful(8, num_future=10)
    assert how == AT_LEAST
    assert found.true is not None
    assert found.true.high is None


def test_own_advantages_decide_and_are_not_known_for_another_size() -> None:
    own = [
        group(i, [1.0] * 4, has_own_advantages=True, num_with_advantage=4 * (i % 2))
        for i in range(10)
    ]
    seen = run(own, 4)
    source = SignalSource(seen)
    assert forecast_signal(seen, source, size(4)).zero_variance.value == 0.5
    assert source.useful(8, num_future=10)[0].value is None


def test_groups_of_one_say_nothing_of_larger_ones() -> None:
    seen = run([group(i, [float(i % 2)]) for i in range(20)], 1)
    source = SignalSource(seen)
    assert source.useful(1, num_future=20)[0].value == 0.5  # its advantage is its reward
    larger, _ = source.useful(8, num_future=20)
    assert larger.value is None
    assert "groups of one" in larger.why


def test_too_few_groups_say_how_many_would_do() -> None:
    seen = run([solved(i, 1, 4) for i in range(3)], 4)
    found = forecast_signal(seen, SignalSource(seen), size(4))
    assert found.useful_per_1000.true is None
    assert found.groups_wanted is not None
    assert 20 < found.groups_wanted < 80
