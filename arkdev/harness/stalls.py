"""What held a run up, and by whose code: the records, and their counts in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

MAX_WAITED = 5
"""Samples that a record names."""
AWAIT = "await "
"""What a record's `called` begins with where that was awaited."""
_MAX_CULPRITS = 256


class StallKind(StrEnum):
    """How a piece of code held others up."""

    BLOCKS_LOOP = "blocks_loop"
    """It ran on an event loop and did not give it back."""
    HOLDS_INTERPRETER = "holds_interpreter"
    """It computed in a thread, so that nothing else in Python got its turn."""
    EXECUTOR_STARVED = "executor_starved"
    """It kept all threads of a pool busy while other calls waited for one."""
    HARNESS = "harness"
    """No code of the user's was to blame: arkdev, the garbage collector, a busy machine."""


@dataclass(frozen=True)
class StallRecord:
    """One place in the user's code, or arkdev itself, and what it held up. Times are seconds."""

    kind: StallKind
    where: str
    """file:line, the line that took the most time; "" when it is unknown."""
    function: str
    called: str
    """What the line called, as it is written there, or what was entered without a call; after
    ``await `` where that was awaited; "" when it computed."""
    plugin: str
    """The function that was called first in the user's code: often the plugin itself."""
    count: int
    """Attempts for which it ran while others were held up, each counted in each stall."""
    total_s: float
    max_s: float
    """For one of these attempts."""
    longest_stall_s: float
    """Of one stall, which may be made up of several attempts in a row."""
    num_waiting: int
    """Attempts that waited, at most at once."""
    waited: tuple[str, ...]
    """Trajectory ids of up to five of them."""


@dataclass(frozen=True)
class Culprit:
    """What stalls are counted by."""

    kind: StallKind
    file: str = ""
    function: str = ""
    called: str = ""
    plugin: str = ""


HARNESS = Culprit(StallKind.HARNESS)


@dataclass(frozen=True)
class Waiting:
    """Who waited during a stall."""

    number: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Share:
    """What a culprit took of a slice of time."""

    culprit: Culprit
    line: int
    part: float
    """0 to 1."""
    run: int = 0
    """Tells the attempts apart for which the code ran."""


@dataclass
class Taken:
    """What a culprit took of one stall, in seconds."""

    line_s: dict[int, float] = field(default_factory=dict)
    run_s: dict[int, float] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self.line_s.values())


class Stall:
    """A stall that is under way: who took how much of it, as far as it was sampled."""

    def __init__(self, began: float) -> None:
        self.began = self.until = began
        self.taken: dict[Culprit, Taken] = {}
        self._slice_s = 0.0
        self._shares: Sequence[Share] = ()
        """The latest slice, which the stall's end may cut short."""

    @property
    def length_s(self) -> float:
        """From its begin to its end, or to the latest sample."""
        return self.until - self.began

    def add(self, now: float, shares: Sequence[Share]) -> None:
        """Give the time since the sample before to those who took it."""
        self.fold()
        self._slice_s, self._shares = max(0.0, now - self.until), shares
        self.until = max(now, self.until)

    def end(self, at: float) -> None:
        """The stall was over at `at`: the latest slice is as long as that says."""
        self._slice_s = max(0.0, self._slice_s + at - self.until) if self._shares else 0.0
        self.fold()
        self.until = at

    def fold(self) -> None:
        """Count the latest slice."""
        for share in self._shares:
            taken = self.taken.setdefault(share.culprit, Taken())
            seconds = share.part * self._slice_s
            taken.line_s[share.line] = taken.line_s.get(share.line, 0.0) + seconds
            taken.run_s[share.run] = taken.run_s.get(share.run, 0.0) + seconds
        self._slice_s, self._shares = 0.0, ()

    def wait_for(self, culprit: Culprit, waiting: Waiting) -> None:
        """Note who waits for `culprit`, when they are more than before."""
        taken = self.taken.setdefault(culprit, Taken())
        if waiting.number > taken.waiting.number:
            taken.waiting = waiting

    def of_users(self) -> dict[Culprit, Taken]:
        """Return what code of the user's took."""
        return {culprit: taken for culprit, taken in self.taken.items() if culprit != HARNESS}

    def users_s(self) -> float:
        """Seconds that code of the user's took."""
        return sum(taken.total_s for taken in self.of_users().values())


