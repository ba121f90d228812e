"""The attempt session: the seam that owns one attempt (decision 6).

It knows who the attempt is, with which sampling parameters its model calls go out, sends them
again when that can help, keeps the record, and refuses calls that come after the attempt's end.
Wrapped clients enter it directly; raw clients through the gateway, by its `jwt_token`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkdev.endpoints.call_clock import CallClock
from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.errors import ArkdevError, LateCallError, LongWaitError
from arkdev.observe.attempt import AttemptPlace
from arkdev.observe.held_calls import HeldCalls
from arkdev.observe.spans import Span
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.response_tree import ResponseNode, ResponseTree
from arkdev.plugin.responses import chat_body_of_responses, response_of_answer
from arkdev.runs.records import FaultRecord, FaultSide, TurnRecord
from arkdev.sessions.faults.log import FaultLog
from arkdev.sessions.faults.plan import FaultPlan
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.model_call_spans import in_a_span
from arkdev.sessions.retries import RetryPolicy, send_with_retries
from arkdev.sessions.sends import HUNG_UP, Sends
from arkdev.sessions.sent import NOTHING, SentBeside, beside_of
from arkdev.sessions.turns import Call, Place, Turn, notes_on

_LOOKS_FOR_HANG_UPS, _LOOK_EVERY_S = 40, 0.005


@dataclass
class SessionServices:
    """What the sessions of a run share."""

    endpoint: Endpoint
    gateway_url: str
    blocking_loop: asyncio.AbstractEventLoop
    """Runs the model calls of synchronous plugins, in a thread of its own."""
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    on_turn: Callable[[Session], None] | None = None
    """Told of each recorded call, from whatever thread made it."""
    faults: FaultPlan | None = None
    """What is injected into model calls; None: nothing."""
    looks_beside: bool = False
    """Whether it is wanted what calls sent beside what the trajectories end with."""


class Session:
    """One attempt. Implements `arkdev.plugin.access.ModelAccess`; safe to call from any thread."""

    def __init__(
        self, identity: AttemptIdentity, *, sampling: Mapping[str, Any], services: SessionServices
    ) -> None:
        self.identity = identity
        self.sampling = dict(sampling)
        self.url = services.gateway_url
        self.jwt_token = secrets.token_urlsafe(24)
        self.responses = ResponseTree(repr(identity))
        self.is_in_a_run = False
        self.span: Span | None = None
        self.endpoint = services.endpoint
        self.held_calls = HeldCalls()
        self._chat = Conversation()
        self._last_call: tuple[int, ResponseNode | None] = (-1, None)
        """Its order, and its response unless it was a chat call."""
        self._services = services
        self._started = time.perf_counter()
        self._order = itertools.count()
        self._turns: list[Turn] = []
        self._failed: list[tuple[dict[str, Any], str]] = []
        """Requests that failed for good and were not answered later, with the error texts."""
        self._notes: dict[tuple[str, str], None] = {}
        self._faults = FaultLog(started=self._started)
        self.answered_later = self._faults.answered_later
        self.num_retries = 0
        """How often model calls were sent again, those included that failed in the end."""
        self.must_wait_long = False
        """The endpoint asked for a longer wait than arkdev makes: no further attempt helps."""
        self.limit_wait_s = 0.0
        """What model calls waited for the endpoint's limits, all of them together."""
        self._under_way: dict[CallClock, str] = {}
        """With the way that each call came."""
        self._lock = threading.Lock()
        self._is_open = True

    @property
    def conversation(self) -> Conversation:
        """The context of the last call: of the chat, or the path to the last response."""
        node = self._last_call[1]
        return self._chat if node is None else self.responses.conversation(node.id)

    @property
    def name(self) -> str:
        """The trajectory's id (`arkdev.observe.attempt.Attempt`)."""
        return self.identity.trajectory_id

    @property
    def number(self) -> int:
        """1 is the first attempt (`arkdev.observe.attempt.Attempt`)."""
        return self.identity.attempt + 1

    @property
    def place(self) -> AttemptPlace:
        """Which attempt it is (`arkdev.observe.attempt.Attempt`)."""
        identity = self.identity
        return AttemptPlace((identity.trajectory_id,), identity.attempt, step=identity.step)

    async def complete(
        self,
        body: dict[str, Any],
        *,
        timeout_s: float | None = None,
        via: str = "wrapped",
        sampling: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answer a model call and record it.

        `sampling` holds parameters that a raw client set itself. Raises `LateCallError` when the
        attempt has ended, also while the call was under way, and `EndpointError` when the call
        failed and sending it again did not help.
        """
        order = next(self._order)
        call = Call(body, order=order, seed=self.identity.seed(order), via=via)
        return await self._record_call(call, timeout_s=timeout_s, sampling=sampling)

    async def respond(
        self,
        request: dict[str, Any],
        *,
        timeout_s: float | None = None,
        via: str = "wrapped",
        sampling: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answer a Responses call (`request` is its JSON body) and put it into the tree.

        The endpoint sees the whole history of the branch. Raises `PluginError` for a
        `previous_response_id` that is not of this attempt and what `complete` raises.
        """
        self._refuse_if_late()
        previous = request.get("previous_response_id")
        parent = self.responses.node(previous)
        body = chat_body_of_responses(request, history=parent.messages)
        num_instructions = 1 if request.get("instructions") else 0
        key = self.responses.next_key(parent, body=body, num_instructions=num_instructions)
        call = Call(
            body,
            order=next(self._order),
            seed=self.identity.seed(*key),
            via=via,
            place=Place(parent, key, num_instructions),
        )
        answer = await self._record_call(call, timeout_s=timeout_s, sampling=sampling)
        assert call.node is not None
        return response_of_answer(
            answer, response_id=call.node.id, previous_response_id=previous, request=request
        )

    @in_a_span
    async def _record_call(
        self, call: Call, *, timeout_s: float | None, sampling: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        self._refuse_if_late()
        request = call.request(
            sampling={**self.sampling, **(sampling or {})},
            clock=CallClock(timeout_s, while_held=self.held_calls.timed),
            scope=f"{self.name} {self.number}",
        )
        started = time.perf_counter()
        self._end_tool_time(started)
        sends = Sends(
            call,
            log=self._faults,
            plan=self._services.faults,
            trajectory=self.name,
            attempt=self.number,
        )
        try:
            answer, call.num_retries = await self._send(sends, request)
        except ArkdevError as error:
            self._failed.append((call.body, f"{type(error).__name__}: {error.message}"))
            self.must_wait_long |= isinstance(error, LongWaitError)
            raise
        sends.made_good()
        waited_s = request.clock.waited_s
        duration_s = time.perf_counter() - started - waited_s
        turn = Turn(call, answer, started, duration_s, call.num_retries, waited_s=waited_s)
        with self._lock:
            self._refuse_if_late()
            self._take(turn)
        if self._services.on_turn is not None:
            self._services.on_turn(self)
        return answer

    def _take(self, turn: Turn) -> None:
        """Keep an answered call; the lock is held."""
        call, place = turn.call, turn.call.place
        if place is None:
            self._chat.add_call(call.body["messages"], turn.answer, order=call.order)
        else:
            call.node = self.responses.add(
                place.parent,
                key=place.key,
                history=call.body["messages"],
                answer=turn.answer,
                num_instructions=place.num_instructions,
            )
        if call.order > self._last_call[0]:
            self._last_call = (call.order, call.node)
        self._turns.append(turn)
        self._failed = [failed for failed in self._failed if failed[0] != call.body]

    def complete_blocking(
        self, body: dict[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Answer a model call of synchronous code; the calling thread waits."""
        self._refuse_if_late()  # here as well: after the run there is no loop to refuse it on
        call = self.complete(body, timeout_s=timeout_s)
        return asyncio.run_coroutine_threadsafe(call, self._services.blocking_loop).result()

    def respond_blocking(
        self, request: dict[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Answer a Responses call of synchronous code; the calling thread waits."""
        self._refuse_if_late()
        call = self.respond(request, timeout_s=timeout_s)
        return asyncio.run_coroutine_threadsafe(call, self._services.blocking_loop).result()

    def insert(self, messages: list[dict[str, Any]], *, previous_response_id: str | None) -> str:
        """Put messages made outside under a response; return the id to branch from."""
        self._refuse_if_late()
        return self.responses.insert(messages, previous_response_id=previous_response_id)

    def set_history(self, messages: list[dict[str, Any]]) -> None:
        """Take the whole history that a raw rollout is about to send."""
        with self._lock:
            self._refuse_if_late()
            self._chat.set_history(messages)

    def acknowledge(self, answer: dict[str, Any]) -> None:
        """Take the answer that a raw rollout hands back.

        An answer that came through the gateway is recorded already; one from elsewhere is added.
        """
        with self._lock:
            self._refuse_if_late()
            same = [turn for turn in self._turns if turn.answer.get("id") == answer.get("id")]
            # several when the endpoint gives no ids, or one id to all
            turn = next((turn for turn in same if not turn.was_acknowledged), None)
            if turn is not None:
                turn.was_acknowledged = True
            elif not same:
                self._chat.add_call(self._chat.plain_messages, answer)
                self._last_call = (self._last_call[0], None)

    def note(self, code: str, detail: str = "") -> None:
        """Count a warning for the report; the same one counts once in an attempt."""
        self._notes[(code, detail)] = None

    def fault(
        self, side: str, kind: str, target: str, *, detail: str = "", is_injected: bool = False
    ) -> FaultRecord:
        """Record something that went wrong in the attempt, unless it has ended."""
        side = FaultSide(side)
        return self._faults.add(side, kind, target, detail=detail, is_injected=is_injected)

    @property
    def faults(self) -> tuple[FaultRecord, ...]:
        """What went wrong so far."""
        return self._faults.records

    async def hang_ups_noticed(self) -> None:
        """Wait a moment for raw calls whose client may have hung up; call it before `close`."""
        for _ in range(_LOOKS_FOR_HANG_UPS):
            if "raw" not in self._under_way.copy().values():
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    @property
    def hung_up(self) -> bool:
        """True when the last that went wrong was that a client hung up on its call."""
        return any(fault.detail == HUNG_UP for fault in self.faults[-1:])

    def close(self) -> None:
        """End the attempt: from now on its calls are refused and nothing is recorded.

        Calls that are under way end too: nobody waits for them, and they hold the endpoint's slots.
        """
        with self._lock:
            self._is_open = False
            under_way = list(self._under_way)
        self._faults.close()
        for clock in under_way:
            clock.cut()

    def refused(self, text: str) -> None:
        """Remember a call that was refused before it was sent, in case the plugin hides it."""
        self._failed.append(({}, text))

    def succeed(self) -> None:
        """Note what is odd about an attempt that ends well."""
        if not self._turns:
            self.note("no_model_call")
        for _, text in self._failed:
            self.note("exception_swallowed", text)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes as ``code`` or ``code: detail``, in order."""
        return self._warnings(self._turns, self.conversation)

    @property
    def num_turns(self) -> int:
        """Number of recorded calls."""
        return len(self._turns)

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        """The recorded calls, in the order of their answers."""
        return self._records(self._turns, self._last_call[1])

    def branch(
        self, response_id: str
    ) -> tuple[Conversation, tuple[TurnRecord, ...], tuple[str, ...]]:
        """Return the path to a response: its conversation, its calls and what is odd about them."""
        node = self.responses.node(response_id)
        conversation = self.responses.conversation(response_id)
        path = node.path
        turns = [turn for turn in self._turns if turn.call.node in path]
        return conversation, self._records(turns, node), self._warnings(turns, conversation)

    def sent_beside(self, kept: Sequence[Conversation]) -> SentBeside:
        """Return what calls sent and `kept` does not hold; nothing where nobody wants to know."""
        if not self._services.looks_beside:
            return NOTHING
        failed = [body for body, _ in self._failed]
        return beside_of(self._turns, failed, kept=kept)

    def _records(self, turns: Sequence[Turn], end: ResponseNode | None) -> tuple[TurnRecord, ...]:
        path = end.path if end else []
        return tuple(
            turn.record(attempt_started=self._started, end=end if turn.call.node in path else None)
            for turn in turns
        )

    def _warnings(self, turns: Sequence[Turn], conversation: Conversation) -> tuple[str, ...]:
        notes = dict.fromkeys([*self._notes, *notes_on(turns, conversation)])
        return tuple(f"{code}: {detail}" if detail else code for code, detail in notes)

    async def _send(self, sends: Sends, request: ModelRequest) -> tuple[dict[str, Any], int]:
        """Send a request, as often as it helps, until the attempt ends; also return the retries."""
        clock, services = request.clock, self._services
        try:
            async with clock:
                with self._lock:
                    self._refuse_if_late()
                    self._under_way[clock] = sends.via
                return await send_with_retries(
                    lambda: sends.send(services.endpoint, request),
                    policy=services.retries,
                    before_retry=self._count_retry,
                )
        except TimeoutError:
            self._refuse_if_late()  # the call was cut when the attempt ended
            raise
        finally:
            with self._lock:
                self._under_way.pop(clock, None)
                self.limit_wait_s += clock.waited_s

    def _count_retry(self) -> None:
        with self._lock:
            self._refuse_if_late()
            self.num_retries += 1

    def _refuse_if_late(self) -> None:
        if not self._is_open:
            raise LateCallError(
                f"a model call of rollout {self.identity.trajectory_id} came after the end of its "
                "attempt",
                hint="the attempt returned, timed out or was cancelled; await every call in it",
            )

    def _end_tool_time(self, now: float) -> None:
        """A new request ends the time that the tools of the last answer took."""
        with self._lock:
            last = self._turns[-1] if self._turns else None
            if last and last.tool_duration_s is None and last.tool_calls:
                last.tool_duration_s = now - last.ended
