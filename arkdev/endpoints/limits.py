"""An endpoint that is asked no faster than its limits allow, from whatever event loop.

The limits live on one loop, so calls of asynchronous plugins (the harness's loop) and of
synchronous ones (the background loop) share one budget. The calls themselves are made there too: a
plugin that blocks the harness's loop while it waits for a place could otherwise wait for calls that
need that loop to end. A call takes a place among those under way first and then waits for its turn
by rate: that way what goes out is even, whatever waited before.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from arkdev.endpoints.adaptive import AdaptiveLimit, Sustained, is_overload
from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.endpoints.pace import Gate, TokenBudget, even_rate
from arkdev.endpoints.spec import EndpointLimits
from arkdev.errors import EndpointError, EndpointResponseError

BYTES_PER_TOKEN = 4
"""Of a request's JSON. About right for English; Chinese, at 3 bytes a character, is near it too."""
FIRST_ANSWER_TOKENS = 512
"""What an answer is taken to need before there was one; afterwards it is their mean."""


@dataclass(frozen=True)
class EndpointUse:
    """How the limits of an endpoint were used."""

    limits: EndpointLimits
    waited_s: dict[str, float]
    """By limit (a field of `EndpointLimits`): what calls waited for it, added up."""
    num_held_back: int
    """Calls that had to wait."""
    peak_in_flight: int
    sustained: Sustained | None
    """With ``--adaptive``."""


def within_limits(
    endpoint: Endpoint,
    limits: EndpointLimits,
    *,
    loop: asyncio.AbstractEventLoop,
    adaptive: AdaptiveLimit | None = None,
) -> Endpoint:
    """Return `endpoint` held to its limits; itself where there are none."""
    if adaptive is None and limits == EndpointLimits():
        return endpoint
    return LimitedEndpoint(endpoint, limits, loop=loop, adaptive=adaptive)


class _End(Enum):
    """How a call ended, for the adaptive limit."""

    ANSWERED = auto()
    OVERLOADED = auto()
    DROPPED = auto()


@dataclass
class _Permit:
    """One call's leave to go: what it took, and who has to give that back."""

    tokens: float
    sent_after: int = 0


class _Waits:
    """How long a call waited for one limit after the other."""

    def __init__(self) -> None:
        self._times = [time.monotonic()]

    def next(self) -> None:
        self._times.append(time.monotonic())

    def seconds(self) -> list[float]:
        """Of each limit that was reached, in order."""
        ends = [*self._times[1:], time.monotonic()]
        return [end - start for start, end in zip(self._times, ends, strict=True)]


@dataclass
class _Seen:
    """What the report tells."""

    waited_s: dict[str, float] = field(default_factory=dict)
    num_held_back: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    num_answers: int = 0
    answer_tokens: int = 0


