"""Tokens and cost."""

from __future__ import annotations

import pytest

from arkdev.harness.forecast.quantity import Quantity
from arkdev.harness.forecast.size import JobSize
from arkdev.harness.forecast.spending import forecast_cost, forecast_tokens
from arkdev.job.prices import ModelPrice, Prices
from tests.unit.harness.forecast.observing import group, run

SIZE = JobSize(num_steps=10, batch_size=4, num_generations=2)
SEEN = run([group(i, [1.0, 0.0]) for i in range(8)], 2)
PRICES = Prices("CNY", 36.0, {"m": ModelPrice(2.0, 8.0)})


def test_tokens_of_a_step_and_of_all() -> None:
    found = forecast_tokens(SEEN, SIZE)
    assert found.prompt_per_step.value == pytest.approx(4 * 200)
    assert found.completion_total.value == pytest.approx(40 * 20)


def test_larger_groups_take_more_tokens() -> None:
    found = forecast_tokens(SEEN, JobSize(10, 4, 8))
    assert found.prompt_per_step.value == pytest.approx(4 * 800)


def test_an_epoch_ends_with_a_smaller_batch() -> None:
    found = forecast_tokens(
        SEEN, JobSize(num_steps=4, batch_size=4, num_generations=2, num_samples=6)
    )
    assert found.prompt_total.value == pytest.approx(2 * 6 * 200)


def test_cost_by_the_table() -> None:
    cost = forecast_cost(SEEN, SIZE, prices=PRICES, model="m", total_s=Quantity(200.0))
    assert cost is not None
    assert cost.tokens_total.value == pytest.approx(40 * (200 * 2 + 20 * 8) / 1e6)
    assert cost.training_total is not None
    assert cost.training_total.value == pytest.approx(2.0)


def test_no_price_is_made_up() -> None:
    other = forecast_cost(SEEN, SIZE, prices=PRICES, model="other", total_s=Quantity(200.0))
    assert other is not None
    assert other.tokens_total.value is None
    assert '[prices.models."other"]' in other.tokens_total.why
    assert forecast_cost(SEEN, SIZE, prices=Prices(), model="m", total_s=Quantity(1.0)) is None


def test_groups_without_token_counts_are_left_out_and_counted() -> None:
    seen = run([*SEEN.groups, group(8, [1.0, 0.0], prompt_tokens=None)], 2)
    found = forecast_tokens(seen, SIZE)
    assert found.num_uncounted == 1
    assert found.prompt_per_step.value == pytest.approx(800)
