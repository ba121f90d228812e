"""Who holds the event loops up: a heartbeat on each, and a thread that looks when it is late.

While nothing stalls, a loop runs one short callback every 20 ms and the thread reads two numbers.
Once a heartbeat is late, the thread samples the stacks of the loop's thread: what the user's code
did there gets the time since the sample before. When the loop itself had nothing to do, or waited
for the interpreter, the time goes to the threads of the user's code that computed meanwhile. What
arkdev, the garbage collector and a busy machine took is theirs.

Times are accurate to about 20 ms for each stall.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from arkdev.harness.executor_watch import ExecutorWatch
from arkdev.harness.stall_frames import (
    Place,
    attempt_on,
    is_at_a_call,
    not_the_threads_own,
    users_place,
)
from arkdev.harness.stalls import (
    HARNESS,
    MAX_WAITED,
    Culprit,
    Share,
    Stall,
    StallCounts,
    StallKind,
    StallRecord,
    Taken,
    Waiting,
)
from arkdev.harness.thread_times import ThreadTimes, Used
from arkdev.observe.attempt import Attempt, in_flight

BEAT_S = 0.02
"""Between two heartbeats of a loop, and between two samples of a late one."""
_LATE_S = 0.02
"""So much later than it should be, a heartbeat is looked into."""
_LOOK_EVERY_S = 0.025
_PAUSE_FROM_S = 0.01
"""A shorter garbage collection is a part of what allocates."""
_TOLD_BEFORE_ITS_END_S = 1.0
"""A stall of that length is told before it is over, in case it never is."""
_SHARE = 0.5


@dataclass(frozen=True)
class _Moment:
    """What the watcher saw when it looked."""

    now: float
    frames: dict[int, FrameType]
    native_ids: dict[int, int]


class _WatchedLoop:
    """An event loop, its heartbeat, and the stall that it may be in.

    The harness's loop beats by itself. The background loop answers to the watcher: would it beat
    too, its thread and the watcher's would compete for the moment when code that never let the
    interpreter go, as a large `json.loads`, comes to its end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_harness: bool) -> None:
        self.loop = loop
        self.is_harness = is_harness
        self.thread = self.native_id = 0
        self.beat_at = 0.0
        self.gaps: deque[tuple[float, float]] = deque(maxlen=64)
        self.stall: Stall | None = None
        self.used = Used()
        self.collected_s = 0.0
        self.looked_at = 0.0
        self.leaf: tuple[int, int] | None = None
        """The innermost frame and its instruction when it was last sampled."""
        self._handle: asyncio.TimerHandle | None = None
        self._is_asked = False

    def start(self) -> None:
        """Begin the heartbeat; to be called on the loop."""
        self.thread, self.native_id = threading.get_ident(), threading.get_native_id()
        self.beat_at = time.perf_counter()
        if self.is_harness:
            self._handle = self.loop.call_later(BEAT_S, self._beat)

    def stop(self) -> None:
        """End it; to be called on the loop."""
        if self._handle is not None:
            self._handle.cancel()

    def ask(self, now: float) -> None:
        """Let a loop that does not beat by itself answer, if it has answered before."""
        if not self.is_harness and not self._is_asked:
            self._is_asked = True
            self.beat_at = now - BEAT_S
            self.loop.call_soon_threadsafe(self._answer)

    def note_gap(self) -> None:
        """Note that the loop runs now, and did not since the beat before, if that is long ago."""
        now = time.perf_counter()
        if now - self.beat_at > BEAT_S + _LATE_S:
            self.gaps.append((self.beat_at, now))
        self.beat_at = now

    def is_late(self, now: float) -> bool:
        """True when a heartbeat is overdue."""
        is_expected = self.is_harness or self._is_asked
        return is_expected and now - self.beat_at > BEAT_S + _LATE_S

    def _beat(self) -> None:
        self.note_gap()
        self._handle = self.loop.call_later(BEAT_S, self._beat)

    def _answer(self) -> None:
        self._is_asked = False
        self.note_gap()


