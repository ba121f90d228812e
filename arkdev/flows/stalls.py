"""A test is watched for code that holds it up (docs/blocking-calls.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arkdev.flows.recording import PluginTestObserver
from arkdev.flows.services import Services
from arkdev.flows.test_plan import PluginTestPlan
from arkdev.harness.stall_watch import StallWatch
from arkdev.harness.statistics import RunStatistics
from arkdev.runs.masking import masked_value


@contextmanager
def stalls_watched(
    plan: PluginTestPlan,
    statistics: RunStatistics,
    observer: PluginTestObserver,
    services: Services,
) -> Iterator[None]:
    """Watch the running loop and the one of blocking calls; `statistics` report what is found."""
    statistics.take_stalls(lambda: plan.earlier_stalls)
    if not plan.stall_threshold_s:
        yield
        return
    watch = StallWatch(
        plan.stall_threshold_s,
        on_first=lambda record: observer.on_stall(masked_value(record, secrets=plan.secrets)),
    )
    statistics.take_stalls(watch.records)
    watch.start(services.sessions.blocking_loop)
    try:
        yield
    finally:
        watch.stop()
