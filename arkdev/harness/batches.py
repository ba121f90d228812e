"""What becomes of a step's groups: the batch to train on (field case 3.3; ROLL-15, GROUP-08).

The rules, from the contract:

* A group that was discarded or dropped leaves the batch whole, before anything is computed from
  more than one group. Nothing takes its place (`arkdev.job.batches`).
* Advantages are computed inside each group, so that the others do not change by that.
* A member without a reward (ungraded, or failed for good) is in no batch; where a job runs, a
  failure for good ends the job before that.
* A step whose groups all left is skipped. One whose advantages are all 0 has nothing to learn from;
  it is trained on like any other, and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from arkdev.harness.advantages import Advantage, batch_advantages
from arkdev.job.batches import Batch
from arkdev.runs.records import GroupRecord, Verdict

_DROPS_THE_GROUP = (Verdict.DISCARD, Verdict.RETRY)


@dataclass(frozen=True)
class TrainingBatch:
    """The groups of one step that are trained on."""

    batch: Batch
    groups: tuple[GroupRecord, ...]
    """In the order of the plan, whatever the order in which they were done."""
    dropped: Mapping[int, str]
    """Sample → why its group left."""
    advantages: Mapping[str, Advantage]
    """By trajectory id, of every member with a reward."""

    @property
    def is_skipped(self) -> bool:
        """True when nothing is left to train on: no update is made."""
        return not self.advantages

    @property
    def num_without_signal(self) -> int:
        """Groups all of whose advantages are 0."""
        return sum(not self._has_signal(group) for group in self.groups)

    def _has_signal(self, group: GroupRecord) -> bool:
        own = (self.advantages.get(trajectory_id, 0.0) for trajectory_id in group.trajectory_ids)
        return any(any(value) if isinstance(value, tuple) else value for value in own)

    @property
    def with_signal(self) -> TrainingBatch:
        """The same without the groups all of whose advantages are 0, which leave the loss and what
        it is divided by (Yu et al. 2025, arXiv:2503.14476, section 3.2; there others take their
        place, here nothing does)."""
        groups = tuple(group for group in self.groups if self._has_signal(group))
        names = {name for group in groups for name in group.trajectory_ids}
        advantages = {name: value for name, value in self.advantages.items() if name in names}
        return replace(self, groups=groups, advantages=advantages)

    @property
    def message(self) -> str:
        """What a person should know of the step; "" when all of it is trained on."""
        step = f"step {self.batch.step}"
        num_groups = len(self.batch.indices)
        if self.is_skipped:
            return f"{step} is skipped: none of its {num_groups} groups is left ({self._reasons()})"
        if self.num_without_signal == len(self.groups):
            return f"{step} has nothing to learn from: all advantages of a group are 0 in each"
        if self.dropped:
            return (
                f"{step} is smaller: {len(self.dropped)} of its {num_groups} groups left "
                f"({self._reasons()})"
            )
        return ""

    def _reasons(self) -> str:
        counts: dict[str, int] = {}
        for reason in self.dropped.values():
            counts[reason] = counts.get(reason, 0) + 1
        return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def compose_batch(batch: Batch, groups: Iterable[GroupRecord]) -> TrainingBatch:
    """Make the batch of a step from the records of its groups.

    Raises `ValueError` when a group is missing, is there twice or belongs to another step, and
    `PluginResultError` when only some groups have advantages of a grader's own (ADV-09).
    """
    by_sample: dict[int, GroupRecord] = {}
    for group in groups:
        if group.sample_index in by_sample:
            raise ValueError(f"two groups of sample {group.sample_index} in step {batch.step}")
        by_sample[group.sample_index] = group
    if by_sample.keys() != set(batch.indices):
        wrong = sorted(by_sample.keys() ^ set(batch.indices))
        raise ValueError(f"samples {wrong} are in step {batch.step} or in its groups, not in both")
    ordered = [by_sample[index] for index in batch.indices]
    dropped = {group.sample_index: reason for group in ordered if (reason := _why_it_left(group))}
    kept = tuple(group for group in ordered if group.sample_index not in dropped)
    return TrainingBatch(batch, kept, dropped, batch_advantages(kept))


def _why_it_left(group: GroupRecord) -> str:
    if group.verdict in _DROPS_THE_GROUP:
        return "discarded" if group.verdict is Verdict.DISCARD else "dropped after its retries"
    if all(reward is None for reward in group.rewards):
        return "failed" if group.verdict is Verdict.FAILURE else "ungraded"
    return ""
