"""What to expect of a function under a `Runtime`: waits, tails, cold starts, instances, cost.

Each simulated run draws its service times, and the share of them that is computing, from what is as
likely as what was measured (`ServiceFit.resampled`). A number is that of all runs together, its
range what nine of ten runs had: so it holds both chance from batch to batch and how little was
measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from arkdev.faas_emulator.capacity.fitting import ServiceFit, ServiceModel
from arkdev.faas_emulator.capacity.loads import (
    Batch,
    Outcome,
    Setting,
    Simulated,
    simulate_arrivals,
    simulate_batch,
)
from arkdev.faas_emulator.capacity.measured import mean, quantile
from arkdev.faas_emulator.capacity.sizes import num_cpus
from arkdev.faas_emulator.capacity.slowdown import NO_SLOWDOWN
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import MAX_TIMEOUT_S, Runtime

PLATFORM = "(rollout of the platform)"
"""Stands for the built-in rollout, which is no function: it takes as long as it was measured to."""
_ENOUGH = 10_000
_RANGE = (0.05, 0.95)
_MAX_POINTS = 40
_WARM_UP = 0.1
"""Share of the calls of a Poisson load that is left out: it begins with nothing under way."""
_NUM_ARRIVALS = 1200
_TIMES_OFFERED = 10
"""More places than so many times the calls that are served at once are of no use."""


@dataclass(frozen=True)
class Estimate:
    """A number, and the range that nine of ten simulated runs had."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """One function under one `Runtime`. Seconds."""

    num_calls: int
    """Of one batch, or of one simulated stretch of a Poisson load."""
    queued_mean: Estimate
    queued_p50: Estimate
    queued_p99: Estimate
    total_p50: Estimate
    """From the arrival of a call until its answer."""
    total_p99: Estimate
    waits_too_long: Estimate
    """Share of the calls that wait longer for an instance than the function's timeout."""
    times_out: Estimate
    """Share that runs longer than the timeout."""
    cold: Estimate
    """Share that waits for an instance to start."""
    utilisation: Estimate
    """Share of the places for calls that is taken."""
    max_instances: int
    instances_over_time: tuple[tuple[float, int], ...]
    """(seconds, instances from then on), of one simulated run."""
    instance_s: Estimate
    """Seconds of all instances: of a batch, or of one hour."""


@dataclass(frozen=True)
class JobForecast:
    """All functions together."""

    functions: dict[str, Forecast]
    makespan: Estimate | None
    """From the first rollout of a batch until its last grading; None for a Poisson load."""


@dataclass(frozen=True)
class Arrivals:
    """A Poisson load at each function."""

    rate: float
    """Calls per second."""


Load = Batch | Arrivals


