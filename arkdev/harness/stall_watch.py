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
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

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
from arkdev.harness.thread_times import CpuSince, Reading, thread_cpu_s
from arkdev.harness.watched_loop import BEAT_S, WatchedLoop
from arkdev.observe.attempt import Attempt, in_flight

_logger = logging.getLogger("arkdev.stalls")

_LOOK_EVERY_S = 0.025
_ENOUGH_AT_ONCE, _ENOUGH = 0.3, 0.1
"""How much of the time a thread must have computed to be named: when it is seen for the first
time, and when it is seen again. Between the two a busy machine may have stopped everything."""
_PAUSE_FROM_S = 0.01
"""A shorter garbage collection is a part of what allocates."""
_TOLD_BEFORE_ITS_END_S = 1.0
"""A stall of that length is told before it is over, in case it never is."""


@dataclass(frozen=True)
class _Moment:
    """What the watcher saw when it looked."""

    now: float
    frames: dict[int, FrameType]
    native_ids: dict[int, int]


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
        self._loops: list[WatchedLoop] = []
        self._executors = ExecutorWatch(threshold_s, on_end=self._close, on_long=self._tell_early)
        self._cpu = CpuSince()
        self._collecting_since = self._collected_s = 0.0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arkdev-stalls", daemon=True)
        self._started = self._watched_s = 0.0

    def start(self, background: asyncio.AbstractEventLoop | None = None) -> None:
        """Watch the running loop, and the `background` loop of another thread."""
        own = WatchedLoop(asyncio.get_running_loop(), is_harness=True)
        own.start()
        own.reading = self._reading(own, own.beat_at)
        self._loops.append(own)
        if background is not None:
            other = WatchedLoop(background, is_harness=False)
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
            with self._faults_logged():
                self._settle(time.perf_counter())
            records = self._counts.records()
        watched_s = self._watched_s or time.perf_counter() - self._started
        enough_s = max(1.0, 0.05 * watched_s)
        return tuple(
            record
            for record in records
            if record.kind is not StallKind.HARNESS or record.total_s >= enough_s
        )

    def _settle(self, now: float) -> None:
        """Count what is over or under way."""
        for watched in self._loops:
            is_here = watched.thread == threading.get_ident()
            if is_here and watched.is_harness and not self._is_over.is_set():
                watched.note_gap()
            self._end_stalls(watched, now)
        self._executors.settle(now)

    @contextmanager
    def _faults_logged(self) -> Iterator[None]:
        """End the watch, not the run, when something on the plugins' stacks defeats it."""
        try:
            yield
        except Exception:
            self._is_over.set()
            _logger.exception("the watch for stalls has ended; the run goes on without it")

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        cpu_s = time.thread_time()  # other threads may get their turn before it begins
        if phase == "start":
            self._collecting_since = cpu_s
        elif cpu_s - self._collecting_since > _PAUSE_FROM_S:
            self._collected_s += cpu_s - self._collecting_since

    def _run(self) -> None:
        pause_s = _LOOK_EVERY_S
        while not self._is_over.wait(pause_s):
            is_late = False
            with self._lock, self._faults_logged():
                is_late = self._look()
            pause_s = BEAT_S if is_late else _LOOK_EVERY_S

    def _look(self) -> bool:
        """Look at every loop and pool once; True when a loop is late."""
        now = time.perf_counter()
        late = []
        for watched in self._loops:
            if watched.thread:  # else its heartbeat has not begun
                self._end_stalls(watched, now)
                if watched.is_late(now):
                    late.append(watched)
                else:
                    watched.reading, watched.leaf = self._reading(watched, now), None
                    watched.ask(now)
        if late:
            moment = _moment(now)
            for watched in late:
                # what a thread of the user's takes from both loops is counted once
                self._sample(watched, moment, may_search=watched is late[0])
        self._executors.look(now)
        return bool(late)

    def _sample(self, watched: WatchedLoop, moment: _Moment, *, may_search: bool) -> None:
        frame = moment.frames.get(watched.thread)
        if frame is None or watched.gaps or not watched.is_late(moment.now):
            return  # it has got on meanwhile
        began = watched.beat_at + BEAT_S / 2
        if watched.stall is None or watched.stall.began != began:
            watched.stall = Stall(began)
        stall = watched.stall
        leaf, watched.leaf = watched.leaf, (id(frame), frame.f_lasti)
        reading = self._reading(watched, moment.now)
        since = reading.since(watched.reading or reading)
        enough = _ENOUGH_AT_ONCE if leaf is None else _ENOUGH
        place = users_place(frame)
        if place is not None and place.is_within_arkdev:
            place = None
        is_computing = since.is_busy(enough=enough) is not False
        if place and leaf is None and not is_computing and not place.is_waiting:
            return  # it waits in a call, or for the interpreter or a core: the next one will tell
        watched.reading = reading
        is_at_its_call = is_at_a_call(frame) and leaf == watched.leaf
        if place and (place.is_waiting or is_at_its_call or is_computing):
            attempt = attempt_on(frame)
            culprit = _culprit(StallKind.BLOCKS_LOOP, place)
            shares = [Share(culprit, place.line, 1.0 - since.collected_part, id(attempt))]
            self._note_waiting(stall, shares, watched, runs=[attempt])
        elif may_search and since.is_busy_beside(enough=enough):
            shares = self._holders(stall, moment, since)
        else:
            shares = []
        stall.add(moment.now, _whole(shares))
        self._tell_early(stall)

    def _reading(self, watched: WatchedLoop, now: float) -> Reading:
        return Reading(
            at=now,
            cpu_s=thread_cpu_s(watched.native_id),
            process_s=time.process_time(),
            collected_s=self._collected_s,
        )

    def _holders(self, stall: Stall, moment: _Moment, since: Reading) -> list[Share]:
        """Find the threads of the user's code that computed since the look before."""
        loops = {watched.thread for watched in self._loops}
        found: list[tuple[Place, float | None, FrameType]] = []
        for ident, frame in moment.frames.items():
            place = users_place(frame) if ident not in loops else None
            if place is None or place.is_waiting:
                continue
            native_id = moment.native_ids.get(ident, 0)
            not_before = moment.now - 1.5 * since.at
            cpu_s = self._cpu.read(native_id, now=moment.now, not_before=not_before)
            found.append((place, cpu_s, frame))
        known_s = sum(cpu_s for _, cpu_s, _ in found if cpu_s is not None)
        if known_s:
            whole_s = max(known_s, since.beside_s)
            parts = [(cpu_s or 0.0) / whole_s for _, cpu_s, _ in found]
        else:  # the first look at them
            parts = [1.0 / max(1, len(found))] * len(found)
        runs = [attempt_on(frame) for _, _, frame in found]
        shares = [
            Share(_culprit(StallKind.HOLDS_INTERPRETER, place), place.line, part, id(attempt))
            for (place, _, _), part, attempt in zip(found, parts, runs, strict=True)
            if part and not place.is_within_arkdev
        ]
        self._note_waiting(stall, shares, None, runs=runs)
        return shares

    def _note_waiting(
        self,
        stall: Stall,
        shares: list[Share],
        watched: WatchedLoop | None,
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

    def _end_stalls(self, watched: WatchedLoop, now: float) -> None:
        unseen = []
        for _ in range(len(watched.gaps)):
            gap_began, ended = watched.gaps.popleft()
            began = gap_began + BEAT_S / 2
            stall, watched.stall, watched.leaf = watched.stall, None, None
            if ended - began < self._threshold_s:
                continue
            if stall is None or stall.began != began:
                unseen.append((began, ended))
                continue
            stall.end(ended)
            self._close(stall, watched)
        if unseen:
            self._make_up_for(watched, unseen, now=now)

    def _make_up_for(
        self, watched: WatchedLoop, unseen: list[tuple[float, float]], *, now: float
    ) -> None:
        """Count stalls that were over before the watcher's thread got its turn.

        What the loop did is gone; threads that compute are still at it.
        """
        reading = self._reading(watched, now)
        since = reading.since(watched.reading or reading)
        moment = _moment(now)
        stalls = [Stall(began) for began, _ in unseen]
        may_search = watched.is_harness and since.is_busy_beside(enough=_ENOUGH_AT_ONCE)
        shares = self._holders(stalls[0], moment, since) if may_search else []
        for stall, (_, ended) in zip(stalls, unseen, strict=True):
            stall.add(ended, _whole(shares))
            stall.end(ended)
            self._close(stall, watched)

    def _close(self, stall: Stall, watched: WatchedLoop | None = None) -> None:
        """Count a stall: the user's when their code made up enough of it, else arkdev's."""
        if stall.users_s() >= self._threshold_s:
            for culprit, taken in stall.of_users().items():
                self._tell(culprit, self._counts.add(culprit, taken))
        elif watched is None or watched.is_harness:  # else it is counted there
            self._counts.add(HARNESS, Taken({0: stall.length_s}, {0: stall.length_s}))

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


def _whole(shares: list[Share]) -> list[Share]:
    """Add what is missing to 1: arkdev's part."""
    rest = 1.0 - sum(share.part for share in shares)
    return [*shares, Share(HARNESS, 0, max(0.0, rest))]


def _moment(now: float) -> _Moment:
    native_ids = {thread.ident or 0: thread.native_id or 0 for thread in threading.enumerate()}
    return _Moment(now, sys._current_frames(), native_ids)
