"""The cheapest `Runtime` that meets a target, and the settings around it.

For each number of concurrent calls of one instance: the smallest instance that has the memory, and
the fewest replicas that meet the target, found by halving, since more replicas are never worse.
What is cheapest among these is chosen. Functions are sized one after the other, the rollout first;
while one is searched for, those before it are as chosen and those after it have room for all their
calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from arkdev.faas_emulator.capacity.forecast import (
    Arrivals,
    Estimate,
    Forecast,
    Job,
    JobForecast,
)
from arkdev.faas_emulator.capacity.loads import Batch, Outcome
from arkdev.faas_emulator.capacity.memory import MemoryFit
from arkdev.faas_emulator.capacity.sizes import core_hours, memory_mb, num_cpus, smallest
from arkdev.plugin.runtime import MAX_TIMEOUT_S, PluginInstance, Runtime

TAIL = 1.2
"""Without a target the p99 of a function may be so many times that of calls that never wait."""
MAX_ROWS = 12
_BEYOND_MEASURED = 4
"""Settings with more than so many times the calls in an instance than measured are not tried."""


@dataclass(frozen=True)
class Effort:
    """How much is simulated."""

    concurrencies: tuple[int, ...]
    """Calls in an instance that are tried."""
    num_calls: int
    """That are simulated for a setting, in whole batches."""
    least_runs: int


FULL = Effort((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100), 1000, 4)
QUICK = Effort((1, 4, 8, 16, 32, 64, 100), 300, 2)
_MOST_RUNS = 10
_OF_TOGETHER = 20
"""Runs of all functions together, for makespans."""


@dataclass(frozen=True)
class Target:
    """What is to be met; both None: `TAIL`."""

    p99_s: float | None = None
    """Of a call of each function, from its arrival until its answer."""
    makespan_s: float | None = None
    """Of a batch, in nine of ten."""


@dataclass(frozen=True)
class Row:
    """One setting of one function."""

    runtime: Runtime
    forecast: Forecast
    makespan: Estimate | None
    core_hours: Estimate
    """Of a batch, or of an hour of a Poisson load."""
    meets: bool
    is_chosen: bool
    is_today: bool
    marks: tuple[str, ...]
    """What is less certain here: ``beyond measured concurrency``, ..."""


@dataclass(frozen=True)
class FunctionPlan:
    """The answer for one function."""

    name: str
    chosen: Row | None
    """None: no setting meets the target."""
    today: Row
    rows: tuple[Row, ...]
    """The cheapest first."""
    best_p99_s: float
    """Of calls that never wait, alone in their instance."""
    target_p99_s: float | None
    why_none: str


class Planner:
    """Sizes the functions of a job."""

    def __init__(
        self,
        job: Job,
        memory: Mapping[str, MemoryFit | None],
        target: Target,
        *,
        only_size: PluginInstance | None = None,
        effort: Effort = FULL,
    ) -> None:
        self._job = job
        self._memory = memory
        self._target = target
        self._only_size = only_size
        self._effort = effort
        rollouts_first = sorted(
            job.fits, key=lambda name: not job.fits[name].function.kind.is_rollout
        )
        self._names = rollouts_first
        self._seen: dict[str, list[Outcome]] = {}
        self._chosen: dict[str, Runtime | None] = dict.fromkeys(rollouts_first)

    def plan(self) -> dict[str, FunctionPlan]:
        """Return the answer for each function, the rollout's first."""
        plans = {}
        for name in self._names:
            plans[name] = self._plan(name)
            chosen = plans[name].chosen
            if chosen is not None:
                self._chosen[name] = chosen.runtime
        return plans

    def today(self) -> dict[str, Runtime]:
        """Return the settings of the run."""
        return {name: self._today(name) for name in self._names}

    def forecast(self, runtimes: Mapping[str, Runtime | None]) -> JobForecast:
        """Forecast all functions together; None: none of its calls waits."""
        num_runs = min(_OF_TOGETHER, 2 * self._num_runs(len(runtimes)))
        return self._job.forecast(runtimes, num_runs=num_runs)

    @property
    def chosen(self) -> dict[str, Runtime | None]:
        """What was chosen so far; None where nothing was."""
        return dict(self._chosen)

    # One function

    def _plan(self, name: str) -> FunctionPlan:
        best_p99 = self._job.tail(self._simulated(name, None), name)
        target = replace(self._target)
        if target == Target():
            target = Target(p99_s=TAIL * best_p99)
        rows = [self._row(name, each, target) for each in self._candidates(name, target)]
        today = self._row(name, self._today(name), target)
        chosen = min((row for row in rows if row.meets), key=_cost, default=None)
        rows = [replace(row, is_chosen=row is chosen) for row in rows]
        same = [row for row in rows if _same(row.runtime, today.runtime)]
        rows = [replace(row, is_today=row in same) for row in rows]
        if not same:
            rows.append(replace(today, is_today=True))
        return FunctionPlan(
            name=name,
            chosen=next((row for row in rows if row.is_chosen), None),
            today=next(row for row in rows if row.is_today),
            rows=_shown(rows),
            best_p99_s=best_p99,
            target_p99_s=target.p99_s,
            why_none="" if chosen else self._why_none(name, target, best_p99, found=bool(rows)),
        )

    def _why_none(self, name: str, target: Target, best_p99: float, *, found: bool) -> str:
        if not found:
            return "no size of instance has the memory that one call takes"
        if target.p99_s is not None:
            return (
                f"p99 {target.p99_s:.3g} s is not met by any setting: calls that never wait and "
                f"are alone in their instance have {best_p99:.3g} s"
            )
        least = self._job.makespan(self._simulated(name, None))
        assert least is not None
        return (
            f"a makespan of {target.makespan_s:.3g} s is not met by any setting: with room for all "
            f"calls it is {least.high:.3g} s"
        )

    def _candidates(self, name: str, target: Target) -> Iterator[Runtime]:
        """Yield settings, each with the fewest replicas that meet the target, or the most."""
        peak = self._job.peak(name)
        for concurrency in self._concurrencies(name):
            if concurrency > max(peak, 1) or concurrency > self._most_concurrent(name):
                return
            for size in self._sizes(name, concurrency):
                most = -(-peak // concurrency)
                yield self._fewest(name, (size, concurrency), target, most=most)

    def _concurrencies(self, name: str) -> list[int]:
        today = self._today(name).max_concurrency
        return sorted({*self._effort.concurrencies, today})

    def _most_concurrent(self, name: str) -> int:
        fit = self._job.fits[name]
        measured = max(1, fit.function.max_concurrent)
        return min(100, _BEYOND_MEASURED * measured if fit.is_told else measured)

    def _sizes(self, name: str, concurrency: int) -> Iterator[PluginInstance]:
        memory, fit = self._memory[name], self._job.fits[name]
        needed = memory.needed_mb(concurrency) if memory else 0.0
        if self._only_size is not None:
            if memory_mb(self._only_size) >= needed:
                yield self._only_size
        elif memory is None:
            yield fit.function.runtime.instance
        else:
            yield from smallest(needed, with_more_cores=fit.uses_many_cores)

    def _fewest(
        self, name: str, what: tuple[PluginInstance, int], target: Target, *, most: int
    ) -> Runtime:
        def runtime(replicas: int) -> Runtime:
            return self._runtime(name, what, replicas)

        def meets(replicas: int) -> bool:
            return self._meets(name, self._simulated(name, runtime(replicas)), target)

        low, high = 0, self._first_guess(name, what[1], most)
        while not meets(high):
            if high >= most:
                return runtime(most)
            low, high = high, min(most, 2 * high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if meets(middle) else (middle, high)
        return runtime(high)

    def _first_guess(self, name: str, concurrency: int, most: int) -> int:
        load = self._job.load
        if isinstance(load, Batch):
            return 1
        places = load.rate * self._job.fits[name].model.mean_s
        return min(most, max(1, math.ceil(places / concurrency)))

    def _meets(self, name: str, outcomes: list[Outcome], target: Target) -> bool:
        if target.makespan_s is not None:
            makespan = self._job.makespan(outcomes)
            assert makespan is not None
            return makespan.high <= target.makespan_s
        assert target.p99_s is not None
        return self._job.tail(outcomes, name) <= target.p99_s

    def _simulated(self, name: str, runtime: Runtime | None) -> list[Outcome]:
        runtimes = self._beside(name, runtime)
        key = repr(runtimes)
        if key not in self._seen:
            num_runs = self._num_runs(len(runtimes))
            self._seen[key] = self._job.simulate(runtimes, num_runs=num_runs)
        return self._seen[key]

    def _beside(self, name: str, runtime: Runtime | None) -> dict[str, Runtime | None]:
        """Return the settings of all that a simulation for one function needs."""
        if isinstance(self._job.load, Arrivals):
            return {name: runtime}
        if self._target.makespan_s is not None:
            return {**self._chosen, name: runtime}
        rollouts = {
            other: self._chosen[other]
            for other in self._names
            if self._job.fits[other].function.kind.is_rollout
        }
        return {**rollouts, name: runtime}

    def _num_runs(self, num_functions: int) -> int:
        least, load = self._effort.least_runs, self._job.load
        if isinstance(load, Arrivals):
            return least
        wanted = self._effort.num_calls // (load.num_rollouts * num_functions)
        return max(least, min(_MOST_RUNS, wanted))

    def _runtime(self, name: str, what: tuple[PluginInstance, int], replicas: int) -> Runtime:
        return self._today(name).model_copy(
            update={
                "instance": what[0],
                "max_concurrency": what[1],
                "min_replicas": replicas,
                "max_replicas": replicas,
            }
        )

    def _today(self, name: str) -> Runtime:
        function = self._job.fits[name].function
        return function.runtime.model_copy(
            update={
                "min_replicas": function.min_replicas,
                "max_replicas": function.max_replicas,
            }
        )

    def _row(self, name: str, runtime: Runtime, target: Target) -> Row:
        outcomes = self._simulated(name, runtime)
        timeout_s = runtime.timeout or MAX_TIMEOUT_S
        forecast = self._job.summed_up(outcomes, name, timeout_s=timeout_s)
        used = forecast.instance_s
        cost = Estimate(
            *(core_hours(runtime.instance, each) for each in (used.value, used.low, used.high))
        )
        return Row(
            runtime=runtime,
            forecast=forecast,
            makespan=self._job.makespan(outcomes),
            core_hours=cost,
            meets=self._meets(name, outcomes, target),
            is_chosen=False,
            is_today=False,
            marks=tuple(self._marks(name, runtime)),
        )

    def _marks(self, name: str, runtime: Runtime) -> Iterator[str]:
        fit, memory = self._job.fits[name], self._memory[name]
        if runtime.max_concurrency > fit.function.max_concurrent:
            yield "more calls in an instance than were measured"
        if (
            memory is not None
            and not memory.is_told
            and (runtime.max_concurrency > memory.peak_calls)
        ):
            yield "memory is a bound"
        if memory is not None and (
            memory.needed_mb(runtime.max_concurrency) > memory_mb(runtime.instance)
        ):
            yield "memory may not suffice"
        enforced = fit.function.enforced_cpus
        if enforced is not None and enforced < num_cpus(runtime.instance):
            yield f"measured on {enforced:g} cores"


def _cost(row: Row) -> tuple[float, int, int, int]:
    """Return what orders rows: costs that are the same in two digits are equal."""
    runtime = row.runtime
    return (
        float(f"{row.core_hours.value:.2g}"),
        memory_mb(runtime.instance),
        runtime.min_replicas or 0,
        len(row.marks),
    )


def _same(one: Runtime, other: Runtime) -> bool:
    return all(
        getattr(one, field) == getattr(other, field)
        for field in ("instance", "max_concurrency", "min_replicas", "max_replicas")
    )


def _shown(rows: list[Row]) -> tuple[Row, ...]:
    """Return the rows that say most, the cheapest that meet the target first."""
    ordered = sorted(rows, key=lambda row: (not row.meets, _cost(row)))
    kept = [row for row in ordered if row.is_chosen or row.is_today]
    others = [row for row in ordered if row not in kept]
    kept += others[: MAX_ROWS - len(kept)]
    return tuple(row for row in ordered if row in kept)
