"""The forecast of a job from one of its runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from arkdev.harness.bootstrap import LEVEL
from arkdev.harness.forecast.observed import ObservedRun
from arkdev.harness.forecast.settled import SettledPrompts, settled_prompts
from arkdev.harness.forecast.signal import SignalForecast, SignalSource, forecast_signal
from arkdev.harness.forecast.size import JobSize
from arkdev.harness.forecast.solving import SolvingForecast, forecast_solving
from arkdev.harness.forecast.spending import (
    CostForecast,
    TokenForecast,
    forecast_cost,
    forecast_tokens,
)
from arkdev.harness.forecast.step_time import TimeForecast, forecast_time
from arkdev.job.prices import Prices


@dataclass(frozen=True)
class Forecast:
    """What a run says of the job, at the weights that the run was made with. Nominal intervals of
    `level`: `quantity.Quantity`."""

    level: float
    job: JobSize
    num_groups: int
    """Of the run's training steps."""
    num_prompts: int
    num_generations: int
    """Of the run."""
    signal: SignalForecast | None
    """None: a critic or a teacher gives the signal, not the rewards."""
    solving: SolvingForecast | None
    """None: no group is complete."""
    settled: SettledPrompts | None
    """None as for `signal`, and with one rollout of each prompt."""
    time: TimeForecast
    tokens: TokenForecast
    cost: CostForecast | None
    """None: there is no price for any of it."""
    notes: tuple[str, ...]
    """What the numbers leave out, or rest on."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)


def forecast_job(
    run: ObservedRun,
    size: JobSize,
    *,
    prices: Prices,
    model: str,
    notes: tuple[str, ...] = (),
    seed: int = 0,
) -> Forecast:
    """Return the forecast for a job of that size. Deterministic for a seed."""
    signal = settled = None
    if run.has_rewards_as_signal and run.groups:
        source = SignalSource(run)
        signal = forecast_signal(run, source, size)
        settled = settled_prompts(run, source, size) if run.num_generations > 1 else None
    time = forecast_time(run, size, seed=seed)
    return Forecast(
        level=LEVEL,
        job=size,
        num_groups=len(run.groups),
        num_prompts=len({group.sample_index for group in run.groups}),
        num_generations=run.num_generations,
        signal=signal,
        solving=forecast_solving(run, size),
        settled=settled,
        time=time,
        tokens=forecast_tokens(run, size),
        cost=forecast_cost(run, size, prices=prices, model=model, total_s=time.total),
        notes=notes,
    )