class StallWatch:
    """Watches event loops and thread pools from `start` to `stop`.

    `threshold_s` is the length from which on a stall counts. `on_first` is told of each culprit
    once, from the watcher's thread, as soon as it is known.
    """

    def __init__(
        self, threshold_s: float, *, on_first: Callable[[StallRecord], None] | None = None
    ) -> None:
        self._threshold_s = threshold_s
        self._on_first = on_first
        self._counts = StallCounts()
        self._told: set[tuple[str, str, str]] = set()
        self._loops: list[_WatchedLoop] = []
        self._executors = ExecutorWatch(threshold_s, on_end=self._close, on_long=self._tell_early)
        self._times = ThreadTimes()
        self._collecting_since = self._collected_s = 0.0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arkdev-stalls", daemon=True)
        self._started = self._watched_s = 0.0

    def start(self, background: asyncio.AbstractEventLoop | None = None) -> None:
        """Watch the running loop, and the `background` loop of another thread."""
        own = _WatchedLoop(asyncio.get_running_loop(), is_harness=True)
        own.start()
        self._loops.append(own)
        if background is not None:
            other = _WatchedLoop(background, is_harness=False)
            self._loops.append(other)
            background.call_soon_threadsafe(other.start)
        self._executors.default_of(own.loop)
        gc.callbacks.append(self._on_collection)
        self._started = time.perf_counter()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; to be called where `start` was."""
        self.records()
        self._is_over.set()
        self._watched_s = time.perf_counter() - self._started
        gc.callbacks.remove(self._on_collection)
        self._thread.join(1.0)
        self._loops[0].stop()

    def records(self) -> tuple[StallRecord, ...]:
        """Return what was found so far.

        arkdev's own lag is in it only when it is large: a second and a twentieth of the run.
        """
        with self._lock:
            for watched in self._loops:
                is_here = watched.thread == threading.get_ident()
                if is_here and watched.is_harness and not self._is_over.is_set():
                    watched.note_gap()
                self._end_stalls(watched)
            self._executors.settle(time.perf_counter())
            records = self._counts.records()
        watched_s = self._watched_s or time.perf_counter() - self._started
        enough_s = max(1.0, 0.05 * watched_s)
        return tuple(
            record
            for record in records
            if record.kind is not StallKind.HARNESS or record.total_s >= enough_s
        )

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._collecting_since = now
        elif now - self._collecting_since > _PAUSE_FROM_S:
            self._collected_s += now - self._collecting_since

    def _run(self) -> None:
        pause_s = _LOOK_EVERY_S
        while not self._is_over.wait(pause_s):
            with self._lock:
                is_late = self._look()
            pause_s = BEAT_S if is_late else _LOOK_EVERY_S

    def _look(self) -> bool:
        """Look at every loop and pool once; True when a loop is late."""
        now = time.perf_counter()
        late = []
        for watched in self._loops:
            if watched.thread:  # else its heartbeat has not begun
                self._end_stalls(watched)
                if watched.is_late(now):
                    late.append(watched)
                else:
                    self._note_usage(watched, now)
                    watched.ask(now)
        if late:
            moment = _Moment(now, sys._current_frames(), _native_ids())
            for watched in late:
                # what a thread of the user's takes from both loops is counted once
                self._sample(watched, moment, may_search=watched is late[0])
        self._executors.look(now)
        return bool(late)

    def _note_usage(self, watched: _WatchedLoop, now: float) -> None:
        watched.used = self._times.read(watched.native_id)
        watched.collected_s = self._collected_s
        watched.looked_at = now
        watched.leaf = None

    def _sample(self, watched: _WatchedLoop, moment: _Moment, *, may_search: bool) -> None:
        frame = moment.frames.get(watched.thread)
        if frame is None:
            return
        if watched.stall is None:
            watched.stall = Stall(watched.beat_at + BEAT_S / 2)
        stall = watched.stall
        before, collected_s = watched.used, watched.collected_s
        length = max(1e-6, moment.now - watched.looked_at)
        leaf = watched.leaf
        self._note_usage(watched, moment.now)
        watched.leaf = (id(frame), frame.f_lasti)
        used = watched.used.since(before)
        theirs = min(1.0, ((used.queued_s or 0.0) + self._collected_s - collected_s) / length)
        place = users_place(frame)
        is_busy = used.cpu_s is None or used.cpu_s >= _SHARE * length
        is_at_its_call = is_at_a_call(frame) and leaf in (None, watched.leaf)
        if place and not place.is_within_arkdev and (place.is_waiting or is_busy or is_at_its_call):
            attempt = attempt_on(frame)
            culprit = _culprit(StallKind.BLOCKS_LOOP, place)
            shares = [Share(culprit, place.line, 1.0 - theirs, id(attempt))]
            self._note_waiting(stall, shares, watched, runs=[attempt])
        elif may_search and not (is_busy and used.cpu_s is not None):
            shares, runs = self._holders(moment, length)
            self._note_waiting(stall, shares, None, runs=runs)
        else:
            shares = []
        rest = 1.0 - sum(share.part for share in shares)
        stall.add(moment.now, [*shares, Share(HARNESS, 0, max(0.0, rest))])
        self._tell_early(stall)

    def _holders(self, moment: _Moment, length: float) -> tuple[list[Share], list[Attempt | None]]:
        """Find the threads of the user's code that computed in the last `length` seconds."""
        loops = {watched.thread for watched in self._loops}
        found: list[tuple[Place, float | None, FrameType]] = []
        for ident, frame in moment.frames.items():
            place = users_place(frame) if ident not in loops else None
            if place is None or place.is_within_arkdev or place.is_waiting:
                continue
            since = moment.now - 1.5 * length
            native_id = moment.native_ids.get(ident, 0)
            cpu_s = self._times.since_look(native_id, now=moment.now, not_before=since)
            found.append((place, cpu_s, frame))
        known = [(place, cpu, frame) for place, cpu, frame in found if cpu is not None]
        if known:
            total = max(length, sum(cpu for _, cpu, _ in known))
            parts = [(place, cpu / total, frame) for place, cpu, frame in known if cpu > 0]
        else:  # the first look at them
            parts = [(place, 1 / len(found), frame) for place, _, frame in found]
        runs = [attempt_on(frame) for _, _, frame in parts]
        shares = [
            Share(_culprit(StallKind.HOLDS_INTERPRETER, place), place.line, part, id(attempt))
            for (place, part, _), attempt in zip(parts, runs, strict=True)
        ]
        return shares, runs

    def _note_waiting(
        self,
        stall: Stall,
        shares: list[Share],
        watched: _WatchedLoop | None,
        *,
        runs: Sequence[Attempt | None],
    ) -> None:
        """Note who waits for the culprits of `shares`: all in flight but those who `runs` names.

        A loop holds up those who run on it; a thread that computes holds up everyone.
        """
        others = [
            attempt
            for attempt, is_on_loop in list(in_flight.items())
            if attempt not in runs and (watched is None or is_on_loop is watched.is_harness)
        ]
        names = tuple(attempt.name for attempt in others[:MAX_WAITED])
        for culprit in {share.culprit for share in shares}:
            stall.wait_for(culprit, Waiting(len(others), names))

    def _end_stalls(self, watched: _WatchedLoop) -> None:
        while watched.gaps:
            began, ended = watched.gaps.popleft()
            stall, watched.stall = watched.stall, None
            if stall is None:
                stall = Stall(began + BEAT_S / 2)
                stall.add(ended, [Share(HARNESS, 0, 1.0)])
            stall.end(ended)
            if stall.length_s >= self._threshold_s:
                self._close(stall)

    def _close(self, stall: Stall) -> None:
        """Count a stall: the user's when their code made up enough of it, else arkdev's."""
        if stall.users_s() < self._threshold_s:
            self._counts.add(HARNESS, Taken({0: stall.length_s}, {0: stall.length_s}))
            return
        for culprit, taken in stall.of_users().items():
            self._tell(culprit, self._counts.add(culprit, taken))

    def _tell_early(self, stall: Stall) -> None:
        """Tell of a stall that is long already, in case it never ends."""
        if stall.users_s() < max(_TOLD_BEFORE_ITS_END_S, self._threshold_s):
            return
        found = stall.of_users()
        culprit = max(found, key=lambda one: found[one].total_s)
        self._tell(culprit, StallCounts().add(culprit, found[culprit]))

    def _tell(self, culprit: Culprit, record: StallRecord) -> None:
        key = (culprit.kind, culprit.file, culprit.function)
        if self._on_first is not None and key not in self._told:
            self._told.add(key)
            self._on_first(record)


not_the_threads_own.add(StallWatch._on_collection.__code__)


def _culprit(kind: StallKind, place: Place) -> Culprit:
    return Culprit(kind, place.file, place.function, place.called, place.plugin)


def _native_ids() -> dict[int, Any]:
    return {thread.ident or 0: thread.native_id for thread in threading.enumerate()}
