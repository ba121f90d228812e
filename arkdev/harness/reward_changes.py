"""What other graders, or other versions of them, change in the rewards of a recorded run.

Memory grows by two floats for each reward. Rewards are compared as they are: a grader that does
what it did gives the same floats.
"""

from __future__ import annotations

import dataclasses
import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.harness.distributions import mean_of
from arkdev.harness.occurrences import Examples
from arkdev.runs.records import GroupRecord, Verdict

MAX_LARGEST = 5

Rewards = Sequence[float | None]


@dataclass(frozen=True)
class ChangedReward:
    """The reward of one trajectory before and after."""

    trajectory_id: str
    before: float
    after: float


@dataclass(frozen=True)
class RewardChanges:
    """One kind of reward: the weighted one, or one grader's.

    `num_compared` trajectories had a reward before and have one now: they are `num_unchanged`,
    `num_raised` or `num_lowered`, and the means are theirs alone.
    """

    name: str
    num_compared: int
    num_unchanged: int
    num_raised: int
    num_lowered: int
    num_newly_graded: int
    num_newly_ungraded: int
    mean_before: float | None
    mean_after: float | None
    largest: tuple[ChangedReward, ...]
    """The largest changes first, at most five."""
    newly_ungraded: tuple[str, ...]
    """The first three trajectories that had a reward and have none now."""

    @property
    def num_changed(self) -> int:
        """Trajectories whose reward is another one now, or is there or not there now."""
        moved = self.num_raised + self.num_lowered
        return moved + self.num_newly_graded + self.num_newly_ungraded


@dataclass(frozen=True)
class VerdictChange:
    """Groups that had one verdict and have another one now; `examples` are trajectory ids."""

    before: str
    after: str
    num_groups: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class RunChanges:
    """Everything that changed. A grader's changes are there when it graded before and now."""

    num_groups: int
    num_trajectories: int
    weighted: RewardChanges
    graders: tuple[RewardChanges, ...]
    new_graders: tuple[str, ...]
    gone_graders: tuple[str, ...]
    verdicts: tuple[VerdictChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)


class ChangesOfRewards:
    """Add rewards before and after, group by group; ask for `summary`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_unchanged = self._num_raised = self._num_lowered = 0
        self._num_newly_graded = 0
        self._newly_ungraded = Examples()
        self._before, self._after = array("d"), array("d")
        self._largest: list[tuple[float, int, ChangedReward]] = []
        self._num_seen = 0

    def add(self, trajectory_ids: Sequence[str], *, before: Rewards, after: Rewards) -> None:
        """Compare the rewards of some trajectories; the three lists are aligned."""
        for name, old, new in zip(trajectory_ids, before, after, strict=True):
            if old is None:
                self._num_newly_graded += new is not None
            elif new is None:
                self._newly_ungraded.add(name)
            else:
                self._compare(name, old, new)

    def _compare(self, name: str, old: float, new: float) -> None:
        self._before.append(old)
        self._after.append(new)
        if old == new:
            self._num_unchanged += 1
            return
        self._num_raised += new > old
        self._num_lowered += new < old
        # an earlier one comes before a later one of the same size
        self._num_seen += 1
        entry = (abs(new - old), -self._num_seen, ChangedReward(name, old, new))
        if len(self._largest) < MAX_LARGEST:
            heapq.heappush(self._largest, entry)
        else:
            heapq.heappushpop(self._largest, entry)

    def summary(self) -> RewardChanges:
        """Return what was added so far."""
        num_compared = len(self._before)
        return RewardChanges(
            name=self._name,
            num_compared=num_compared,
            num_unchanged=self._num_unchanged,
            num_raised=self._num_raised,
            num_lowered=self._num_lowered,
            num_newly_graded=self._num_newly_graded,
            num_newly_ungraded=self._newly_ungraded.count,
            mean_before=mean_of(self._before) if num_compared else None,
            mean_after=mean_of(self._after) if num_compared else None,
            largest=tuple(entry for _, _, entry in sorted(self._largest, reverse=True)),
            newly_ungraded=tuple(self._newly_ungraded.ids),
        )


class ChangesOfRun:
    """Add each group as it was and as it is now; ask for `summary`."""

    def __init__(self) -> None:
        self._num_groups = self._num_trajectories = 0
        self._weighted = ChangesOfRewards("weighted")
        self._graders: dict[str, ChangesOfRewards] = {}
        self._before: dict[str, None] = {}
        self._after: dict[str, None] = {}
        self._verdicts: dict[tuple[Verdict, Verdict], Examples] = {}

    def add(self, before: GroupRecord, after: GroupRecord) -> None:
        """Compare two records of one group, which have the same trajectories."""
        self._num_groups += 1
        self._num_trajectories += len(after.trajectory_ids)
        names = after.trajectory_ids
        self._weighted.add(names, before=before.rewards, after=after.rewards)
        old = {grader.name: grader for grader in before.graders}
        new = {grader.name: grader for grader in after.graders}
        self._before.update(dict.fromkeys(old))
        self._after.update(dict.fromkeys(new))
        for name in new:
            if name in old:
                changes = self._graders.setdefault(name, ChangesOfRewards(name))
                changes.add(names, before=old[name].rewards, after=new[name].rewards)
        if before.verdict is not after.verdict:
            change = self._verdicts.setdefault((before.verdict, after.verdict), Examples())
            change.add(after.trajectory_ids[0])

    def summary(self) -> RunChanges:
        """Return what was added so far."""
        verdicts = sorted(self._verdicts.items(), key=lambda item: -item[1].count)
        return RunChanges(
            num_groups=self._num_groups,
            num_trajectories=self._num_trajectories,
            weighted=self._weighted.summary(),
            graders=tuple(changes.summary() for changes in self._graders.values()),
            new_graders=tuple(name for name in self._after if name not in self._before),
            gone_graders=tuple(name for name in self._before if name not in self._after),
            verdicts=tuple(
                VerdictChange(old, new, examples.count, tuple(examples.ids))
                for (old, new), examples in verdicts
            ),
        )
