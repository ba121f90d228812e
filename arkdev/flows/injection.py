"""The faults that ``--inject`` asks for, and where a test lets them in.

Those of model calls are the sessions' own (`arkdev.sessions.session.SessionServices.faults`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arkdev.flows.test_plan import PluginTestPlan
from arkdev.harness.faulty_host import FaultyHost
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.traffic.exchange import TrafficRule
from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.traffic import FaultyTraffic


def with_faults(host: FunctionHost, plan: PluginTestPlan) -> FunctionHost:
    """Return a host on which the calls of plugins fail as asked; the same when none shall."""
    if plan.faults is None or not plan.faults.has(FaultSide.GRADER, FaultSide.ROLLOUT):
        return host
    return FaultyHost(host, plan.faults)


def traffic_faults(
    plan: PluginTestPlan, *, loop: asyncio.AbstractEventLoop
) -> tuple[TrafficRule, ...]:
    """Return the rule that makes HTTP calls of plugins fail as asked; none when none shall.

    `loop` ends the delays: it must be one that plugins cannot block.
    """
    if plan.faults is None or not plan.faults.has(FaultSide.TOOL):
        return ()

    def call_later(delay_s: float, call: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(loop.call_later, delay_s, call)

    return (FaultyTraffic(plan.faults, call_later=call_later),)


def notes_on_effect(plan: PluginTestPlan) -> tuple[str, ...]:
    """Say, after the run, which faults that were asked for found nothing to strike.

    Whether plugins make HTTP calls shows only then. Of a resumed run only a part was seen.
    """
    if plan.faults is None or plan.resumed is not None:
        return ()
    return tuple(
        f"--inject: the faults of the side {side} had no effect: {_NOTHING_CALLED[side]}"
        for side in plan.faults.without_effect()
    )


_NOTHING_CALLED = {
    FaultSide.MODEL: "no rollout called its model",
    FaultSide.TOOL: "no plugin made an HTTP call with httpx, aiohttp or requests",
    FaultSide.GRADER: "nothing was graded",
    FaultSide.ROLLOUT: "no rollout was called",
}
