"""What arrives at the functions of a job: a batch of rollouts and its gradings, or a Poisson load.

A batch is a closed system (`arkdev.harness.engine`): `in_flight` slots, each makes one rollout
after the other in the order of the samples; when all rollouts of a sample are done its graders are
called, which takes no slot. A grader has at most its `request_concurrency` calls under way. A call
that is made again, as failed attempts are, follows at once on the one before.

Draws belong to the call and not to the moment, so that two settings meet the same work.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from arkdev.faas_emulator.capacity.fitting import ServiceModel
from arkdev.faas_emulator.capacity.simulation import SimulatedCall, VirtualPool, VirtualTime
from arkdev.faas_emulator.capacity.slowdown import Slowdown
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

MAX_TRIES = 4
"""Of one rollout or grading, as in the harness."""


@dataclass(frozen=True)
class Batch:
    """The rollouts of one step of a job."""

    batch_size: int
    """Samples."""
    num_generations: int
    in_flight: int
    """Calls of the rollout at once."""

    @property
    def num_rollouts(self) -> int:
        """Trajectories."""
        return self.batch_size * self.num_generations


@dataclass(frozen=True)
class Setting:
    """One function in a simulation: what its calls take, and the `Runtime` that is tried."""

    kind: PluginKind
    model: ServiceModel
    runtime: Runtime
    slowdown: Slowdown
    timeout_s: float
    starts_at_once: bool = False
    """Instances need no time to start."""


@dataclass
class Simulated:
    """What came of one function in one simulation; a number for each call, in order of ends."""

    queued_s: list[float]
    total_s: list[float]
    is_cold: list[bool]
    is_timeout: list[bool]
    instance_s: float
    counts: list[tuple[float, int]]
    """(time, instances from then on)."""
    busy_share: float
    """Calls in instances through places for calls, on average."""


@dataclass
class Outcome:
    """One simulation: each function, by name, and how long all took."""

    functions: dict[str, Simulated]
    makespan_s: float


class _Entry:
    """A function's pool, and the calls that its `request_concurrency` holds back."""

    def __init__(self, name: str, setting: Setting, time: VirtualTime, *, seed: str) -> None:
        self.setting = setting
        self._seed = f"{seed}/{name}"
        self.pool = VirtualPool(
            runtime=setting.runtime,
            slowdown=setting.slowdown,
            time=time,
            starts_s=self._starts(),
            timeout_s=setting.timeout_s,
        )
        # rollouts are limited by their slots
        self._limit = math.inf if setting.kind.is_rollout else setting.runtime.request_concurrency
        self._num_under_way = 0
        self._held: deque[SimulatedCall] = deque()

    def _starts(self) -> Iterator[float]:
        draws = random.Random(f"{self._seed}/starts")
        starts_s = self.setting.model.starts_s
        at_once = self.setting.starts_at_once or not starts_s
        while True:
            yield 0.0 if at_once else draws.choice(starts_s)

    def call(self, index: int, done: Callable[[], None]) -> None:
        """Make the call number `index`, and again when it fails; `done` follows on the last."""
        draws = random.Random(f"{self._seed}/{index}")
        model = self.setting.model
        num_tries = 1
        while num_tries < MAX_TRIES and draws.random() < model.retry_share:
            num_tries += 1
        works = draws.choices(model.works_s, k=num_tries)

        def once() -> None:
            self._submit(SimulatedCall(works.pop(), ended))

        def ended() -> None:
            self._num_under_way -= 1
            if self._held:
                self._start(self._held.popleft())
            if works:
                once()
            else:
                done()

        once()

    def _submit(self, call: SimulatedCall) -> None:
        if self._num_under_way >= self._limit:
            self._held.append(call)
        else:
            self._start(call)

    def _start(self, call: SimulatedCall) -> None:
        self._num_under_way += 1
        self.pool.invoke(call)

    def simulated(self) -> Simulated:
        """Return what came of it."""
        instance_s = self.pool.total_instance_s()
        places_s = instance_s * self.setting.runtime.max_concurrency
        calls = self.pool.calls
        busy_s = sum(call.ended - call.taken for call in calls)
        return Simulated(
            queued_s=[call.queued_s for call in calls],
            total_s=[call.total_s for call in calls],
            is_cold=[call.is_cold for call in calls],
            is_timeout=[call.is_timeout for call in calls],
            instance_s=instance_s,
            counts=self.pool.counts,
            busy_share=busy_s / places_s if places_s else 0.0,
        )