@dataclass
class _Count:
    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    longest_stall_s: float = 0.0
    num_waiting: int = 0
    waited: dict[str, None] = field(default_factory=dict)
    line_s: dict[int, float] = field(default_factory=dict)


class StallCounts:
    """Counts stalls by culprit; of more than 256 culprits it keeps those that cost the most."""

    def __init__(self) -> None:
        self._counts: dict[Culprit, _Count] = {}

    def add(self, culprit: Culprit, taken: Taken) -> StallRecord:
        """Count what `culprit` took of one stall; return the culprit's record so far."""
        count = self._counts.setdefault(culprit, _Count())
        count.count += len(taken.run_s)
        count.total_s += taken.total_s
        count.max_s = max(count.max_s, *taken.run_s.values())
        count.longest_stall_s = max(count.longest_stall_s, taken.total_s)
        count.num_waiting = max(count.num_waiting, taken.waiting.number)
        for name in taken.waiting.names:
            if len(count.waited) < MAX_WAITED:
                count.waited[name] = None
        for line, seconds in taken.line_s.items():
            count.line_s[line] = count.line_s.get(line, 0.0) + seconds
        record = _record(culprit, count)
        if len(self._counts) > _MAX_CULPRITS:
            del self._counts[min(self._counts, key=lambda key: self._counts[key].total_s)]
        return record

    def records(self) -> tuple[StallRecord, ...]:
        """Return a record of each culprit, the most expensive first."""
        return _in_order(_record(culprit, count) for culprit, count in self._counts.items())


def _record(culprit: Culprit, count: _Count) -> StallRecord:
    line = max(count.line_s, key=lambda number: count.line_s[number], default=0)
    return StallRecord(
        kind=culprit.kind,
        where=f"{culprit.file}:{line}" if culprit.file else "",
        function=culprit.function,
        called=culprit.called,
        plugin=culprit.plugin,
        count=count.count,
        total_s=count.total_s,
        max_s=count.max_s,
        longest_stall_s=count.longest_stall_s,
        num_waiting=count.num_waiting,
        waited=tuple(count.waited),
    )


def _in_order(records: Iterable[StallRecord]) -> tuple[StallRecord, ...]:
    return tuple(sorted(records, key=lambda record: -record.total_s))


def merged(records: Iterable[StallRecord]) -> tuple[StallRecord, ...]:
    """Join the records of several parts of a run, the most expensive first."""
    joined: dict[tuple[str, ...], StallRecord] = {}
    for one in records:
        key = (one.kind, one.where, one.function, one.called, one.plugin)
        before = joined.get(key)
        joined[key] = one if before is None else _joined(before, one)
    return _in_order(joined.values())


def _joined(first: StallRecord, second: StallRecord) -> StallRecord:
    return replace(
        first,
        count=first.count + second.count,
        total_s=first.total_s + second.total_s,
        max_s=max(first.max_s, second.max_s),
        longest_stall_s=max(first.longest_stall_s, second.longest_stall_s),
        num_waiting=max(first.num_waiting, second.num_waiting),
        waited=tuple(dict.fromkeys((*first.waited, *second.waited)))[:MAX_WAITED],
    )


def stalls_of_summary(summary: Mapping[str, Any] | None) -> tuple[StallRecord, ...]:
    """Read back what a manifest's summary says of stalls; nothing when it has none."""
    return tuple(
        StallRecord(
            **{**record, "kind": StallKind(record["kind"]), "waited": tuple(record["waited"])}
        )
        for record in (summary or {}).get("stalls", ())
    )
