"""Slots and groups: how many rollouts run at once, and when a group is graded (decisions 1–4).

One slot is one rollout. A free slot takes the next rollout in dataset order; grading begins when
all rollouts of a sample are done and does not occupy a slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from arkdev.harness.hidden_tasks import current_task_hidden, hidden
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.runs.records import GroupRecord, TrajectoryRecord, Verdict

_DROPS_THE_GROUP = (Verdict.DISCARD, Verdict.RETRY)


class Rollouts(Protocol):
    """Makes the trajectories of a sample: a `RolloutRunner` here, or processes of their own."""

    @property
    def makes_groups(self) -> bool:
        """True when one call makes all trajectories of a sample."""
        ...

    async def run(
        self, sample: SampleToRun, *, generations: range, run_seed: int
    ) -> list[FinishedRollout]:
        """See `RolloutRunner.run`."""
        ...


class Grading(Protocol):
    """Grades the trajectories of a sample: a `GroupGrading` here, or processes of their own."""

    async def grade(self, sample: SampleToRun, rollouts: Sequence[FinishedRollout]) -> GroupRecord:
        """See `GroupGrading.grade`."""
        ...


@dataclass(frozen=True)
class EngineSettings:
    """How the engine runs a set of samples."""

    num_generations: int = 1
    """Rollouts of each sample."""
    concurrency: int = 32
    """Slots: rollouts that run at once."""
    run_seed: int = 0


@dataclass
class _Group:
    """A sample whose rollouts are under way."""

    sample: SampleToRun
    num_calls: int
    """Calls of the plugin that make the group: one for each rollout, or one for all."""
    rollouts: list[FinishedRollout] = field(default_factory=list)
    num_begun: int = 0
    num_done: int = 0

    @property
    def is_dropped(self) -> bool:
        """True once a rollout gave the sample up; the rest is not begun."""
        return any(finished.record.verdict in _DROPS_THE_GROUP for finished in self.rollouts)

    @property
    def is_done(self) -> bool:
        """True when nothing runs and nothing will be begun."""
        return self.num_done == self.num_begun and (
            self.is_dropped or self.num_begun == self.num_calls
        )


class Engine:
    """Runs samples through a rollout and its graders.

    `on_rollout` and `on_group` see every finished rollout and group before anything else does;
    they write it down.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        grading: Grading,
        settings: EngineSettings,
        *,
        on_rollout: Callable[[FinishedRollout], object],
        on_group: Callable[[GroupRecord], object],
    ) -> None:
        self._rollouts = rollouts
        self._grading = grading
        self._settings = settings
        self._on_rollout = on_rollout
        self._on_group = on_group
        self.num_busy = 0
        self._is_all_begun = False

    async def run(self, samples: Iterable[SampleToRun]) -> None:
        """Run every sample; returns when the last group is done."""
        work = self._work(samples)
        with current_task_hidden():
            await self._run(work)

    async def _run(self, work: Iterable[tuple[_Group, range]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._settings.concurrency):
                hidden(tasks.create_task(self._slot(work, tasks)))
                # one by one: hundreds of first calls in one turn would stop the loop for a second
                await asyncio.sleep(0)
                if self._is_all_begun:  # no use for more slots than rollouts
                    break

    def _work(self, samples: Iterable[SampleToRun]) -> Iterable[tuple[_Group, range]]:
        """Yield (group, generations) in dataset order; a dropped group's rest is not begun.

        A group rollout makes all generations in one call, any other one in each.
        """
        every = range(self._settings.num_generations)
        calls = [every] if self._rollouts.makes_groups else [every[i : i + 1] for i in every]
        for sample in samples:
            group = _Group(sample, num_calls=len(calls))
            for generations in calls:
                if group.is_dropped:
                    break
                group.num_begun += 1
                yield group, generations

    async def _slot(self, work: Iterable[tuple[_Group, range]], tasks: asyncio.TaskGroup) -> None:
        for group, generations in work:
            self.num_busy += 1
            try:
                finished = await self._rollouts.run(
                    group.sample, generations=generations, run_seed=self._settings.run_seed
                )
            finally:
                self.num_busy -= 1
            for rollout in finished:
                self._on_rollout(rollout)
            group.rollouts += finished
            group.num_done += 1
            if group.is_done:
                hidden(tasks.create_task(self._finish(group)))
        self._is_all_begun = True

    async def _finish(self, group: _Group) -> None:
        group.rollouts.sort(key=lambda finished: finished.record.generation)
        self._on_group(await grade_group(group.sample, group.rollouts, grading=self._grading))


async def grade_group(
    sample: SampleToRun, rollouts: Sequence[FinishedRollout], *, grading: Grading
) -> GroupRecord:
    """Grade the rollouts of one sample, unless one of them dropped the group or all failed."""
    verdicts = [finished.record.verdict for finished in rollouts]
    is_dropped = any(verdict in _DROPS_THE_GROUP for verdict in verdicts)
    if is_dropped or Verdict.SUCCESS not in verdicts:
        return _ungraded(sample, [finished.record for finished in rollouts])
    return await grading.grade(sample, rollouts)


def _ungraded(sample: SampleToRun, records: Sequence[TrajectoryRecord]) -> GroupRecord:
    """Return the record of a group that is not graded: dropped, or without a success."""
    reason = next(
        (r for r in records if r.verdict in _DROPS_THE_GROUP),
        next(r for r in records if r.verdict is not Verdict.SUCCESS),
    )
    return GroupRecord(
        sample_index=sample.index,
        verdict=reason.verdict,
        trajectory_ids=tuple(record.trajectory_id for record in records),
        rewards=(None,) * len(records),
        error=reason.attempts[-1].error,
    )
