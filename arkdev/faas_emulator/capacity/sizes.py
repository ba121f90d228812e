"""Sizes of instances and what they cost.

The cost of a function is core-hours: the seconds of all its instances, from the order of each to
its end, times the cores of `Runtime.instance`. Among equal ones less memory is cheaper, then fewer
instances. What a core costs, and a gigabyte, the contract does not say."""

from __future__ import annotations

from collections.abc import Iterator

from arkdev.plugin.runtime import PluginInstance


def num_cpus(instance: PluginInstance) -> int:
    """Return the cores of an instance (DEC-12)."""
    return int(instance.value[3:].partition("mem")[0])


def memory_mb(instance: PluginInstance) -> int:
    """Return the MiB of an instance (DEC-12)."""
    return 1024 * int(instance.value.partition("mem")[2])


SIZES = tuple(sorted(PluginInstance, key=lambda size: (num_cpus(size), memory_mb(size))))
"""The fewest cores first."""


def smallest(needed_mb: float, *, with_more_cores: bool) -> Iterator[PluginInstance]:
    """Yield the smallest size that has the memory; with more cores the one of each number of them.

    Nothing when none has it.
    """
    seen: set[int] = set()
    for size in SIZES:
        if memory_mb(size) >= needed_mb and num_cpus(size) not in seen:
            if seen and not with_more_cores:
                return
            seen.add(num_cpus(size))
            yield size


def core_hours(instance: PluginInstance, instance_s: float) -> float:
    """Return the cost of so many seconds of instances."""
    return num_cpus(instance) * instance_s / 3600