@dataclass(frozen=True)
class Job:
    """The functions that are forecast, and what the load is."""

    fits: Mapping[str, ServiceFit]
    load: Load
    platform_s: tuple[float, ...] = ()
    """Durations of rollouts, where the rollout is no function."""
    seed: int = 0

    @property
    def _skip(self) -> float:
        return _WARM_UP if isinstance(self.load, Arrivals) else 0.0

    def peak(self, name: str) -> int:
        """Return the most calls of a function that a batch has under way or waiting at once."""
        kind, load = self.fits[name].function.kind, self.load
        if isinstance(load, Arrivals):
            return _TIMES_OFFERED * max(1, math.ceil(load.rate * self.fits[name].model.mean_s))
        is_whole = kind in (PluginKind.GROUP_ROLLOUT, PluginKind.GROUP_GRADER)
        all_calls = load.batch_size * (1 if is_whole else load.num_generations)
        if kind.is_rollout:
            return min(load.in_flight, all_calls)
        return min(self.fits[name].function.runtime.request_concurrency, all_calls)

    def simulate(self, runtimes: Mapping[str, Runtime | None], *, num_runs: int) -> list[Outcome]:
        """Simulate functions together; None: no call of it waits or has neighbours.

        Run by run the same is drawn for all settings.
        """
        return [self._simulated(runtimes, number) for number in range(num_runs)]

    def forecast(self, runtimes: Mapping[str, Runtime | None], *, num_runs: int) -> JobForecast:
        """Simulate, and sum up."""
        outcomes = self.simulate(runtimes, num_runs=num_runs)
        timeouts = {name: one.timeout for name, one in runtimes.items() if one is not None}
        return JobForecast(
            {
                name: self.summed_up(outcomes, name, timeout_s=timeout or MAX_TIMEOUT_S)
                for name, timeout in timeouts.items()
            },
            self.makespan(outcomes),
        )

    def summed_up(self, outcomes: Sequence[Outcome], name: str, *, timeout_s: float) -> Forecast:
        """Sum up one function."""
        return _forecast(
            [outcome.functions[name] for outcome in outcomes],
            [self._scale(outcome) for outcome in outcomes],
            timeout_s=timeout_s,
            skip=self._skip,
        )

    def makespan(self, outcomes: Sequence[Outcome]) -> Estimate | None:
        """Sum up how long batches took; None for a Poisson load."""
        if isinstance(self.load, Arrivals):
            return None
        return estimate([outcome.makespan_s for outcome in outcomes])

    def tail(self, outcomes: Sequence[Outcome], name: str) -> float:
        """Return the p99 of calls that `Forecast.total_p99` has, of any setting."""
        tails = []
        for outcome in outcomes:
            totals = outcome.functions[name].total_s
            tails.append(quantile(totals[int(self._skip * len(totals)) :], 0.99))
        return mean(tails)

    def _simulated(self, runtimes: Mapping[str, Runtime | None], number: int) -> Outcome:
        seed = self.seed + number
        settings = {}
        for name, runtime in runtimes.items():
            fit = self.fits[name]
            draws = random.Random(f"{seed}/{name}/fit")
            model = fit.resampled(draws)
            settings[name] = (
                _roomy(fit.function.kind, model)
                if runtime is None
                else _setting(fit, model, runtime)
            )
        if isinstance(self.load, Arrivals):
            ((name, setting),) = settings.items()
            return simulate_arrivals(
                setting, rate=self.load.rate, num_calls=_NUM_ARRIVALS, seed=seed, name=name
            )
        if not any(setting.kind.is_rollout for setting in settings.values()):
            model = ServiceModel(self.platform_s or (0.0,), NO_SLOWDOWN, ())
            settings[PLATFORM] = _roomy(PluginKind.SINGLE_ROLLOUT, model)
        return simulate_batch(settings, self.load, seed=seed)

    def _scale(self, outcome: Outcome) -> float:
        """Return what instance-seconds are multiplied with: to those of a batch, or of an hour."""
        return 1.0 if isinstance(self.load, Batch) else 3600 / outcome.makespan_s


def _setting(fit: ServiceFit, model: ServiceModel, runtime: Runtime) -> Setting:
    slowdown = model.slowdown
    if not slowdown.is_flat:
        slowdown = fit.on_cpus(slowdown, num_cpus(runtime.instance))
    return Setting(
        kind=fit.function.kind,
        model=model,
        runtime=runtime,
        slowdown=slowdown,
        timeout_s=runtime.timeout or MAX_TIMEOUT_S,
    )


def _roomy(kind: PluginKind, model: ServiceModel) -> Setting:
    """Return a setting where no call waits or is held up by others."""
    return Setting(
        kind=kind,
        model=model,
        runtime=Runtime(max_concurrency=100, max_replicas=_ENOUGH),
        slowdown=NO_SLOWDOWN,
        timeout_s=math.inf,
        starts_at_once=True,
    )


def estimate(of_runs: Sequence[float]) -> Estimate:
    """Return the mean of what runs had, and the range of nine of ten."""
    low, high = (quantile(of_runs, share) for share in _RANGE)
    return Estimate(mean(of_runs), low, high)


def _forecast(
    runs: Sequence[Simulated], scales: Sequence[float], *, timeout_s: float, skip: float
) -> Forecast:
    def of_runs(number: Callable[[Sequence[float]], float], what: str) -> Estimate:
        each = [getattr(run, what) for run in runs]
        return estimate([number(values[int(skip * len(values)) :]) for values in each])

    def p50(values: Sequence[float]) -> float:
        return quantile(values, 0.5)

    def p99(values: Sequence[float]) -> float:
        return quantile(values, 0.99)

    return Forecast(
        num_calls=len(runs[0].queued_s),
        queued_mean=of_runs(mean, "queued_s"),
        queued_p50=of_runs(p50, "queued_s"),
        queued_p99=of_runs(p99, "queued_s"),
        total_p50=of_runs(p50, "total_s"),
        total_p99=of_runs(p99, "total_s"),
        waits_too_long=of_runs(lambda s: mean([each > timeout_s for each in s]), "queued_s"),
        times_out=of_runs(mean, "is_timeout"),
        cold=of_runs(mean, "is_cold"),
        utilisation=estimate([run.busy_share for run in runs]),
        max_instances=max(count for run in runs for _, count in run.counts),
        instances_over_time=tuple(_thinned(runs[0].counts)),
        instance_s=estimate(
            [run.instance_s * scale for run, scale in zip(runs, scales, strict=True)]
        ),
    )


def _thinned(counts: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the last count of each moment, and not too many of them."""
    last = [*dict(counts).items()]
    step = -(-len(last) // _MAX_POINTS)
    return last[::step]
