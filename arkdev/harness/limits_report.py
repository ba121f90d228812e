"""What the limits of a run did: the endpoint's, those of tools' hosts, and plugins' time limits.

It is an event of the run folder (``limits``), since records of rollouts cannot tell it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arkdev.endpoints.adaptive import Sustained
from arkdev.endpoints.limits import EndpointUse
from arkdev.endpoints.spec import EndpointLimits
from arkdev.harness.tool_limits import ToolUse


@dataclass(frozen=True)
class LimitsReport:
    """See the module. A resumed run has one for each part; it tells of the last."""

    endpoint: EndpointUse | None = None
    """None: its calls were not held to anything."""
    tools: tuple[ToolUse, ...] = ()
    num_timed_out: int = 0
    """Calls of plugins that took longer than their `Runtime.timeout`."""
    num_left_running: int = 0
    """Of these, how many still ran when the run was over: threads of synchronous plugins, and tasks
    of asynchronous ones that would not end. What plugins started besides is not counted."""

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to tell."""
        return self == LimitsReport()

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the event."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, event: Mapping[str, Any]) -> LimitsReport:
        """Read the event again."""
        return cls(
            endpoint=_endpoint(event["endpoint"]) if event.get("endpoint") else None,
            tools=tuple(ToolUse(**tool) for tool in event.get("tools", ())),
            num_timed_out=event.get("num_timed_out", 0),
            num_left_running=event.get("num_left_running", 0),
        )


def _endpoint(document: Mapping[str, Any]) -> EndpointUse:
    sustained = document.get("sustained")
    fields = {
        **document,
        "limits": EndpointLimits(**document["limits"]),
        "sustained": Sustained(**sustained) if sustained else None,
    }
    return EndpointUse(**fields)
