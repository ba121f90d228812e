"""The functions of a run with ``--faas``: what their calls and instances came to.

It is computed from the run folder alone: ``invocations.jsonl``, ``instances.jsonl``, and the events
``function``, one for each function with the limits that held (docs/faas.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from arkdev.harness.distributions import LatencyDistribution, LatencySummary
from arkdev.runs.function_records import FunctionCallRecord, FunctionInstanceRecord
from arkdev.runs.reader import RunReader

FUNCTION_EVENT = "function"
_OK = "ok"
_MAX_POINTS = 60
_ORDINARY_ENDINGS = ("idle", "closed", "cancelled")


@dataclass(frozen=True)
class InstancesAt:
    """From `at_s` on there were `num_instances`, the most of what a point stands for."""

    at_s: float
    """Since the first instance was ordered."""
    num_instances: int


@dataclass(frozen=True)
class FunctionSummary:
    """One function. Latencies in seconds; None where nothing was measured."""

    name: str
    instance: str
    """Where its instances ran: ``container``, ``process``."""
    max_concurrency: int
    min_replicas: int
    max_replicas: int
    timeout_s: float
    num_cpus: float
    """What `Runtime.instance` gives one instance."""
    memory_mb: int
    enforced_cpus: float | None
    """What was enforced of it; None: nothing."""
    enforced_memory_mb: int | None
    num_calls: int
    num_cold_calls: int
    """Calls that waited for an instance to start."""
    statuses: dict[str, int]
    """What became of the calls that did not get an answer of the plugin."""
    queue: LatencySummary | None
    """From the arrival of a call until an instance took it."""
    service: LatencySummary | None
    """From there until the answer."""
    num_queued_longer: int
    """Calls that waited for longer than the function's own timeout."""
    num_instances: int
    max_instances: int
    """At once."""
    start: LatencySummary | None
    """Of its instances: from the order until they were ready."""
    import_mean_s: float | None
    """What of that was the import of the plugin."""
    instances_over_time: tuple[InstancesAt, ...]
    endings: dict[str, int]
    """Why instances ended, but for those that were idle or stopped at the end."""
    memory_peak_mb: float | None
    """Of the instance that took the most, in MiB."""
    cpu_s: float | None
    """Of all its instances."""
    cpu_used: float | None
    """Cores that an instance used on average, of those that `Runtime.instance` gives it."""
    notes: tuple[str, ...] = ()
    """What was not enforced and what is not known, and why."""


@dataclass
class _Function:
    event: dict[str, Any]
    calls: list[FunctionCallRecord] = field(default_factory=list)
    instances: list[FunctionInstanceRecord] = field(default_factory=list)


def functions_of(reader: RunReader) -> tuple[FunctionSummary, ...]:
    """Return a summary of each function of a run; none when it ran in arkdev's own process.

    Of a resumed run it covers all parts; calls of groups that were dropped are gone with them.
    """
    functions = {
        str(event.get("name")): _Function(event)
        for event in reader.events()
        if event.get("kind") == FUNCTION_EVENT
    }
    if not functions:
        return ()
    for call in reader.invocations():
        if call.function in functions:
            functions[call.function].calls.append(call)
    for instance in reader.instances():
        if instance.function in functions:
            functions[instance.function].instances.append(instance)
    return tuple(_summary(name, function) for name, function in functions.items())


def _summary(name: str, function: _Function) -> FunctionSummary:
    calls, instances, limits = function.calls, function.instances, function.event
    taken = [call for call in calls if call.instance_id]
    endings = Counter(i.ending for i in instances if i.ending not in _ORDINARY_ENDINGS)
    peaks = [i.memory_peak_mb for i in instances if i.memory_peak_mb is not None]
    used = [(i.cpu_s, _moment(i.ended_at) - _moment(i.started_at)) for i in instances]
    cpu = [seconds for seconds, _ in used if seconds is not None]
    lived_s = sum(lived for seconds, lived in used if seconds is not None)
    imports = [instance.import_s for instance in instances]
    over_time = _over_time(instances)
    return FunctionSummary(
        name=name,
        instance=limits["instance"],
        max_concurrency=limits["max_concurrency"],
        min_replicas=limits["min_replicas"],
        max_replicas=limits["max_replicas"],
        timeout_s=limits["timeout_s"],
        num_cpus=limits["num_cpus"],
        memory_mb=limits["memory_mb"],
        enforced_cpus=limits["enforced_cpus"],
        enforced_memory_mb=limits["enforced_memory_mb"],
        num_calls=len(calls),
        num_cold_calls=sum(call.cold_start_s > 0 for call in calls),
        statuses=dict(Counter(call.status for call in calls if call.status != _OK)),
        queue=_latency(call.queued_s for call in calls),
        service=_latency(call.service_s for call in taken),
        num_queued_longer=sum(call.queued_s > limits["timeout_s"] for call in calls),
        num_instances=len(instances),
        max_instances=max((point.num_instances for point in over_time), default=0),
        start=_latency(instance.ready_s for instance in instances),
        import_mean_s=sum(imports) / len(imports) if imports else None,
        instances_over_time=over_time,
        endings=dict(endings),
        memory_peak_mb=max(peaks, default=None),
        cpu_s=sum(cpu) if cpu else None,
        cpu_used=sum(cpu) / lived_s if lived_s else None,
        notes=(*limits["notes"], *_unrecorded(name, taken, instances)),
    )


def _unrecorded(
    name: str, taken: list[FunctionCallRecord], instances: list[FunctionInstanceRecord]
) -> Iterator[str]:
    """Say of how many instances only the calls are known: a killed arkdev writes no ends."""
    known = {instance.instance_id for instance in instances}
    count = len({call.instance_id for call in taken} - known)
    if count:
        yield (
            f"{name}: {count} more instances took calls, whose end nobody wrote down since arkdev "
            "was killed: they are missing in the rows of instances and of what was used"
        )


def _latency(durations: Iterable[float]) -> LatencySummary | None:
    distribution = LatencyDistribution()
    for duration_s in durations:
        distribution.add(duration_s)
    return distribution.summary()


def _moment(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _over_time(instances: list[FunctionInstanceRecord]) -> tuple[InstancesAt, ...]:
    """Return how many instances there were when, in at most `_MAX_POINTS` points."""
    changes: Counter[float] = Counter()
    for instance in instances:
        changes[_moment(instance.started_at)] += 1
        changes[_moment(instance.ended_at)] -= 1
    if not changes:
        return ()
    first, last = min(changes), max(changes)
    counts: list[tuple[float, int]] = []
    count = 0
    for at in sorted(changes):
        count += changes[at]
        counts.append((at - first, count))
    if len(counts) > _MAX_POINTS:
        step = (last - first) / _MAX_POINTS
        most: dict[float, int] = {}
        for since_s, number in counts:
            place = since_s // step * step
            most[place] = max(most.get(place, 0), number)
        counts = [*most.items()]
    return tuple(InstancesAt(round(since_s, 3), number) for since_s, number in counts)
