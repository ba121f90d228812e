"""Two graders of the same trajectories, compared in training terms (docs/replay.md defines it all).

A reward counts only through the advantage that it becomes, so that two graders with quite different
means may train alike, and two with one mean apart. A group of four, graded by two graders::

    rewards A     1.0   0.0   0.0   0.0        rewards B     0.5   1.0   0.0   0.0
    advantage A   1.5  -0.5  -0.5  -0.5        advantage B   0.26  1.31 -0.78 -0.78

One of the six pairs is ordered the other way round (the first two members), two ties are broken
(the second member against the last two), and one advantage changes its sign (the second's).
"""

from __future__ import annotations

import dataclasses
import heapq
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from arkdev.errors import PluginResultError
from arkdev.harness.advantages import Advantage, are_equal, group_advantages
from arkdev.harness.distributions import mean_of
from arkdev.harness.gradient_share import (
    ZERO,
    GradientShare,
    GradientWeights,
    trained_advantages,
)
from arkdev.harness.occurrences import Examples
from arkdev.harness.rank_correlation import pearson, spearman
from arkdev.runs.recorded import RecordedTrajectory
from arkdev.runs.records import GroupRecord, Verdict

MAX_MOVED = 5


@dataclass(frozen=True)
class PairCounts:
    """Pairs of trajectories of one group, by how the two graders order them."""

    num_pairs: int = 0
    num_same: int = 0
    """Ordered alike."""
    num_flipped: int = 0
    """Ordered the other way round."""
    num_ties_broken: int = 0
    """Equal for the first grader, ordered by the second."""
    num_ties_made: int = 0
    """Ordered by the first grader, equal for the second."""
    num_tied: int = 0
    """Equal for both."""


@dataclass(frozen=True)
class SignCounts:
    """Trajectories by what became of the sign of their advantage."""

    num_same: int = 0
    """The same sign, or 0 with both."""
    num_flipped: int = 0
    """Positive with one grader, negative with the other."""
    num_gained: int = 0
    """0 with the first grader, not with the second."""
    num_lost: int = 0
    """Not 0 with the first grader, 0 with the second."""


@dataclass(frozen=True)
class SignalCounts:
    """Groups by whether any of their advantages is not 0."""

    num_both: int = 0
    num_neither: int = 0
    num_gained: int = 0
    """A signal with the second grader alone."""
    num_lost: int = 0
    """A signal with the first grader alone."""


@dataclass(frozen=True)
class MovedAdvantage:
    """A trajectory to look at. Advantages of tokens are given as their mean."""

    trajectory_id: str
    reward_a: float
    reward_b: float
    advantage_a: float
    advantage_b: float


