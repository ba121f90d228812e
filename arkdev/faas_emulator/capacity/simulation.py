"""A function's pool in virtual time: its `Autoscaler`, on instances that only count.

What starts, takes calls and stops, and when, is decided by the code that decides it in the pool, so
that forecast and emulator cannot drift apart. What is simulated is how long things take: a start,
and a call in its instance, which progresses at 1 / slowdown(k) beside k - 1 others.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arkdev.faas_emulator.autoscaler import Action, Assign, Autoscaler, Start, Stop
from arkdev.faas_emulator.capacity.slowdown import Slowdown
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

IDLE_S = 60.0
"""So long an instance without a call is kept, as in a pool."""


class VirtualTime:
    """A clock that jumps from event to event."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def call_at(self, at: float, what: Callable[[], None]) -> None:
        """Do `what` at a time; events of one moment come in the order in which they were added."""
        heapq.heappush(self._events, (max(at, self.now), next(self._numbers), what))

    def run(self, *, is_over: Callable[[], bool]) -> None:
        """Let time pass until it is over, or nothing can happen any more."""
        while self._events and not is_over():
            self.now, _, what = heapq.heappop(self._events)
            what()


@dataclass
class SimulatedCall:
    """One call. `done` is called at its end."""

    work_s: float
    """What it takes alone in its instance."""
    done: Callable[[], None]
    arrived: float = 0.0
    taken: float = 0.0
    ended: float = 0.0
    is_cold: bool = False
    """It waited for an instance that was started."""
    is_timeout: bool = False

    @property
    def queued_s(self) -> float:
        """From its arrival until an instance took it."""
        return self.taken - self.arrived

    @property
    def total_s(self) -> float:
        """From its arrival until its end."""
        return self.ended - self.arrived


@dataclass
class _Instance:
    number: int
    ordered: float
    is_new: bool = True
    calls: dict[int, SimulatedCall] = field(default_factory=dict)
    """That it has, by number; one that ran out of time still runs here."""
    progress: float = 0.0
    """Of a call that has been here since its beginning."""
    since: float = 0.0
    """When `progress` was true."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    """A heap: the progress at which each call ends."""
    version: int = 0


@dataclass
class VirtualPool:
    """The instances of one function under one `Runtime`."""

    runtime: Runtime
    slowdown: Slowdown
    time: VirtualTime
    starts_s: Iterator[float]
    """How long each start takes."""
    timeout_s: float
    idle_s: float = IDLE_S

    def __post_init__(self) -> None:
        self._scaler = Autoscaler(_spec(self.runtime), idle_s=self.idle_s)
        self._waiting: dict[int, SimulatedCall] = {}
        self._live: dict[int, _Instance] = {}
        self._numbers = itertools.count()
        self._wake_at: float | None = None
        self.calls: list[SimulatedCall] = []
        """That have ended."""
        self.instance_s = 0.0
        """Seconds of the instances that are gone."""
        self.counts: list[tuple[float, int]] = []
        """(time, instances from then on), those that start included."""

    @property
    def num_instances(self) -> int:
        """Instances that start or work."""
        return len(self._scaler.replicas)

    def warm(self, count: int) -> None:
        """Have `count` instances ready now, within `max_replicas`."""
        for action in self._scaler.warm(count):
            assert isinstance(action, Start)
            self._ready(action.replica, ordered=self.time.now)
        self._count()

    def total_instance_s(self) -> float:
        """Return the seconds of all instances until now."""
        living = sum(self.time.now - one.ordered for one in self._live.values())
        return self.instance_s + living

    def invoke(self, call: SimulatedCall) -> None:
        """Let a call arrive."""
        number = next(self._numbers)
        call.arrived = self.time.now
        self._waiting[number] = call
        self._scaler.arrive(number)
        self._step()

    def _step(self) -> None:
        while True:
            actions = self._scaler.decide(now=self.time.now)
            is_changed = [self._carry_out(action) for action in actions]
            if not any(is_changed):
                break
        at = self._scaler.next_at(now=self.time.now)
        if at is not None and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at
            self.time.call_at(at, self._wake)

    def _wake(self) -> None:
        self._wake_at = None
        self._step()

    def _carry_out(self, action: Action) -> bool:
        """Do as the autoscaler says; True when it must be asked again at once."""
        match action:
            case Assign(call, replica):
                self._begin(call, self._live[replica])
            case Start(replica):
                ordered = self.time.now
                self._live[replica] = _Instance(replica, ordered)
                self.time.call_at(ordered + next(self.starts_s), lambda: self._started(replica))
                self._count()
            case Stop(replica):
                self.instance_s += self.time.now - self._live.pop(replica).ordered
                self._scaler.gone(replica)
                self._count()
                return True
        return False

    def _count(self) -> None:
        self.counts.append((self.time.now, self.num_instances))

    def _ready(self, replica: int, *, ordered: float) -> None:
        instance = self._live.setdefault(replica, _Instance(replica, ordered))
        instance.since = self.time.now
        self._scaler.started(replica, now=self.time.now)

    def _started(self, replica: int) -> None:
        self._ready(replica, ordered=self.time.now)
        self._step()
        if replica in self._live:
            self._live[replica].is_new = False

    # Calls in an instance

    def _begin(self, number: int, instance: _Instance) -> None:
        call, now = self._waiting.pop(number), self.time.now
        self._pass_time(instance)
        call.taken = now
        call.is_cold = instance.is_new and call.arrived < now
        instance.calls[number] = call
        heapq.heappush(instance.ends, (instance.progress + call.work_s, number))
        self._look_ahead(instance)
        if call.work_s * self.slowdown.at(self.runtime.max_concurrency) > self.timeout_s:
            self.time.call_at(now + self.timeout_s, lambda: self._time_out(number, instance))

    def _pass_time(self, instance: _Instance) -> None:
        passed = self.time.now - instance.since
        instance.since = self.time.now
        if instance.calls:
            instance.progress += passed / self.slowdown.at(len(instance.calls))

    def _look_ahead(self, instance: _Instance) -> None:
        """Come back when the next call of an instance ends, unless something happens before."""
        instance.version += 1
        version = instance.version
        if not instance.ends:
            return
        left = max(0.0, instance.ends[0][0] - instance.progress)
        at = self.time.now + left * self.slowdown.at(len(instance.calls))

        def ended() -> None:
            if instance.version == version:
                self._end(instance)

        self.time.call_at(at, ended)

    def _end(self, instance: _Instance) -> None:
        self._pass_time(instance)
        _, number = heapq.heappop(instance.ends)
        call = instance.calls.pop(number)
        self._look_ahead(instance)
        if not call.is_timeout:  # else it has been answered
            self._answer(number, call, instance)

    def _time_out(self, number: int, instance: _Instance) -> None:
        call = instance.calls.get(number)
        if call is None:
            return
        call.is_timeout = True
        self._scaler.drain(instance.number, ending="timeout")
        self._answer(number, call, instance)

    def _answer(self, number: int, call: SimulatedCall, instance: _Instance) -> None:
        call.ended = self.time.now
        self.calls.append(call)
        self._scaler.ended(number, replica=instance.number, now=self.time.now)
        call.done()
        self._step()


def _spec(runtime: Runtime) -> FunctionSpec:
    """Return a function of which only the limits count."""
    return FunctionSpec(
        name="forecast",
        reference="",
        root=Path(),
        kind=PluginKind.SINGLE_ROLLOUT,
        runtime=runtime,
        place="",
    )
