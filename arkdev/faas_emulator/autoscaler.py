"""When a function's instances start, take calls and stop. No clock and no I/O: the pool asks.

* A call goes to the ready instance with the fewest calls, the oldest of these, as long as it has
  less than `max_concurrency`. Else it waits, first in, first out.
* Instances are started for what waits and what those under way will not take, up to `max_replicas`.
  One that is being drained or stopped still counts: there are never more.
* An instance without a call for `idle_s` is stopped, unless `min_replicas` would be missed.
* A drained instance takes no new call, finishes those that it has, and is stopped.
* After a start that failed the next one waits, and only one is tried at a time. After
  `MAX_FAILED_STARTS` in a row, while no other instance lives, what waits is refused; a call that
  comes `_WAITS_S[-1]` seconds later or more is a reason to try again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from arkdev.faas_emulator.functions import FunctionSpec

MAX_FAILED_STARTS = 3
_WAITS_S = (0.5, 1.0, 30.0)
"""Before the next start after 1, 2, 3 and more that failed in a row."""
IDLE = "idle"


@dataclass(frozen=True)
class Assign:
    """The call leaves the queue and goes to the instance."""

    call: int
    replica: int


@dataclass(frozen=True)
class Start:
    """Start an instance; `Autoscaler.started` or `start_failed` is told."""

    replica: int


@dataclass(frozen=True)
class Stop:
    """Stop an instance that has no call; `Autoscaler.gone` is told once it is."""

    replica: int
    ending: str


@dataclass(frozen=True)
class Refuse:
    """The call leaves the queue: no instance can be started for it."""

    call: int


Action = Assign | Start | Stop | Refuse


class Phase(Enum):
    """Where an instance is between its start and its end."""

    STARTING = 1
    READY = 2
    DRAINING = 3
    STOPPING = 4


@dataclass
class Replica:
    """One instance as the autoscaler sees it."""

    number: int
    phase: Phase = Phase.STARTING
    calls: set[int] = field(default_factory=set)
    idle_since: float = 0.0
    ending: str = ""


class Autoscaler:
    """See the module. Calls are numbered in the order of their arrival; times are seconds."""

    def __init__(self, function: FunctionSpec, *, idle_s: float) -> None:
        self._max_concurrency = function.runtime.max_concurrency
        self._min_replicas = function.min_replicas
        self._max_replicas = function.max_replicas
        self._idle_s = idle_s
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._next_replica = 0
        self._num_failed_starts = 0
        self._retry_at = -math.inf
        self.replicas: dict[int, Replica] = {}
        """By number: all that have been ordered and are not gone."""

    @property
    def num_queued(self) -> int:
        """Calls that wait for an instance."""
        return len(self._queue)

    def arrive(self, call: int) -> None:
        """A call has come, or comes back since its instance was gone before it got there."""
        self._queue[call] = None
        if len(self._queue) > 1 and next(reversed(self._queue)) < self._last_but_one():
            self._queue = OrderedDict.fromkeys(sorted(self._queue))

    def leave(self, call: int) -> None:
        """A call that waits is given up."""
        self._queue.pop(call, None)

    def started(self, replica: int, *, now: float) -> None:
        """An instance is ready."""
        self._num_failed_starts = 0
        self._retry_at = -math.inf
        self.replicas[replica].phase = Phase.READY
        self.replicas[replica].idle_since = now

    def start_failed(self, replica: int, *, now: float) -> None:
        """An instance could not be started, and is gone."""
        del self.replicas[replica]
        self._num_failed_starts += 1
        self._retry_at = now + _WAITS_S[min(self._num_failed_starts, len(_WAITS_S)) - 1]

    def ended(self, call: int, *, replica: int, now: float) -> None:
        """A call has left its instance."""
        holder = self.replicas[replica]
        holder.calls.discard(call)
        holder.idle_since = now

    def drain(self, replica: int, *, ending: str) -> None:
        """Let an instance take no more calls; the first reason given is the one that counts."""
        drained = self.replicas[replica]
        if drained.phase is Phase.READY:
            drained.phase = Phase.DRAINING
            drained.ending = ending

    def gone(self, replica: int) -> None:
        """An instance has been stopped."""
        del self.replicas[replica]

    def warm(self, count: int) -> list[Action]:
        """Order instances until there are `count`, within `max_replicas`."""
        return [*self._started(min(count, self._max_replicas) - len(self.replicas))]

    def decide(self, *, now: float) -> list[Action]:
        """Return what is to be done now, already done in the books."""
        actions: list[Action] = [*self._assigned()]
        actions += self._idle(now)
        actions += self._drained()
        if now >= self._retry_at:
            actions += self._started(self._num_wanted())
        elif self._is_refusing:
            actions += [Refuse(call) for call in self._queue]
            self._queue.clear()
        return actions

    def next_at(self, *, now: float) -> float | None:
        """Return when to ask again though nothing has happened; None: no need to."""
        spare = self._ready() if self._num_spare() > 0 else ()
        times = [replica.idle_since + self._idle_s for replica in spare if not replica.calls]
        if now < self._retry_at and self._num_wanted() > 0:
            times.append(self._retry_at)
        return min(times, default=None)

    @property
    def _is_refusing(self) -> bool:
        lives = any(replica.phase is not Phase.STOPPING for replica in self.replicas.values())
        return self._num_failed_starts >= MAX_FAILED_STARTS and not lives

    def _last_but_one(self) -> int:
        newest_first = reversed(self._queue)
        next(newest_first)
        return next(newest_first)

    def _ready(self) -> Iterator[Replica]:
        return (r for r in self.replicas.values() if r.phase is Phase.READY)

    def _num_in(self, phase: Phase) -> int:
        return sum(replica.phase is phase for replica in self.replicas.values())

    def _num_spare(self) -> int:
        """Instances over `min_replicas`."""
        return self._num_in(Phase.READY) + self._num_in(Phase.STARTING) - self._min_replicas

    def _num_wanted(self) -> int:
        """Instances to start, for what waits and for `min_replicas`."""
        num_starting = self._num_in(Phase.STARTING)
        left = len(self._queue) - num_starting * self._max_concurrency
        wanted = max(math.ceil(left / self._max_concurrency), -self._num_spare())
        room = self._max_replicas - len(self.replicas)
        if self._num_failed_starts:
            room = min(room, 1 - num_starting)
        return min(wanted, room)

    def _assigned(self) -> Iterator[Action]:
        while self._queue:
            free = min(self._ready(), key=lambda r: (len(r.calls), r.number), default=None)
            if free is None or len(free.calls) >= self._max_concurrency:
                return
            call, _ = self._queue.popitem(last=False)
            free.calls.add(call)
            yield Assign(call, free.number)

    def _idle(self, now: float) -> Iterator[Action]:
        over = [r for r in self._ready() if not r.calls and now >= r.idle_since + self._idle_s]
        for replica in sorted(over, key=lambda r: r.number, reverse=True):  # the youngest first
            if self._num_spare() > 0:
                yield self._stop(replica, IDLE)

    def _drained(self) -> Iterator[Action]:
        for replica in self.replicas.values():
            if replica.phase is Phase.DRAINING and not replica.calls:
                yield self._stop(replica, replica.ending)

    def _stop(self, replica: Replica, ending: str) -> Action:
        replica.phase = Phase.STOPPING
        return Stop(replica.number, ending)

    def _started(self, count: int) -> Iterator[Action]:
        for _ in range(count):
            number = self._next_replica
            self._next_replica += 1
            self.replicas[number] = Replica(number)
            yield Start(number)
