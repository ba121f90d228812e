"""The failures of a run, counted group by group; memory grows by the groups under way alone."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from arkdev.harness.failures import (
    Failure,
    Fate,
    Handling,
    MovedSibling,
    TroubledRollout,
    fate,
    grader_failures,
    rollout_failures,
    sibling_shift,
    troubled,
)
from arkdev.harness.grader_numbers import by_name, by_number
from arkdev.harness.occurrences import Examples
from arkdev.harness.summary import (
    FailureRow,
    FailureSummary,
    ShiftSummary,
    SuspectReward,
    Suspicion,
)
from arkdev.harness.swallowed_errors import QUESTIONS, SwallowedError, suspicions, swallowed_error
from arkdev.runs.records import FaultSide, GroupRecord, TrajectoryRecord, Verdict

_MAX_EXAMPLES = 3


class _Key(NamedTuple):
    """What the failures of a row have in common."""

    is_fault: bool
    side: FaultSide
    kind: str
    plugin: str
    is_injected: bool
    handling: Handling


class FailureCounts:
    """Add a run's records, each trajectory before its group; ask for `summary` at any time."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._suspicions: dict[str, _Suspects] = {}
        self._troubled: dict[int, list[TroubledRollout]] = {}
        """By sample, whose group is not done; so is the next."""
        self._swallowed: dict[int, list[SwallowedError]] = {}

    def add_trajectory(self, record: TrajectoryRecord) -> None:
        """Keep what one rollout's failures were, until its group is done."""
        trouble = troubled(record)
        if trouble is not None:
            self._troubled.setdefault(record.sample_index, []).append(trouble)
        swallowed = swallowed_error(record)
        if swallowed is not None:
            self._swallowed.setdefault(record.sample_index, []).append(swallowed)

    def add_group(self, group: GroupRecord) -> None:
        """Count the failures of a group, graded or dropped."""
        rollouts = self._troubled.pop(group.sample_index, [])
        failures = [
            (failure, rollout.verdict)
            for rollout in rollouts
            for failure in rollout_failures(rollout)
        ]
        for grader in group.graders:  # only successful rollouts are graded
            failures += [(f, Verdict.SUCCESS) for f in grader_failures(grader, group)]
        first = next(iter(group.trajectory_ids), str(group.sample_index))
        _count(self._rows, failures, group, first=first)
        swallowed = self._swallowed.pop(group.sample_index, [])
        for code, suspect in suspicions(group, swallowed):
            self._suspicions.setdefault(code, _Suspects()).add(suspect)

    def summary(self) -> FailureSummary | None:
        """Return what was added so far, groups under way included; None when nothing failed."""
        rows = self._rows
        if self._troubled:
            rows = copy.deepcopy(rows)
            for rollout in (one for group in self._troubled.values() for one in group):
                found = [(failure, rollout.verdict) for failure in rollout_failures(rollout)]
                _count(rows, found, None, first=rollout.trajectory_id)
        if not rows and not self._suspicions:
            return None
        faults = {key: row for key, row in rows.items() if key.is_fault}
        attempts = {key: row for key, row in rows.items() if not key.is_fault}
        return FailureSummary(
            num_faults=sum(row.count for row in faults.values()),
            num_injected=sum(row.count for key, row in faults.items() if key.is_injected),
            num_failed_attempts=sum(row.count for row in attempts.values()),
            faults=_in_order(faults),
            failed_attempts=_in_order(attempts),
            suspicions=tuple(
                Suspicion(code, suspects.count, tuple(suspects.examples))
                for code in QUESTIONS
                if (suspects := self._suspicions.get(code)) is not None
            ),
        )


@dataclass
class _Suspects:
    count: int = 0
    examples: list[SuspectReward] = field(default_factory=list)

    def add(self, suspect: SuspectReward) -> None:
        self.count += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(suspect)


@dataclass
class _Shifts:
    """How far trajectories moved their siblings."""

    num_trajectories: int = 0
    num_siblings: int = 0
    total: float = 0.0
    largest: float = -1.0
    largest_of: str = ""
    num_sign_changes: int = 0

    def add(self, trajectory_id: str, siblings: Sequence[MovedSibling]) -> None:
        self.num_trajectories += 1
        for sibling in siblings:
            shift = abs(sibling.shift)
            self.num_siblings += 1
            self.total += shift
            self.num_sign_changes += sibling.changes_sign
            if shift > self.largest:
                self.largest, self.largest_of = shift, trajectory_id

    def summary(self) -> ShiftSummary | None:
        if not self.num_siblings:
            return None
        return ShiftSummary(
            self.num_trajectories,
            self.num_siblings,
            largest=self.largest,
            mean=self.total / self.num_siblings,
            num_sign_changes=self.num_sign_changes,
            largest_of=self.largest_of,
        )


@dataclass
class _Row:
    attempts: Counter[int] = field(default_factory=Counter)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    fates: Counter[Fate] = field(default_factory=Counter)
    shifts: _Shifts = field(default_factory=_Shifts)
    examples: Examples = field(default_factory=Examples)

    @property
    def count(self) -> int:
        return self.examples.count

    def add(self, failure: Failure, *, became: Fate, example: str) -> None:
        self.attempts[failure.num_attempts] += 1
        self.verdicts[failure.verdict] += 1
        self.fates[became] += 1
        self.examples.add(example)

    def summary(self, key: _Key) -> FailureRow:
        return FailureRow(
            side=key.side.value,
            kind=key.kind,
            plugin=key.plugin,
            is_injected=key.is_injected,
            handling=key.handling.value,
            count=self.count,
            attempts=by_number(self.attempts),
            verdicts=by_name(self.verdicts),
            fates={one.value: self.fates[one] for one in Fate if self.fates[one]},
            shift=self.shifts.summary(),
            examples=tuple(self.examples.ids),
        )


def _count(
    rows: dict[_Key, _Row],
    failures: Sequence[tuple[Failure, Verdict]],
    group: GroupRecord | None,
    *,
    first: str,
) -> None:
    """Count failures of one group, each with the verdict of the rollout that it fell on.

    `first` is the example for what concerns the whole group. A trajectory with several failures of
    a kind moves its siblings once.
    """
    moved: dict[str, tuple[MovedSibling, ...] | None] = {}
    counted: set[tuple[_Key, str]] = set()
    for failure, verdict in failures:
        name = failure.trajectory_id
        key = _Key(
            failure.fault is not None,
            failure.side,
            failure.kind,
            plugin=failure.plugin,
            is_injected=failure.fault is not None and failure.fault.is_injected,
            handling=failure.handling,
        )
        row = rows.setdefault(key, _Row())
        row.add(failure, became=fate(group, name, verdict=verdict), example=name or first)
        if name is None or group is None or (key, name) in counted:
            continue
        counted.add((key, name))
        if name not in moved:
            moved[name] = sibling_shift(group, name)
        siblings = moved[name]
        if siblings is not None:
            row.shifts.add(name, siblings)


def _in_order(rows: Mapping[_Key, _Row]) -> tuple[FailureRow, ...]:
    """Return the most frequent first, equal ones by name."""
    ordered = sorted(rows.items(), key=lambda item: (-item[1].count, item[0]))
    return tuple(row.summary(key) for key, row in ordered)