def simulate_batch(settings: Mapping[str, Setting], batch: Batch, *, seed: int) -> Outcome:
    """Simulate one batch. Exactly one of the functions is a rollout's.

    `min_replicas` instances are ready at its beginning, and one at least, as in a run.
    """
    time = VirtualTime()
    entries = _entries(settings, time, seed=seed)
    run = _BatchRun([*entries.values()], batch)
    run.begin()
    time.run(is_over=lambda: run.is_over)
    return Outcome({name: entry.simulated() for name, entry in entries.items()}, time.now)


def simulate_arrivals(
    setting: Setting, *, rate: float, num_calls: int, seed: int, name: str = "function"
) -> Outcome:
    """Simulate Poisson arrivals of `rate` calls a second at one function."""
    time = VirtualTime()
    entries = _entries({name: setting}, time, seed=seed)
    entry = entries[name]
    draws = random.Random(f"{seed}/arrivals")
    at = 0.0
    num_ended = 0

    def ended() -> None:
        nonlocal num_ended
        num_ended += 1

    for index in range(num_calls):
        at += draws.expovariate(rate)
        time.call_at(at, partial(entry.call, index, ended))
    time.run(is_over=lambda: num_ended == num_calls)
    return Outcome({name: entry.simulated()}, time.now)


def _entries(settings: Mapping[str, Setting], time: VirtualTime, *, seed: int) -> dict[str, _Entry]:
    entries = {
        name: _Entry(name, setting, time, seed=str(seed)) for name, setting in settings.items()
    }
    for entry in entries.values():
        entry.pool.warm(max(1, entry.setting.runtime.min_replicas or 0))
    return entries


class _BatchRun:
    def __init__(self, entries: Sequence[_Entry], batch: Batch) -> None:
        (self._rollout,) = (entry for entry in entries if entry.setting.kind.is_rollout)
        self._graders = [entry for entry in entries if not entry.setting.kind.is_rollout]
        self._generations = batch.num_generations
        makes_groups = self._rollout.setting.kind is PluginKind.GROUP_ROLLOUT
        self._calls_each = 1 if makes_groups else batch.num_generations
        self._num_calls = batch.batch_size * self._calls_each
        self._in_flight = min(batch.in_flight, self._num_calls)
        self._next = 0
        self._left_of_group = [self._calls_each] * batch.batch_size
        self._num_left = self._num_calls
        """Calls that are still to end, those of graders that are known included."""

    @property
    def is_over(self) -> bool:
        return self._num_left == 0

    def begin(self) -> None:
        for _ in range(self._in_flight):
            self._take()

    def _take(self) -> None:
        if self._next < self._num_calls:
            index = self._next
            self._next += 1
            self._rollout.call(index, partial(self._rolled_out, index))

    def _rolled_out(self, index: int) -> None:
        self._take()
        group = index // self._calls_each
        self._left_of_group[group] -= 1
        if not self._left_of_group[group]:
            self._grade(group)
        self._num_left -= 1

    def _grade(self, group: int) -> None:
        for grader in self._graders:
            is_single = grader.setting.kind is PluginKind.SINGLE_GRADER
            count = self._generations if is_single else 1
            self._num_left += count
            for place in range(count):
                grader.call(group * count + place, self._graded)

    def _graded(self) -> None:
        self._num_left -= 1