class LimitedEndpoint:
    """Passes calls on to another `Endpoint` within `limits`; `loop` must run meanwhile.

    `adaptive` finds the number of calls under way; its upper bound is the caller's to choose.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: EndpointLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        adaptive: AdaptiveLimit | None = None,
    ) -> None:
        self.name = endpoint.name
        self.model = endpoint.model
        self.capabilities = endpoint.capabilities
        self._endpoint = endpoint
        self._limits = limits
        self._loop = loop
        self._adaptive = adaptive
        self._gate: Gate | None = None
        if adaptive is not None:
            self._gate = Gate(lambda: adaptive.limit)
        elif (most := limits.max_in_flight) is not None:
            self._gate = Gate(lambda: most)
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        self._rate = even_rate(requests) if requests is not None else None
        self._budget = TokenBudget(tokens) if tokens is not None else None
        self._seen = _Seen()

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request when its turn has come; raises as the endpoint behind it does."""
        if asyncio.get_running_loop() is self._loop:
            return await self._complete(request)
        made = asyncio.run_coroutine_threadsafe(self._complete(request), self._loop)
        return await asyncio.wrap_future(made)

    async def _complete(self, request: ModelRequest) -> dict[str, Any]:
        with request.clock.stopped():
            permit = await self._admit(self._estimate(request) if self._budget else 0.0)
        end, answer, took_nothing = _End.DROPPED, None, False
        try:
            answer = await self._endpoint.complete(request)
            end = _End.ANSWERED
            return answer
        except EndpointError as error:
            took_nothing = isinstance(error, EndpointResponseError)
            if is_overload(error):
                end = _End.OVERLOADED
            raise
        except asyncio.CancelledError:
            if request.clock.is_timed_out:
                end = _End.OVERLOADED
            raise
        finally:
            usage = {"total_tokens": 0} if took_nothing else (answer or {}).get("usage")
            self._finish(permit, end, usage)

    async def check_reachable(self) -> None:
        """See `Endpoint`."""
        await self._endpoint.check_reachable()

    async def close(self) -> None:
        """See `Endpoint`."""
        await self._endpoint.close()

    def use(self) -> EndpointUse:
        """Return how the limits were used so far; call it on the limits' loop."""
        return EndpointUse(
            limits=self._limits,
            waited_s=dict(self._seen.waited_s),
            num_held_back=self._seen.num_held_back,
            peak_in_flight=self._seen.peak_in_flight,
            sustained=self._adaptive.sustained() if self._adaptive else None,
        )

    def _estimate(self, request: ModelRequest) -> float:
        """Tokens of a call before it is made: its JSON by bytes, and an answer as those so far."""
        body = {name: request.body[name] for name in ("messages", "tools") if name in request.body}
        num_bytes = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        seen = self._seen
        if seen.num_answers:
            answer = seen.answer_tokens / seen.num_answers
        else:
            longest = request.sampling.get("max_new_tokens") or FIRST_ANSWER_TOKENS
            answer = min(longest, FIRST_ANSWER_TOKENS)
        return num_bytes / BYTES_PER_TOKEN + answer

    async def _admit(self, tokens: float) -> _Permit:
        """Wait for all limits."""
        waits = _Waits()
        try:
            await self._enter()
            waits.next()
            await self._take_turn(tokens, waits)
        finally:  # also of a call that was given up meanwhile
            self._note_waits(waits.seconds())
        self._seen.in_flight += 1
        self._seen.peak_in_flight = max(self._seen.peak_in_flight, self._seen.in_flight)
        permit = _Permit(tokens)
        if self._adaptive is not None:
            permit.sent_after = self._adaptive.sent()
        return permit

    async def _take_turn(self, tokens: float, waits: _Waits) -> None:
        try:
            if self._rate is not None:
                await self._rate.acquire()
            waits.next()
            if self._budget is not None:
                await self._budget.take(tokens)
        except asyncio.CancelledError:
            self._leave_gate()
            raise

    def _note_waits(self, waits: list[float]) -> None:
        names = ("max_in_flight", "requests_per_minute", "tokens_per_minute")
        is_limited = (self._gate, self._rate, self._budget)
        for name, limit, waited_s in zip(names, is_limited, waits, strict=False):
            if limit is not None:
                self._seen.waited_s[name] = self._seen.waited_s.get(name, 0.0) + waited_s
        self._seen.num_held_back += sum(waits) > _UNNOTICED_S

    async def _enter(self) -> None:
        if self._gate is None:
            return
        if not self._gate.has_place:
            self._tell_adaptive(is_waiting=True)
        try:
            await self._gate.enter()
        finally:
            self._tell_adaptive(is_waiting=self._gate.is_waited_for)

    def _leave_gate(self) -> None:
        if self._gate is not None:
            self._gate.leave()
            self._tell_adaptive(is_waiting=self._gate.is_waited_for)

    def _tell_adaptive(self, *, is_waiting: bool) -> None:
        if self._adaptive is not None:
            self._adaptive.holds_back(is_waiting)

    def _finish(self, permit: _Permit, end: _End, usage: dict[str, Any] | None) -> None:
        self._seen.in_flight -= 1
        if self._budget is not None and usage:
            self._settle(self._budget, permit, usage)
        if self._adaptive is not None:
            tell = {
                _End.ANSWERED: self._adaptive.answered,
                _End.OVERLOADED: self._adaptive.overloaded,
                _End.DROPPED: self._adaptive.dropped,
            }
            tell[end](permit.sent_after)
        self._leave_gate()

    def _settle(self, budget: TokenBudget, permit: _Permit, usage: dict[str, Any]) -> None:
        total = usage.get("total_tokens")
        if total is None:
            total = (usage.get("prompt_tokens") or 0) + (usage.get("completion_tokens") or 0)
        budget.settle(total - permit.tokens)
        if usage.get("completion_tokens") is not None:
            self._seen.num_answers += 1
            self._seen.answer_tokens += usage["completion_tokens"]


_UNNOTICED_S = 0.001
"""A shorter wait is the way to the limits' loop and back."""
