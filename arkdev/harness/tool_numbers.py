"""The statistics of the tools that a run's models called."""

from __future__ import annotations

from collections import Counter

from arkdev.harness.distributions import LatencyDistribution
from arkdev.harness.slowest import SlowestCalls
from arkdev.harness.stability import instabilities_of_latencies
from arkdev.harness.summary import ToolSummary
from arkdev.runs.records import TurnRecord

SEVERAL_TOOLS = "several tools"


class ToolNumbers:
    """Add turns, in the order in which their rollouts finished; ask for `summary`."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._latency: dict[str, LatencyDistribution] = {}
        self._slowest: dict[str, SlowestCalls] = {}

    def add(self, turn: TurnRecord, trajectory_id: str) -> None:
        """Count the calls of one answer; their time belongs to a tool that was called alone."""
        self._calls.update(turn.tool_calls)
        if turn.tool_calls and turn.tool_duration_s is not None:
            name = turn.tool_calls[0] if len(turn.tool_calls) == 1 else SEVERAL_TOOLS
            self._latency.setdefault(name, LatencyDistribution()).add(turn.tool_duration_s)
            self._slowest.setdefault(name, SlowestCalls()).add(trajectory_id, turn.tool_duration_s)

    def summary(self) -> tuple[ToolSummary, ...]:
        """Return the tools, the most called first; turns that called several come last."""
        rows = [self._summary_of(name, count) for name, count in self._calls.most_common()]
        if SEVERAL_TOOLS in self._latency:
            rows.append(self._summary_of(SEVERAL_TOOLS, 0))
        return tuple(rows)

    def _summary_of(self, name: str, count: int) -> ToolSummary:
        latency = self._latency.get(name)
        if latency is None:
            return ToolSummary(name, count, None)
        return ToolSummary(
            name,
            count,
            latency.summary(),
            unstable=instabilities_of_latencies(latency.values),
            slowest=self._slowest[name].summary(),
        )
