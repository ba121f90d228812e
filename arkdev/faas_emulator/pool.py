"""The instances of one function, and the calls that wait for them (SURFACE DEC-11..17).

A call's way::

    invoke ─► queue ─► an instance takes it ─► POST to its worker ─► answer
              (FIFO)   here its timeout begins

When `Autoscaler` decides is written there; here its decisions are carried out. Each call gets one
answer, and each is told of in one `InvocationRecord`:

* an answer of the worker, good or bad, is handed back as it is;
* after `Runtime.timeout` the call raises `PluginTimeoutError`. Nothing can end it inside its
  instance, so that is drained: it takes no new calls, finishes its others, and is stopped; at once
  when there are none;
* when the instance ends (out of memory, a crash) every call in it raises `InstanceError` with the
  cause; so does a call whose connection is lost though its instance lives, which is drained then;
* a call that never got to its instance, since that was gone before, goes to the front of the queue;
* when no instance can be started, what waits raises what the start raised.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from arkdev.errors import ArkdevError, InstanceError, PluginTimeoutError
from arkdev.faas_emulator.answers import (
    Answer,
    ConnectionLostError,
    InstanceClient,
    ended_with_it,
    not_started,
    stopped,
)
from arkdev.faas_emulator.autoscaler import Action, Assign, Autoscaler, Refuse, Start, Stop
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.instances import InstanceEnd, InstanceLauncher
from arkdev.faas_emulator.live_instances import LiveInstance
from arkdev.faas_emulator.records import InstanceRecord, InvocationRecord, InvocationStatus
from arkdev.faas_emulator.worker.log_wire import OutputLine
from arkdev.observe.held_calls import HeldCalls
from arkdev.plugin.host import is_done_in_time, timed_out

DEFAULT_IDLE_S = 60.0
"""So long an instance without a call is kept, beyond `min_replicas`."""
_LOOKS_FOR_AN_END_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5)
"""Waits between looks at whether an instance has ended: an engine learns of it a bit later."""
CLOSED = "closed"


def _nothing(_: Any) -> None:
    pass


@dataclass(frozen=True)
class PoolEvents:
    """Who is told of what happens in a pool, on its event loop."""

    on_log: Callable[[OutputLine], None] = _nothing
    """A line of an instance; from whatever thread."""
    on_invocation: Callable[[InvocationRecord], None] = _nothing
    """A call has its answer."""
    on_instance: Callable[[InstanceRecord], None] = _nothing
    """An instance has ended."""


@dataclass
class _Call:
    request_id: str
    arrived: float
    taken: asyncio.Future[LiveInstance]
    """Done when an instance takes the call, or failed when none can be started."""
    taken_at: float | None = None
    cold_start_s: float = 0.0
    num_concurrent: int = 0


@dataclass
class Pool:
    """See the module. Use it on one event loop, and close it there."""

    function: FunctionSpec
    launcher: InstanceLauncher
    client: InstanceClient
    events: PoolEvents = field(default_factory=PoolEvents)
    idle_s: float = DEFAULT_IDLE_S
    clock: Callable[[], float] = time.monotonic
    """Of the same pace as the event loop's."""

    def __post_init__(self) -> None:
        self._scaler = Autoscaler(self.function, idle_s=self.idle_s)
        self._began = self.clock()
        self._context = contextvars.copy_context()
        """Instances are no matter of the attempt whose call happens to need one."""
        self._numbers = itertools.count()
        self._calls: dict[int, _Call] = {}
        """That wait or run."""
        self._live: dict[int, LiveInstance] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failure: ArkdevError | None = None
        """Why an instance could not be started, the last time."""
        self._ended: list[InstanceRecord] = []
        self._is_open = True
        self.num_calls = 0
        self.num_timed_out = 0

    @property
    def num_queued(self) -> int:
        """Calls that wait for an instance."""
        return self._scaler.num_queued

    @property
    def num_running(self) -> int:
        """Calls that are in an instance."""
        return len(self._calls) - self.num_queued

    @property
    def num_instances(self) -> int:
        """Instances that are starting, working or being stopped."""
        return len(self._scaler.replicas)

    @property
    def instances(self) -> list[InstanceRecord]:
        """All instances so far, the ended ones first; what they used is known at their end."""
        return [*self._ended, *map(self._record, self._live.values())]

    def _record(self, live: LiveInstance) -> InstanceRecord:
        return live.record(function=self.function.name, began=self._began)

    async def warm(self) -> None:
        """Start `min_replicas` instances, or one, to see that it starts; wait until they are ready.

        Raises what the start raises.
        """
        self._carry_out(self._scaler.warm(max(1, self.function.min_replicas)))
        if self._starting:
            await asyncio.wait(self._starting.values())
        if self._failure is not None:
            raise self._failure

    async def invoke(
        self, body: Mapping[str, Any], *, request_id: str, held: HeldCalls | None = None
    ) -> Answer:
        """Let an instance answer a request; the time in which `held` holds calls is not counted.

        Raises `PluginTimeoutError`, and `InstanceError` as the module says.
        """
        if not self._is_open:
            raise stopped(self.function)
        self.num_calls += 1
        data = json.dumps(body).encode()  # half a character stays an escape
        number = next(self._numbers)
        call = _Call(request_id, self.clock(), asyncio.get_running_loop().create_future())
        self._calls[number] = call
        self._scaler.arrive(number)
        self._step()
        status, live = InvocationStatus.CANCELLED, None
        try:
            while True:
                live = await call.taken
                try:
                    answer = await self._answer(call, live, data, held or HeldCalls())
                    status = InvocationStatus.OK
                    return answer
                except ConnectionLostError as lost:
                    if lost.was_sent:
                        end = await self._why_lost(live, lost)
                        status = end.status
                        raise ended_with_it(self.function, end) from lost
                    self._again(number, call, live)
        except PluginTimeoutError:
            status = InvocationStatus.TIMEOUT
            self.num_timed_out += 1
            raise
        except ArkdevError:
            status = InvocationStatus.NOT_STARTED if live is None else status
            raise
        finally:
            self._leave(number, live, status)

    async def close(self) -> None:
        """Stop every instance, and let what still waits fail. Idempotent."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        for task in self._starting.values():
            task.cancel()
        for call in self._calls.values():
            if not call.taken.done():
                call.taken.set_exception(stopped(self.function))
                call.taken.exception()  # looked at, in case nobody waits for it any more
        stopping = [
            self._stop(number, live.ending or CLOSED) for number, live in self._live.items()
        ]
        await asyncio.gather(*stopping)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # What the autoscaler decides

    def _step(self) -> None:
        """Ask the autoscaler, do as it says, and ask again when it wants to be."""
        if not self._is_open:
            return
        self._carry_out(self._scaler.decide(now=self.clock()))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self.clock()
        at = self._scaler.next_at(now=now)
        if at is not None:
            wait_s, loop = max(0.0, at - now), asyncio.get_running_loop()
            self._timer = loop.call_later(wait_s, self._step, context=self._context.copy())

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Assign(call, replica_number):
                    self._take(call, self._live[replica_number])
                case Refuse(call):
                    self._refuse(self._calls[call])
                case Start(replica_number):
                    task = self._spawn(self._start(replica_number))
                    self._starting[replica_number] = task
                case Stop(replica_number, ending):
                    self._spawn(self._stop(replica_number, ending))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        context = self._context.copy()
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _refuse(self, call: _Call) -> None:
        assert self._failure is not None
        if not call.taken.done():  # else its caller is gone, and will say so
            call.taken.set_exception(not_started(self.function, self._failure))

    def _take(self, number: int, live: LiveInstance) -> None:
        call, now = self._calls[number], self.clock()
        if call.taken.done():  # its caller is gone, and will say so
            self._scaler.ended(number, replica=live.number, now=now)
            return
        call.taken_at = now
        if live.is_new:  # the call waited for this start
            call.cold_start_s = now - max(call.arrived, live.ordered_at)
        call.num_concurrent = len(self._scaler.replicas[live.number].calls)
        live.num_invocations += 1
        call.taken.set_result(live)

    async def _start(self, number: int) -> None:
        ordered_at = self.clock()
        try:
            instance = await self.launcher.start(self.function, on_log=self.events.on_log)
        except ArkdevError as error:
            self._failure = error
        except asyncio.CancelledError:
            self._scaler.gone(number)
            raise
        except Exception as error:  # noqa: BLE001 (what waits for the instance must hear of it)
            self._failure = InstanceError(
                f"no instance of {self.function.name} can be started: {error!r}"
            )
        else:
            self._failure = None
            self._live[number] = LiveInstance(number, instance, ordered_at)
            self._scaler.started(number, now=self.clock())
        finally:
            self._starting.pop(number, None)
        if self._failure is not None:
            self._scaler.start_failed(number, now=self.clock())
        if not self._is_open and number in self._live:
            await self._stop(number, CLOSED)
        self._step()
        if number in self._live:
            self._live[number].is_new = False

    async def _stop(self, number: int, ending: str) -> None:
        live = self._live.get(number)
        if live is None:
            return  # stopped meanwhile
        live.ending = live.ending or ending
        usage = None
        with suppress(ArkdevError):
            usage = await live.instance.usage()
        with suppress(ArkdevError):  # the end of the launcher stops what is left
            await live.instance.stop()
        if self._live.pop(number, None) is None:
            return  # the end of the pool stopped it at the same time
        self._scaler.gone(number)
        record = replace(
            self._record(live),
            ended_at_s=self.clock() - self._began,
            memory_peak_mb=usage.memory_peak_mb if usage else None,
            cpu_s=usage.cpu_s if usage else None,
        )
        self._ended.append(record)
        self.events.on_instance(record)
        self._step()

    # One call

    async def _answer(
        self, call: _Call, live: LiveInstance, data: bytes, held: HeldCalls
    ) -> Answer:
        """Send a call to its instance, and wait for as long as it may take."""
        function, timeout_s = self.function, self.function.timeout_s
        post = self.client.post(live.instance.url, data, request_id=call.request_id)
        sent = asyncio.ensure_future(post)
        try:
            is_done = await is_done_in_time(sent, held, timeout_s=timeout_s, clock=self.clock)
        finally:
            if not sent.done():
                sent.cancel()
                self._drain(live, "timeout")
        if not is_done:
            raise timed_out(function.name, held, timeout_s=timeout_s, where=function.place)
        return sent.result()

    def _again(self, number: int, call: _Call, live: LiveInstance) -> None:
        """Put a call that never got to its instance back to the front of the queue."""
        self._drain(live, "lost")
        self._scaler.ended(number, replica=live.number, now=self.clock())
        live.num_invocations -= 1
        self._look(live)
        if not self._is_open:
            raise stopped(self.function)
        call.taken = asyncio.get_running_loop().create_future()
        self._scaler.arrive(number)
        self._step()

    def _leave(self, number: int, live: LiveInstance | None, status: InvocationStatus) -> None:
        """A call has its answer: tell of it, and let others have its place."""
        call, now = self._calls.pop(number), self.clock()
        if call.taken.done() and not call.taken.cancelled() and call.taken.exception() is None:
            live = call.taken.result()  # also where the caller was gone before it could see it
        else:
            live = None
            self._scaler.leave(number)
        if live is not None:
            if status is InvocationStatus.CANCELLED:
                self._drain(live, "cancelled")
            if live.number in self._scaler.replicas:  # not after the end of the pool
                self._scaler.ended(number, replica=live.number, now=now)
        taken_at = now if call.taken_at is None else call.taken_at
        self.events.on_invocation(
            InvocationRecord(
                request_id=call.request_id,
                function=self.function.name,
                instance_id=live.instance.id if live else "",
                status=status,
                queued_at_s=call.arrived - self._began,
                queued_s=taken_at - call.arrived,
                cold_start_s=call.cold_start_s,
                service_s=now - taken_at if live else 0.0,
                num_concurrent=call.num_concurrent if live else 0,
            )
        )
        self._step()

    def _drain(self, live: LiveInstance, ending: str) -> None:
        if live.number in self._scaler.replicas:
            self._scaler.drain(live.number, ending=ending)

    async def _why_lost(self, live: LiveInstance, lost: ConnectionLostError) -> InstanceEnd:
        """Say why an instance gave no answer; all calls in it are told the same."""
        self._drain(live, "lost")
        end = await asyncio.shield(self._look(live))
        return end or InstanceEnd(InvocationStatus.LOST, f"it runs, but gave no answer ({lost})")

    def _look(self, live: LiveInstance) -> asyncio.Task[InstanceEnd | None]:
        if live.end is None:
            looking, context = self._look_for_end(live), self._context.copy()
            live.end = asyncio.get_running_loop().create_task(looking, context=context)
        return live.end

    async def _look_for_end(self, live: LiveInstance) -> InstanceEnd | None:
        for wait_s in _LOOKS_FOR_AN_END_S:
            if not self._is_open:
                break
            await asyncio.sleep(wait_s)
            end = await live.instance.ended()
            if end is not None:
                live.ending = f"{end.status} ({end.detail})" if end.detail else str(end.status)
                return end
        return None
