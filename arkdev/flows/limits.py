"""The limits of a test: which hold, who is held to them, and what they did."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from arkdev.endpoints.adaptive import AdaptiveLimit
from arkdev.endpoints.endpoint import Endpoint
from arkdev.endpoints.limits import LimitedEndpoint, within_limits
from arkdev.endpoints.spec import EndpointLimits, EndpointSpec
from arkdev.errors import UsageError
from arkdev.flows.test_request import PluginTestRequest
from arkdev.harness.limits_report import LimitsReport
from arkdev.harness.tool_limits import ToolRule
from arkdev.job.workspace import Workspace
from arkdev.plugin.host import MeasuredHost
from arkdev.plugin.traffic.exchange import TrafficRule
from arkdev.sessions.background import BackgroundLoop


def with_limits(
    spec: EndpointSpec, request: PluginTestRequest, *, concurrency: int
) -> EndpointSpec:
    """Return `spec` with the limits of the command line over its own.

    Raises `UsageError` for ``--adaptive`` where there is nothing to adapt.
    """
    flags = {
        field.name: value
        for field in dataclasses.fields(EndpointLimits)
        if (value := getattr(request, field.name)) is not None
    }
    spec = replace(spec, limits=replace(spec.limits, **flags))
    if request.adaptive and most_in_flight(spec, concurrency=concurrency) == 1:
        raise UsageError(
            "--adaptive looks for a number of model calls at once, but one is the most that there "
            "may be",
            hint="raise --concurrency or --max-in-flight, or leave --adaptive out",
        )
    return spec


def most_in_flight(spec: EndpointSpec, *, concurrency: int) -> int:
    """Model calls that may be under way: as set, or one for each rollout that runs."""
    return spec.limits.max_in_flight or concurrency


def recorded_limits(
    spec: EndpointSpec, workspace: Workspace, *, is_adaptive: bool
) -> dict[str, Any]:
    """Return what the run folder keeps of the limits."""
    return {
        **dataclasses.asdict(spec.limits),
        "adaptive": is_adaptive,
        "tools": {host: dataclasses.asdict(limits) for host, limits in workspace.tools.items()},
    }


@dataclass(frozen=True)
class LimitsInForce:
    """The limits of a run while it runs; they live on `background`'s loop."""

    background: BackgroundLoop
    endpoint: Endpoint
    """What the sessions ask: held to its limits, or as it was."""
    tools: ToolRule | None = None
    """Holds back the HTTP calls of plugins; None without limits of tools."""

    @property
    def rules(self) -> tuple[TrafficRule, ...]:
        """What the HTTP calls of plugins are to pass first: waiting is no part of their time."""
        return () if self.tools is None else (self.tools,)

    async def report(self, host: MeasuredHost) -> LimitsReport:
        """Return what the limits did so far, those of time included."""
        endpoint, tools = self.endpoint, self.tools

        async def uses() -> LimitsReport:
            return LimitsReport(
                endpoint=endpoint.use() if isinstance(endpoint, LimitedEndpoint) else None,
                tools=tools.use() if tools is not None else (),
            )

        return replace(
            await self.background.call(uses()),
            num_timed_out=host.num_timed_out,
            num_left_running=host.num_left_running,
        )


def limits_in_force(
    endpoint: Endpoint,
    spec: EndpointSpec,
    workspace: Workspace,
    *,
    background: BackgroundLoop,
    adaptive_up_to: int | None,
) -> LimitsInForce:
    """Put the limits of `spec` before `endpoint`, and those of the workspace before its tools.

    `adaptive_up_to` is the upper bound of an adaptive limit; None: there is none.
    """
    adaptive = AdaptiveLimit(adaptive_up_to) if adaptive_up_to is not None else None
    return LimitsInForce(
        background,
        within_limits(endpoint, spec.limits, loop=background.loop, adaptive=adaptive),
        ToolRule(workspace.tools, loop=background.loop) if workspace.tools else None,
    )
