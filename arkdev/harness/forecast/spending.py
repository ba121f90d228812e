"""Tokens of a job, and what they cost by the user's price table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from arkdev.harness.forecast.observed import ObservedGroup, ObservedRun, by_prompt
from arkdev.harness.forecast.quantity import Quantity, mean_value
from arkdev.harness.forecast.size import JobSize
from arkdev.job.prices import ModelPrice, Prices

_HOUR_S = 3600
_MILLION = 1e6


@dataclass(frozen=True)
class TokenForecast:
    """Tokens of the policy's model calls, of attempts that counted; not those of graders."""

    prompt_per_step: Quantity
    completion_per_step: Quantity
    prompt_total: Quantity
    completion_total: Quantity
    num_uncounted: int
    """Groups whose tokens the endpoint did not count; they are in no number."""
    judge_calls_per_step: float | None
    """Model calls of graders; None: not known."""


@dataclass(frozen=True)
class CostForecast:
    """By the ``[prices]`` of arkworkspace.toml."""

    currency: str
    model: str
    tokens_per_step: Quantity
    tokens_total: Quantity
    training_total: Quantity | None
    """Hours of rollouts and grading × the hourly price: the time of updates comes on top. None: the
    table has no hourly price."""


def forecast_tokens(run: ObservedRun, size: JobSize) -> TokenForecast:
    """Return the tokens of a job of that size."""

    def of_step(value: Callable[[ObservedGroup], float | None]) -> Quantity:
        return _per_step(run, size, value)

    def of_job(value: Callable[[ObservedGroup], float | None]) -> Quantity:
        return _in_all(run, size, value)

    graded = math.fsum(len(group.rewards) for group in run.groups) / max(1, len(run.groups))
    judged = None if run.judge_calls is None else run.judge_calls * graded * _larger(run, size)
    return TokenForecast(
        prompt_per_step=of_step(lambda g: g.prompt_tokens),
        completion_per_step=of_step(lambda g: g.completion_tokens),
        prompt_total=of_job(lambda g: g.prompt_tokens),
        completion_total=of_job(lambda g: g.completion_tokens),
        num_uncounted=sum(
            g.prompt_tokens is None or g.completion_tokens is None for g in run.groups
        ),
        judge_calls_per_step=None if judged is None else judged * size.groups_per_step,
    )


def forecast_cost(
    run: ObservedRun, size: JobSize, *, prices: Prices, model: str, total_s: Quantity
) -> CostForecast | None:
    """Return the cost; None when the table has no price for any of it."""
    price = prices.models.get(model)
    if price is None and prices.training_per_hour is None:
        return None

    def cost(group: ObservedGroup) -> float | None:
        return None if price is None else _cost(group, price)

    hourly = prices.training_per_hour
    training = None if hourly is None else total_s.times(hourly / _HOUR_S)
    missing = Quantity(None, why=f'no price of {model}: [prices.models."{model}"]')
    return CostForecast(
        currency=prices.currency,
        model=model,
        tokens_per_step=missing if price is None else _per_step(run, size, cost),
        tokens_total=missing if price is None else _in_all(run, size, cost),
        training_total=training,
    )


def _cost(group: ObservedGroup, price: ModelPrice) -> float | None:
    if group.prompt_tokens is None or group.completion_tokens is None:
        return None
    priced = group.prompt_tokens * price.input_per_million
    return (priced + group.completion_tokens * price.output_per_million) / _MILLION


def _larger(run: ObservedRun, size: JobSize) -> float:
    return size.num_generations / run.num_generations


def _per_step(
    run: ObservedRun, size: JobSize, value: Callable[[ObservedGroup], float | None]
) -> Quantity:
    found = mean_value(by_prompt(run.groups, value), num_future=size.groups_per_step)
    return _known(found.times(size.groups_per_step * _larger(run, size)))


def _in_all(
    run: ObservedRun, size: JobSize, value: Callable[[ObservedGroup], float | None]
) -> Quantity:
    if size.num_groups is None:
        return Quantity(None, why="the job gives no num_steps")
    found = mean_value(by_prompt(run.groups, value), num_future=size.num_prompts(run))
    return _known(found.times(size.num_groups * _larger(run, size)))


def _known(quantity: Quantity) -> Quantity:
    if quantity.value is None:
        return Quantity(None, why="the endpoint counts no tokens")
    return quantity
