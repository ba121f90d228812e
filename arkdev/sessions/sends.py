"""The sends of one model call: what goes wrong in each is recorded, whether real or injected.

Model faults are injected here alone (decision 10), so they are the same for wrapped clients, for
raw ones that come through the gateway, and for both APIs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.errors import EndpointError, EndpointResponseError, EndpointUnreachableError
from arkdev.runs.records import FaultRecord, FaultSide
from arkdev.sessions.faults.answers import CHANGES_ANSWERS, changed_answer, detail_of, error_of
from arkdev.sessions.faults.log import FaultLog
from arkdev.sessions.faults.plan import FaultPlace, FaultPlan, Strike
from arkdev.sessions.turns import Call

HUNG_UP = "the plugin's client hung up before the answer came"


class Sends:
    """Sends one model call, as often as it is asked to. `plan` is None where nothing is injected.

    `trajectory` and `attempt` (from 1) say whose call it is.
    """

    def __init__(
        self, call: Call, *, log: FaultLog, plan: FaultPlan | None, trajectory: str, attempt: int
    ) -> None:
        self.via = call.via
        self._call = call
        self._log = log
        self._plan = plan
        self._trajectory = trajectory
        self._attempt = attempt
        self._num_sent = 0
        self._fault: FaultRecord | None = None
        """Of the send that is under way."""
        self._unanswered: list[FaultRecord] = []

    async def send(self, endpoint: Endpoint, request: ModelRequest) -> dict[str, Any]:
        """Send the call once. Raises `EndpointError` as the endpoint does, and when injected."""
        self._num_sent += 1
        self._fault = None
        try:
            return await request.clock.limited(self._answer(endpoint, request))
        except EndpointError as error:
            # a call that the plugin's own patience ended while it was made slow has its record
            fault = self._fault or self._record(kind_of(error), error.message, is_injected=False)
            self._unanswered.append(fault)
            raise
        except asyncio.CancelledError:
            # after the end of the attempt, which cuts its calls, nothing is recorded
            if self.via == "raw" and self._fault is None:
                self._record("timeout", HUNG_UP, is_injected=False)
            raise

    def made_good(self) -> None:
        """The call was answered: what earlier sends ran into, arkdev has made good."""
        if self._unanswered:
            self._log.made_good(self._unanswered)

    async def _answer(self, endpoint: Endpoint, request: ModelRequest) -> dict[str, Any]:
        strike = self._strike()
        if strike is None:
            return await endpoint.complete(request)
        fault = strike.fault
        if fault.kind in CHANGES_ANSWERS:
            answer = await endpoint.complete(request)
            changed = changed_answer(answer, strike)
            if changed is None:
                return answer
            self._inject(strike)
            return changed
        self._inject(strike)
        if fault.kind == "slow":
            answer = await endpoint.complete(request)
            await asyncio.sleep(fault.duration_s or 0.0)
            return answer
        if fault.kind == "timeout" and fault.duration_s is not None:
            await asyncio.sleep(fault.duration_s)
        raise error_of(fault)

    def _strike(self) -> Strike | None:
        if self._plan is None:
            return None
        return self._plan.strike(
            FaultPlace(
                FaultSide.MODEL,
                self._trajectory,
                self._attempt,
                call=self._call.name,
                send=self._num_sent,
            )
        )

    def _inject(self, strike: Strike) -> None:
        fault = strike.fault
        self._fault = self._record(fault.kind, detail_of(fault), is_injected=True)

    def _record(self, kind: str, detail: str, *, is_injected: bool) -> FaultRecord:
        target = f"call {self._call.order + 1}"
        return self._log.add(FaultSide.MODEL, kind, target, detail=detail, is_injected=is_injected)


def kind_of(error: EndpointError) -> str:
    """Return the kind of a model call's error: its status, or how the answer stayed away."""
    if isinstance(error, EndpointResponseError):
        return str(error.status)
    if isinstance(error, EndpointUnreachableError) and error.is_timeout:
        return "timeout"
    return "unreachable"
