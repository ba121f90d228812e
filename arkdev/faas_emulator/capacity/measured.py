"""What a run measured of one function, as capacity needs it. Plain data."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime


@dataclass(frozen=True)
class MeasuredCall:
    """One call that an instance took. Seconds, on one clock for all calls of a function."""

    begun_s: float
    """When its instance took it."""
    service_s: float
    instance_id: str
    is_retry: bool = False
    """Of an attempt that failed before."""
    is_timeout: bool = False
    """It was given up: it would have taken longer than `service_s`."""

    @property
    def ended_s(self) -> float:
        """When its answer was there."""
        return self.begun_s + self.service_s


@dataclass(frozen=True)
class MeasuredInstance:
    """One instance, at its end; None where nothing was measured."""

    instance_id: str
    ready_s: float
    memory_peak_mb: float | None
    cpu_s: float | None


@dataclass(frozen=True)
class MeasuredFunction:
    """One function of a run."""

    name: str
    kind: PluginKind
    runtime: Runtime
    """Of the run: today's settings."""
    min_replicas: int
    max_replicas: int
    timeout_s: float
    enforced_cpus: float | None
    """Cores of `runtime.instance` that the machine gave; None: as many as there were."""
    calls: tuple[MeasuredCall, ...]
    instances: tuple[MeasuredInstance, ...]

    @cached_property
    def levels(self) -> dict[str, Levels]:
        """How many calls were in each instance when."""
        calls = defaultdict(list)
        for call in self.calls:
            calls[call.instance_id].append(call)
        return {instance: Levels.of(those) for instance, those in calls.items()}

    @property
    def max_concurrent(self) -> int:
        """The most calls that one instance had at once."""
        return max((levels.highest for levels in self.levels.values()), default=0)

    @property
    def retry_share(self) -> float:
        """Share of the calls that were made again since one before had failed."""
        return sum(call.is_retry for call in self.calls) / len(self.calls) if self.calls else 0.0


@dataclass(frozen=True)
class Levels:
    """The number of calls in one instance: from `times[i]` on there were `counts[i]`."""

    times: tuple[float, ...]
    counts: tuple[int, ...]

    @staticmethod
    def of(calls: Iterable[MeasuredCall]) -> Levels:
        """Return the levels of an instance's calls."""
        changes = sorted(
            change for call in calls for change in ((call.begun_s, 1), (call.ended_s, -1))
        )
        times, counts, count = [], [], 0
        for at, change in changes:
            count += change
            times.append(at)
            counts.append(count)
        return Levels(tuple(times), tuple(counts))

    def at(self, moment: float) -> int:
        """Return how many there were at a moment, and 1 where there were none."""
        place = bisect_right(self.times, moment) - 1
        return max(1, self.counts[place]) if place >= 0 else 1

    @property
    def highest(self) -> int:
        """The most at once."""
        return max(self.counts, default=0)

    @property
    def busy_s(self) -> float:
        """How long there was at least one."""
        stretches = zip(pairwise(self.times), self.counts, strict=False)
        return sum(until - since for (since, until), count in stretches if count)


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return sum(values) / len(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
