"""What a pool hears from an instance, and what a caller is told when the instance is at fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from arkdev.errors import ArkdevError, InstanceError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instances import InstanceEnd
from arkdev.faas_emulator.records import InvocationStatus


class ConnectionLostError(Exception):
    """An instance gave no answer. `was_sent`: the request may have reached the plugin."""

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


@dataclass(frozen=True)
class Answer:
    """What an instance's worker answered (`arkdev.faas_emulator.worker.wire`)."""

    status: int
    document: dict[str, Any]


class InstanceClient(Protocol):
    """Sends requests to instances."""

    async def post(self, url: str, body: bytes, *, request_id: str) -> Answer:
        """Send a request, however long it takes. Raises `ConnectionLostError`."""
        ...


_WHAT = {
    InvocationStatus.OUT_OF_MEMORY: "ran out of memory",
    InvocationStatus.CRASHED: "crashed",
}
_ADVICE = {
    InvocationStatus.OUT_OF_MEMORY: "let the plugin hold less, lower Runtime(max_concurrency=...), "
    "or take a larger Runtime(instance=...)",
    InvocationStatus.CRASHED: "the plugin's log has what it wrote last",
}


def ended_with_it(function: FunctionSpec, end: InstanceEnd) -> InstanceError:
    """Return the error of a call whose instance ended, or gave no answer."""
    return InstanceError(
        f"the instance of {function.name} {_WHAT.get(end.status, 'was lost')}: {end.detail}",
        where=function.place,
        hint=_ADVICE.get(end.status, ""),
    )


def not_started(function: FunctionSpec, failure: ArkdevError) -> InstanceError:
    """Return the error of a call for which no instance can be started."""
    return InstanceError(
        f"no instance of {function.name} can be started: {failure.message}",
        where=failure.where or function.place,
        hint=failure.hint,
    )


def stopped(function: FunctionSpec) -> InstanceError:
    """Return the error of a call that comes, or waits, at the end."""
    return InstanceError(f"the instances of {function.name} have been stopped")
