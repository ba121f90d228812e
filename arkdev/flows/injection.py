"""The faults that ``--inject`` asks for, and where a test lets them in."""

from __future__ import annotations

from arkdev.flows.test_plan import PluginTestPlan
from arkdev.harness.faulty_host import FaultyHost
from arkdev.plugin.host import FunctionHost
from arkdev.runs.records import FaultSide


def with_faults(host: FunctionHost, plan: PluginTestPlan) -> FunctionHost:
    """Return a host on which the calls of plugins fail as asked; the same when none shall."""
    if plan.faults is None or not plan.faults.has(FaultSide.GRADER, FaultSide.ROLLOUT):
        return host
    return FaultyHost(host, plan.faults)
