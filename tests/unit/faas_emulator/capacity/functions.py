"""Functions whose calls are simulated, measured as a run measures real ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from arkdev.faas_emulator.capacity.fitting import ServiceModel
from arkdev.faas_emulator.capacity.loads import Setting
from arkdev.faas_emulator.capacity.measured import (
    MeasuredCall,
    MeasuredFunction,
    MeasuredInstance,
)
from arkdev.faas_emulator.capacity.simulation import SimulatedCall, VirtualPool, VirtualTime
from arkdev.faas_emulator.capacity.slowdown import Slowdown
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

START_S = 0.5


def exponential(count: int = 2000) -> tuple[float, ...]:
    """Service times of mean 1, spread as an exponential distribution is."""
    works = [-math.log(1 - (place + 0.5) / count) for place in range(count)]
    return tuple(work * count / sum(works) for work in works)


def fixed(max_concurrency: int, replicas: int, **more: object) -> Runtime:
    return Runtime(
        max_concurrency=max_concurrency, min_replicas=replicas, max_replicas=replicas, **more
    )


def setting(
    works: Sequence[float],
    runtime: Runtime,
    *,
    cpu_share: float = 0.0,
    kind: PluginKind = PluginKind.SINGLE_ROLLOUT,
    retry_share: float = 0.0,
) -> Setting:
    slowdown = Slowdown(cpu_share)
    model = ServiceModel(tuple(works), slowdown, (START_S,), retry_share)
    return Setting(kind, model, runtime, slowdown, runtime.timeout or 900.0)


def pool_of(runtime: Runtime, *, cpu_share: float = 0.0) -> VirtualPool:
    """A pool with nothing started."""
    starts = iter(lambda: START_S, None)
    return VirtualPool(
        runtime, Slowdown(cpu_share), VirtualTime(), starts, runtime.timeout or 900.0
    )


def run_calls(pool: VirtualPool, arrivals: Sequence[tuple[float, float]]) -> list[SimulatedCall]:
    """Let calls (when, work) arrive; return them in this order."""
    calls = [SimulatedCall(work, lambda: None) for _, work in arrivals]
    for (at, _), call in zip(arrivals, calls, strict=True):
        pool.time.call_at(at, lambda call=call: pool.invoke(call))
    pool.time.run(is_over=lambda: len(pool.calls) == len(calls))
    return calls


def measured(
    *,
    cpu_share: float,
    waves: Sequence[int],
    knows_cpu: bool = True,
    kind: PluginKind = PluginKind.SINGLE_ROLLOUT,
    name: str = "answer",
    peaks: Sequence[tuple[int, float]] = (),
) -> MeasuredFunction:
    """A function of which waves of calls came to one instance, one after the other."""
    draws = random.Random(7)
    pool = pool_of(fixed(100, 1), cpu_share=cpu_share)
    pool.warm(1)
    at, arrivals = 0.0, []
    for wave in waves:
        arrivals += [(at, draws.uniform(5.0, 15.0)) for _ in range(wave)]
        at += 10_000.0
    calls = run_calls(pool, arrivals)
    cpu_s = START_S + cpu_share * sum(call.work_s for call in calls)
    taken = [MeasuredCall(call.taken, call.ended - call.taken, "i0") for call in calls]
    instances = [MeasuredInstance("i0", START_S, 100.0, cpu_s if knows_cpu else None)]
    for number, (count, peak_mb) in enumerate(peaks, 1):
        taken += [MeasuredCall(0.0, 10.0, f"i{number}") for _ in range(count)]
        instances.append(MeasuredInstance(f"i{number}", START_S, peak_mb, None))
    return MeasuredFunction(
        name=name,
        kind=kind,
        runtime=fixed(max(waves), 1),
        min_replicas=1,
        max_replicas=1,
        timeout_s=900.0,
        enforced_cpus=None,
        calls=tuple(taken),
        instances=tuple(instances),
    )
