"""How long a call of a function would take alone, and what it computes of that: fitted to a run.

An instance with k calls gives each of them 1 / slowdown(k) seconds of progress a second
(`slowdown.py`), so that what a call took alone is the integral of that over the time in which it
ran: the same rule that the simulation goes by, backwards. One thing is unknown, the share f of a
call that is computing. Two kinds of evidence tell it:

* CPU seconds of the instances, less what starting them took: a range, since of a start only how
  long it lasted is known;
* how service times rise with company: what a call takes alone does not depend on the calls that it
  finds in its instance, so that the right f leaves no rank correlation between the two. (The mean
  number of calls beside it would not do: long calls outlive the crowd.) Its range is that of the f
  whose correlation may be chance, at 95 %.

The best f of both is taken. Where service times say another thing than CPU seconds (calls wait for
a lock or a small pool of connections, or other work has this machine's cores), they are believed.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from arkdev.faas_emulator.capacity.measured import (
    Levels,
    MeasuredCall,
    MeasuredFunction,
    mean,
    quantile,
)
from arkdev.faas_emulator.capacity.slowdown import NO_SLOWDOWN, Slowdown

MAX_CALLS = 10_000
"""So many calls of a function, the last, are fitted."""
_SHARES = tuple(step / 40 for step in range(41))
_BY_CHANCE = 1.96
"""Standard errors of a correlation that is none, at 95 %."""
_TOGETHER = 0.02
"""Calls that come within so much of a median service time come together."""
_WIDEST_TOLD = 0.5
"""A range of f that is wider than this tells nothing."""
_USES_CORES_FROM = 1.1
"""An instance that computed so many seconds a second while it had calls uses more than one core."""


@dataclass(frozen=True)
class ServiceModel:
    """One call: `works_s` are seconds that calls take alone, as good as drawn at random."""

    works_s: tuple[float, ...]
    slowdown: Slowdown
    starts_s: tuple[float, ...]
    """From the order of an instance until it is ready."""
    retry_share: float = 0.0

    @property
    def mean_s(self) -> float:
        """Mean time that a call takes alone."""
        return mean(self.works_s)

    @property
    def squared_variation(self) -> float:
        """Variance of `works_s` through the square of their mean."""
        middle = self.mean_s
        return mean([(work - middle) ** 2 for work in self.works_s]) / middle**2 if middle else 0.0


@dataclass(frozen=True)
class ServiceFit:
    """What a run says of one call. `model` is the best guess, `resampled` one of the likely."""

    function: MeasuredFunction
    calls: tuple[MeasuredCall, ...]
    cpu_share: float
    cpu_share_range: tuple[float, float]
    num_cores: float
    """That the calls of one instance can use at once."""
    uses_many_cores: bool
    is_told: bool
    """False: nothing says how calls hold each other up, and they are taken not to."""
    evidence: str
    """For people: where `cpu_share` comes from."""

    @property
    def model(self) -> ServiceModel:
        """The best guess."""
        return self._model(self.cpu_share, self.calls)

    def resampled(self, draws: random.Random) -> ServiceModel:
        """Return a model of calls and a share that are as likely (bootstrap)."""
        share = draws.triangular(*self.cpu_share_range, self.cpu_share)
        return self._model(share, draws.choices(self.calls, k=len(self.calls)))

    def on_cpus(self, slowdown: Slowdown, num_cpus: float) -> Slowdown:
        """Return a slow-down of this fit in an instance with other cores."""
        return Slowdown(slowdown.cpu_share, num_cpus) if self.uses_many_cores else slowdown

    def _model(self, share: float, calls: Sequence[MeasuredCall]) -> ServiceModel:
        slowdown = Slowdown(share, self.num_cores) if self.is_told else NO_SLOWDOWN
        works = works_alone(calls, self.function.levels, slowdown)
        starts = tuple(one.ready_s for one in self.function.instances)
        return ServiceModel(tuple(works), slowdown, starts, self.function.retry_share)


def works_alone(
    calls: Sequence[MeasuredCall], levels: dict[str, Levels], slowdown: Slowdown
) -> list[float]:
    """Return the seconds that each call would have taken alone in its instance."""
    if slowdown.is_flat:
        return [call.service_s for call in calls]
    progress = {name: _progress(level, slowdown) for name, level in levels.items()}
    works = []
    for call in calls:
        made = progress[call.instance_id]
        works.append(made(call.ended_s) - made(call.begun_s))
    return works


def _progress(levels: Levels, slowdown: Slowdown) -> Callable[[float], float]:
    """Return the progress that a call makes in an instance until a time."""
    times, made = levels.times, [0.0]
    for (since, until), count in zip(pairwise(times), levels.counts, strict=False):
        made.append(made[-1] + (until - since) / slowdown.at(count))

    def made_until(at: float) -> float:
        place = bisect_right(times, at) - 1
        return made[place] + (at - times[place]) / slowdown.at(levels.counts[place])

    return made_until


def fit_service(function: MeasuredFunction) -> ServiceFit:
    """Fit the calls of a function. Raises `ValueError` without any."""
    calls = function.calls[-MAX_CALLS:]
    if not calls:
        raise ValueError(f"no call of {function.name} was measured")
    uses_many = _cores_used(function) >= _USES_CORES_FROM
    asked = float(function.runtime.instance.value[3:].partition("mem")[0])
    cores = (function.enforced_cpus or asked) if uses_many else 1.0
    company = _ranks(_company(calls, function.levels))
    errors = [
        _correlation(company, works_alone(calls, function.levels, Slowdown(share, cores)))
        for share in _SHARES
    ]
    likely = _likely(errors)
    counted = _counted(function, calls, cores)
    chosen, likely, evidence = _choose(errors, likely, counted)
    told = counted is not None or likely[-1] - likely[0] <= _WIDEST_TOLD
    return ServiceFit(
        function=function,
        calls=tuple(calls),
        cpu_share=chosen if told else 0.0,
        cpu_share_range=(likely[0], likely[-1]) if told else (0.0, 0.0),
        num_cores=cores,
        uses_many_cores=uses_many,
        is_told=told,
        evidence=evidence if told else "nothing measured tells how calls hold each other up",
    )


def _cores_used(function: MeasuredFunction) -> float:
    """Cores that instances used while they had calls, what their start took left out."""
    used = busy = 0.0
    for instance in function.instances:
        levels = function.levels.get(instance.instance_id)
        if levels is not None and instance.cpu_s is not None:
            used += max(0.0, instance.cpu_s - instance.ready_s)
            busy += levels.busy_s
    return used / busy if busy else 0.0


def _company(calls: Sequence[MeasuredCall], levels: dict[str, Levels]) -> list[float]:
    """Return how many calls each found in its instance, those included that came with it."""
    together_s = _TOGETHER * quantile([call.service_s for call in calls], 0.5)
    return [levels[call.instance_id].at(call.begun_s + together_s) for call in calls]


def _correlation(ranks: Sequence[float], works: Sequence[float]) -> float:
    """Return the rank correlation in standard errors, without its sign; 0 where nothing varies."""
    others = _ranks(works)
    middle = (len(ranks) - 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(ranks, others, strict=True))
    spread = math.sqrt(
        sum((a - middle) ** 2 for a in ranks) * sum((b - middle) ** 2 for b in others)
    )
    return abs(both) / spread * math.sqrt(len(ranks) - 1) if spread > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the place of each value in their order; equal ones share the middle of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    begin = 0
    for _, group in groupby(order, key=values.__getitem__):
        members = list(group)
        for index in members:
            ranks[index] = begin + (len(members) - 1) / 2
        begin += len(members)
    return ranks


def _likely(errors: Sequence[float]) -> list[float]:
    """Return the shares whose correlation may be chance; the best one at least."""
    allowed = max(_BY_CHANCE, min(errors))
    return [share for share, error in zip(_SHARES, errors, strict=True) if error <= allowed]


def _counted(
    function: MeasuredFunction, calls: Sequence[MeasuredCall], cores: float
) -> tuple[float, float] | None:
    """Return the range of shares that CPU seconds allow; None where these were not measured."""
    there = [one for one in function.instances if one.instance_id in function.levels]
    if not there or any(one.cpu_s is None for one in there):
        return None
    all_s = sum(one.cpu_s or 0.0 for one in there)
    starts_s = sum(min(one.ready_s, one.cpu_s or 0.0) for one in there)
    num_calls = len(function.calls)
    least, most = (all_s - starts_s) / num_calls, all_s / num_calls
    works = [mean(works_alone(calls, function.levels, Slowdown(share, cores))) for share in _SHARES]
    fits = [share * work for share, work in zip(_SHARES, works, strict=True)]
    low = max((s for s, fit in zip(_SHARES, fits, strict=True) if fit <= least), default=0.0)
    high = min((s for s, fit in zip(_SHARES, fits, strict=True) if fit >= most), default=1.0)
    return low, high


def _choose(
    errors: Sequence[float], likely: list[float], counted: tuple[float, float] | None
) -> tuple[float, list[float], str]:
    """Return the share, those that are as likely, and why."""
    error_of = dict(zip(_SHARES, errors, strict=True))
    best = min(likely, key=error_of.__getitem__)
    if counted is None:
        return best, likely, "how service times rise with the calls in an instance"
    both = [share for share in likely if counted[0] <= share <= counted[1]]
    if not both:
        return best, likely, "service times, which rise otherwise than CPU seconds explain"
    if (both[0], both[-1]) == counted:  # service times say nothing more
        return sum(counted) / 2, both, "CPU seconds of the instances"
    best = min(both, key=error_of.__getitem__)
    return best, both, "CPU seconds of the instances, and how service times rise"