@dataclass(frozen=True)
class GraderDiff:
    """The comparison. Everything below `num_groups` is about the groups that both graded whole."""

    a: str
    b: str
    num_groups: int
    """Groups of which both gave every successful trajectory a reward."""
    num_only_a: int
    """Groups that the first grader alone graded whole."""
    num_only_b: int
    num_neither: int
    num_trajectories: int
    mean_a: float | None
    mean_b: float | None
    pearson: float | None
    """Correlation of the rewards; None when one grader gives every trajectory the same."""
    spearman: float | None
    """The same of their ranks."""
    pairs: PairCounts
    signs: SignCounts
    signal: SignalCounts
    gradient: GradientShare
    moved: tuple[MovedAdvantage, ...]
    """The largest changes of an advantage first, at most five."""
    flipped_groups: tuple[str, ...]
    """A trajectory each of the first groups with a pair ordered the other way round."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)


@dataclass
class _Member:
    """A trajectory that both graders gave a reward."""

    trajectory: RecordedTrajectory
    rewards: tuple[float, float]
    advantages: tuple[Advantage, Advantage]

    @cached_property
    def means(self) -> tuple[float, float]:
        """Both advantages as one number each."""
        first, second = (_mean(advantage, self.trajectory) for advantage in self.advantages)
        return first, second


class DiffOfGraders:
    """Add each group as either side graded it; ask for `summary`."""

    def __init__(self, a: str, b: str) -> None:
        self._names = a, b
        self._num_graded = {(x, y): 0 for x in (True, False) for y in (True, False)}
        self._rewards = array("d"), array("d")
        self._pairs: Counter[str] = Counter()
        self._signs: Counter[str] = Counter()
        self._signal: Counter[str] = Counter()
        self._gradient = GradientWeights()
        self._flipped = Examples()
        self._moved: list[tuple[float, int, MovedAdvantage]] = []
        self._num_seen = 0

    def add(
        self, trajectories: Sequence[RecordedTrajectory], a: GroupRecord, b: GroupRecord
    ) -> None:
        """Compare two gradings of one group, whose trajectories these are."""
        of_a, of_b = _advantages(trajectories, a), _advantages(trajectories, b)
        self._num_graded[of_a is not None, of_b is not None] += 1
        if of_a is None or of_b is None:
            return
        members = [
            _Member(trajectory, (reward_a, reward_b), (advantage_a, advantage_b))
            for trajectory, reward_a, reward_b, advantage_a, advantage_b in zip(
                trajectories, a.rewards, b.rewards, of_a, of_b, strict=True
            )
            if reward_a is not None and reward_b is not None
            if advantage_a is not None and advantage_b is not None
        ]
        for member in members:
            self._rewards[0].append(member.rewards[0])
            self._rewards[1].append(member.rewards[1])
            self._signs[_sign_change(*member.means)] += 1
            self._gradient.add(member.trajectory, *member.advantages)
            self._note_moved(member)
        self._add_pairs(members)
        self._signal[_signal_change(members)] += 1

    def _add_pairs(self, members: Sequence[_Member]) -> None:
        has_flip = False
        for one, other in combinations(members, 2):
            change = _order_change(one.rewards, other.rewards)
            has_flip = has_flip or change == "num_flipped"
            self._pairs[change] += 1
        if has_flip:
            self._flipped.add(members[0].trajectory.record.trajectory_id)

    def _note_moved(self, member: _Member) -> None:
        self._num_seen += 1
        first, second = member.means
        if abs(second - first) <= ZERO:
            return
        moved = MovedAdvantage(
            member.trajectory.record.trajectory_id, *member.rewards, first, second
        )
        # an earlier one comes before a later one of the same size
        entry = (abs(second - first), -self._num_seen, moved)
        if len(self._moved) < MAX_MOVED:
            heapq.heappush(self._moved, entry)
        else:
            heapq.heappushpop(self._moved, entry)

    def summary(self) -> GraderDiff:
        """Return what was added so far."""
        first, second = self._rewards
        return GraderDiff(
            a=self._names[0],
            b=self._names[1],
            num_groups=self._num_graded[True, True],
            num_only_a=self._num_graded[True, False],
            num_only_b=self._num_graded[False, True],
            num_neither=self._num_graded[False, False],
            num_trajectories=len(first),
            mean_a=mean_of(first) if first else None,
            mean_b=mean_of(second) if second else None,
            pearson=pearson(first, second),
            spearman=spearman(first, second),
            pairs=PairCounts(num_pairs=self._pairs.total(), **self._pairs),
            signs=SignCounts(**self._signs),
            signal=SignalCounts(**self._signal),
            gradient=self._gradient.summary(),
            moved=tuple(entry for _, _, entry in sorted(self._moved, reverse=True)),
            flipped_groups=tuple(self._flipped.ids),
        )


def _advantages(
    trajectories: Sequence[RecordedTrajectory], side: GroupRecord
) -> tuple[Advantage | None, ...] | None:
    """Return the advantages of a group that was graded whole, else None."""
    is_whole = all(
        reward is not None or trajectory.record.verdict is not Verdict.SUCCESS
        for trajectory, reward in zip(trajectories, side.rewards, strict=True)
    )
    if not is_whole or all(reward is None for reward in side.rewards):
        return None
    try:
        return group_advantages(side)
    except PluginResultError:  # of the recorded run: two graders gave advantages
        return None


def _mean(advantage: Advantage, trajectory: RecordedTrajectory) -> float:
    if isinstance(advantage, tuple):
        trained = trained_advantages(advantage, trajectory.tokens)
        return mean_of(trained) if trained else 0.0
    return advantage


def _sign(value: float) -> int:
    return 0 if abs(value) < ZERO else 1 if value > 0 else -1


def _sign_change(a: float, b: float) -> str:
    before, after = _sign(a), _sign(b)
    if before == after:
        return "num_same"
    if before and after:
        return "num_flipped"
    return "num_lost" if before else "num_gained"


def _signal_change(members: Sequence[_Member]) -> str:
    has_a, has_b = (
        any(_has_signal(member.advantages[side]) for member in members) for side in (0, 1)
    )
    if has_a and has_b:
        return "num_both"
    return "num_lost" if has_a else "num_gained" if has_b else "num_neither"


def _has_signal(advantage: Advantage) -> bool:
    values = advantage if isinstance(advantage, tuple) else (advantage,)
    return any(_sign(value) for value in values)


def _order_change(one: tuple[float, float], other: tuple[float, float]) -> str:
    before, after = _order(one[0], other[0]), _order(one[1], other[1])
    if before == after:
        return "num_same" if before else "num_tied"
    if before and after:
        return "num_flipped"
    return "num_ties_made" if before else "num_ties_broken"


def _order(first: float, second: float) -> int:
    if first == second or are_equal((first, second)):
        return 0
    return 1 if first > second else -1
