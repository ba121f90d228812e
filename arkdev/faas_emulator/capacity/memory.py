"""Memory of an instance: a base, and what each call beside others adds, from measured peaks.

A line of least squares through the peaks of instances, each against the most calls that it had at
once. It takes three instances that differ in that. With less only a bound is known: all of the
largest peak may be of its calls, so that twice the calls may take twice the memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arkdev.faas_emulator.capacity.measured import MeasuredFunction, mean

HEADROOM = 1.25
"""An instance has so many times the memory that is expected: over its limit it is killed."""
_MIN_INSTANCES = 3


@dataclass(frozen=True)
class MemoryFit:
    """What an instance takes, in MiB."""

    base_mb: float
    per_call_mb: float
    error_mb: float
    """Standard error of `per_call_mb`; 0 for a bound."""
    peak_mb: float
    """The largest that was measured."""
    peak_calls: int
    """Calls that the instance with `peak_mb` had at once."""
    is_told: bool
    """False: `base_mb` is 0 and `per_call_mb` a bound."""

    def needed_mb(self, num_calls: int) -> float:
        """Return the memory for so many calls at once, `HEADROOM` included."""
        if num_calls <= self.peak_calls and not self.is_told:
            return HEADROOM * self.peak_mb
        per_call = self.per_call_mb + 2 * self.error_mb
        return HEADROOM * max(self.base_mb + per_call * num_calls, 0.0)


def fit_memory(function: MeasuredFunction) -> MemoryFit | None:
    """Fit the peaks of a function's instances; None where none was measured."""
    points = [
        (levels.highest, instance.memory_peak_mb)
        for instance in function.instances
        if instance.memory_peak_mb is not None
        and (levels := function.levels.get(instance.instance_id)) is not None
    ]
    if not points:
        return None
    peak_calls, peak_mb = max(points, key=lambda point: point[1])
    bound = MemoryFit(0.0, peak_mb / peak_calls, 0.0, peak_mb, peak_calls, is_told=False)
    if len(points) < _MIN_INSTANCES or len({calls for calls, _ in points}) < 2:
        return bound
    middle_calls = mean([calls for calls, _ in points])
    middle_mb = mean([mb for _, mb in points])
    spread = sum((calls - middle_calls) ** 2 for calls, _ in points)
    slope = sum((calls - middle_calls) * (mb - middle_mb) for calls, mb in points) / spread
    slope = max(0.0, slope)
    base = middle_mb - slope * middle_calls
    left = sum((mb - base - slope * calls) ** 2 for calls, mb in points)
    error = math.sqrt(left / (len(points) - 2) / spread)
    return MemoryFit(base, slope, error, peak_mb, peak_calls, is_told=True)
