"""A function host whose plugins are made to raise, to time out and to be slow (``--inject``)."""

from __future__ import annotations

import asyncio
from typing import Any

from arkdev.errors import PluginError, PluginTimeoutError
from arkdev.observe.attempt import Attempt, current_attempt
from arkdev.plugin.host import FunctionHost
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.runtime import MAX_TIMEOUT_S
from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.answers import detail_of
from arkdev.sessions.faults.grammar import Fault
from arkdev.sessions.faults.plan import FaultPlace, FaultPlan


class FaultyHost:
    """Calls plugins on another host, unless a fault strikes before.

    A fault of the side ``grader`` or ``rollout`` strikes the call of the plugin itself; `invoke`
    raises for it what the host would raise.
    """

    def __init__(self, host: FunctionHost, plan: FaultPlan) -> None:
        self.capabilities = host.capabilities
        self._host = host
        self._plan = plan

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        """Call the plugin once, or fail before it is called."""
        attempt = current_attempt.get()
        if attempt is not None:
            await self._strike(loaded, attempt)
        return await self._host.invoke(loaded, arguments)

    async def close(self) -> None:
        """See `FunctionHost`."""
        await self._host.close()

    async def _strike(self, loaded: LoadedPlugin, attempt: Attempt) -> None:
        plugin = loaded.plugin
        side = FaultSide.ROLLOUT if plugin.kind.is_rollout else FaultSide.GRADER
        strike = self._plan.strike(FaultPlace(side, attempt.name, attempt.number))
        if strike is None:
            return
        fault = strike.fault
        target = attempt.name.partition(" ")[2] or plugin.name  # a grader may go by another name
        attempt.fault(side, fault.kind, target, detail=detail_of(fault), is_injected=True)
        if fault.kind == "raise":
            raise PluginError(f"injected raise: {plugin.name} was not called", where=plugin.place)
        await self._spend_time(loaded, fault)

    async def _spend_time(self, loaded: LoadedPlugin, fault: Fault) -> None:
        """Delay the call; raise when it is to time out, or the delay alone takes that long."""
        plugin = loaded.plugin
        timeout_s = plugin.runtime.timeout or MAX_TIMEOUT_S
        delay_s = min(fault.duration_s or 0.0, timeout_s)
        if delay_s:
            await asyncio.sleep(delay_s)
        if fault.kind == "timeout" or delay_s == timeout_s:
            raise PluginTimeoutError(
                f"injected {fault.kind}: as if {plugin.name} had taken longer than {timeout_s:g} s",
                where=plugin.place,
            )
