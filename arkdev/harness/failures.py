"""What became of each failure: of a fault, and of an attempt that did not end well.

Pure functions of records (docs/failures.md). A fault is counted where it happened and a failed
attempt where it ended, so that an attempt that a fault brought down is in both lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from arkdev.harness.advantages import (
    Advantage,
    advantage_grader,
    group_advantages,
    grpo_advantages,
)
from arkdev.runs.records import (
    Attempt,
    FailedGrading,
    FaultRecord,
    FaultSide,
    GraderRecord,
    GroupRecord,
    HandledBy,
    TrajectoryRecord,
    Verdict,
)

_DROPS = (Verdict.DISCARD, Verdict.RETRY)


class Handling(StrEnum):
    """Who dealt with a failure, and how."""

    RESENT = "resent"
    """arkdev sent the model call again, and it was answered."""
    REPEATED = "repeated"
    """arkdev called the plugin again, and a later attempt ended well."""
    PLUGIN = "plugin"
    """The plugin got the fault, and the same attempt ended well."""
    GIVEN_UP = "given_up"
    """The plugin gave the sample up: it returned DISCARD."""
    NOBODY = "nobody"
    """No attempt ended well."""


class Fate(StrEnum):
    """What became of a trajectory, or of a group."""

    TRAINED = "trained"
    """It has its part in a group whose advantages are not all 0."""
    NO_SIGNAL = "no_signal"
    """Its group's advantages are all 0."""
    DROPPED = "dropped"
    """Its group was dropped."""
    UNGRADED = "ungraded"
    """A grader gave it no reward: a job would fail."""
    JOB_FAILS = "job_fails"
    """It failed, or another one of its group did: a job would fail."""
    PENDING = "pending"
    """Its group was not graded: no graders, or the run was cut short."""


@dataclass(frozen=True)
class Failure:
    """One fault, or one attempt without success."""

    side: FaultSide
    kind: str
    handling: Handling
    num_attempts: int
    """Of the rollout or grading, all in all."""
    verdict: Verdict
    """How the rollout or grading ended."""
    plugin: str
    """Whose call it fell on: ``rollout`` or ``grader``."""
    source: str
    """``attempt 2`` of a rollout, or the grader's name."""
    trajectory_id: str | None
    """None: it concerns the whole group."""
    fault: FaultRecord | None = None
    """None: an attempt that did not end well."""


@dataclass(frozen=True)
class MovedSibling:
    """A sibling's advantage with a trajectory in the group, and without it."""

    trajectory_id: str
    advantage: float
    without: float

    @property
    def shift(self) -> float:
        """By how much the trajectory moved it."""
        return self.advantage - self.without

    @property
    def changes_sign(self) -> bool:
        """Whether it is pushed the other way because of the trajectory."""
        return self.advantage * self.without < 0


@dataclass(frozen=True)
class AttemptEnd:
    """What is kept of an attempt until its group is done; `kind` is None for a success."""

    kind: str | None
    verdict: Verdict
    faults: tuple[FaultRecord, ...]


@dataclass(frozen=True)
class TroubledRollout:
    """What is kept of a rollout with failures until its group is done."""

    trajectory_id: str
    verdict: Verdict
    attempts: tuple[AttemptEnd, ...]
    is_whole_group: bool
    """Its plugin call made all trajectories of the group."""
    is_first_of_call: bool


def troubled(record: TrajectoryRecord) -> TroubledRollout | None:
    """Return what a rollout's failures leave to be told; None when it had none."""
    if not any(a.faults or a.verdict is not Verdict.SUCCESS for a in record.attempts):
        return None
    return TroubledRollout(
        record.trajectory_id,
        record.verdict,
        attempts=tuple(
            AttemptEnd(_kind(attempt), attempt.verdict, attempt.faults)
            for attempt in record.attempts
        ),
        is_whole_group=record.call_size > 1,
        is_first_of_call=record.is_first_of_call,
    )


def rollout_failures(rollout: TroubledRollout) -> Iterator[Failure]:
    """Yield the failures of a plugin call, attempt by attempt: its faults, then its end."""
    if not rollout.is_first_of_call:
        return
    whose = None if rollout.is_whole_group else rollout.trajectory_id
    for number, attempt in enumerate(rollout.attempts, start=1):
        for fault in attempt.faults:
            yield Failure(
                fault.side,
                fault.kind,
                _handling(fault.handled_by, attempt=attempt.verdict, final=rollout.verdict),
                num_attempts=len(rollout.attempts),
                verdict=rollout.verdict,
                plugin="rollout",
                source=f"attempt {number}",
                trajectory_id=whose,
                fault=fault,
            )
        if attempt.kind is not None:
            yield Failure(
                FaultSide.ROLLOUT,
                attempt.kind,
                _handling(HandledBy.NOBODY, attempt=attempt.verdict, final=rollout.verdict),
                num_attempts=len(rollout.attempts),
                verdict=rollout.verdict,
                plugin="rollout",
                source=f"attempt {number}",
                trajectory_id=whose,
            )


def grader_failures(grader: GraderRecord, group: GroupRecord) -> Iterator[Failure]:
    """Yield the failures of a grading: its faults, then its failed attempts."""
    for fault in grader.faults:
        final = verdict_of_grading(fault.trajectory_id, grader, group)
        # its attempt is not told: one that nobody handled did not end well
        yield Failure(
            fault.side,
            fault.kind,
            _handling(fault.handled_by, attempt=final, final=final),
            num_attempts=_attempts_for(fault.trajectory_id, grader, final=final),
            verdict=final,
            plugin="grader",
            source=grader.name,
            trajectory_id=fault.trajectory_id,
            fault=fault,
        )
    for failed in grader.failed_attempts:
        final = verdict_of_grading(failed.trajectory_id, grader, group)
        yield Failure(
            FaultSide.GRADER,
            _kind(failed) or "",
            _handling(HandledBy.NOBODY, attempt=failed.verdict, final=final),
            num_attempts=_attempts_for(failed.trajectory_id, grader, final=final),
            verdict=final,
            plugin="grader",
            source=grader.name,
            trajectory_id=failed.trajectory_id,
        )


def failures_of(record: TrajectoryRecord, group: GroupRecord | None) -> list[Failure]:
    """Return all that concerns one trajectory: of its plugin call, and of its gradings."""
    trouble = troubled(record)
    found = (
        list(rollout_failures(replace(trouble, is_first_of_call=True)))
        if trouble is not None
        else []
    )
    if group is not None:
        for grader in group.graders:
            found += [
                failure
                for failure in grader_failures(grader, group)
                if failure.trajectory_id in (None, record.trajectory_id)
            ]
    return found


def fate(
    group: GroupRecord | None, trajectory_id: str | None, *, verdict: Verdict = Verdict.SUCCESS
) -> Fate:
    """Return what became of a trajectory whose rollout ended with `verdict`.

    Without an id: of the group. Without a group: of one that was never finished.
    """
    own = group.verdict if group is not None and trajectory_id is None else verdict
    if own in _DROPS or (group is not None and group.verdict in _DROPS):
        return Fate.DROPPED
    if verdict is Verdict.FAILURE:
        return Fate.JOB_FAILS
    if group is None or not group.graders:
        return Fate.PENDING
    if trajectory_id is not None and reward_of(group, trajectory_id) is None:
        return Fate.UNGRADED
    if group.verdict is Verdict.FAILURE:
        is_graded = any(reward is not None for reward in group.rewards)
        return Fate.JOB_FAILS if is_graded else Fate.UNGRADED
    return Fate.TRAINED if _has_signal(group_advantages(group)) else Fate.NO_SIGNAL


def sibling_shift(group: GroupRecord, trajectory_id: str) -> tuple[MovedSibling, ...] | None:
    """Return the advantages of a trajectory's siblings with it in the group, and without it.

    None when it is in no group that is trained on, or alone in it, or the group has no signal, or
    when a grader gave the advantages: what it would have given without the trajectory is not known.
    """
    if group.verdict is not Verdict.SUCCESS or advantage_grader(group.graders) is not None:
        return None
    rewards = {
        name: reward
        for name, reward in zip(group.trajectory_ids, group.rewards, strict=True)
        if reward is not None
    }
    if trajectory_id not in rewards or len(rewards) < 2:
        return None
    whole = dict(zip(rewards, grpo_advantages(list(rewards.values())), strict=True))
    if not _has_signal(list(whole.values())):
        return None
    del rewards[trajectory_id]
    without = grpo_advantages(list(rewards.values()))
    return tuple(
        MovedSibling(name, whole[name], without=alone)
        for name, alone in zip(rewards, without, strict=True)
    )


def reward_of(group: GroupRecord, trajectory_id: str) -> float | None:
    """Return the reward of a member; None is ungraded."""
    return dict(zip(group.trajectory_ids, group.rewards, strict=False)).get(trajectory_id)


def _has_signal(advantages: Sequence[Advantage | None]) -> bool:
    return any(any(a) if isinstance(a, tuple) else a for a in advantages if a is not None)


def _handling(handled_by: HandledBy, *, attempt: Verdict, final: Verdict) -> Handling:
    if handled_by is HandledBy.HARNESS:
        return Handling.RESENT
    if handled_by is HandledBy.PLUGIN:
        return Handling.PLUGIN
    if final is Verdict.SUCCESS:
        return Handling.REPEATED
    return Handling.GIVEN_UP if attempt is Verdict.DISCARD else Handling.NOBODY


def verdict_of_grading(
    trajectory_id: str | None, grader: GraderRecord, group: GroupRecord
) -> Verdict:
    """Return how the grading of one trajectory ended: one of them may fail alone."""
    if trajectory_id is None or grader.verdict is Verdict.SUCCESS:
        return grader.verdict
    rewards = dict(zip(group.trajectory_ids, grader.rewards, strict=False))
    if rewards.get(trajectory_id) is not None:
        return Verdict.SUCCESS
    own = [f.verdict for f in grader.failed_attempts if f.trajectory_id == trajectory_id]
    return own[-1] if own else grader.verdict


def _attempts_for(trajectory_id: str | None, grader: GraderRecord, *, final: Verdict) -> int:
    """Return how many attempts a grading took: that of one trajectory, or of the whole group."""
    if trajectory_id is None:
        return grader.attempts
    own = sum(failed.trajectory_id == trajectory_id for failed in grader.failed_attempts)
    return own + (final is Verdict.SUCCESS)


_KINDS = (("PluginTimeoutError:", "timeout"), ("PluginResultError:", "bad_result"))


def _kind(attempt: Attempt | FailedGrading) -> str | None:
    """Name how an attempt failed: by an exception, which knows its place, or by a status."""
    if attempt.verdict is not Verdict.FAILURE:
        return None if attempt.verdict is Verdict.SUCCESS else attempt.verdict.value
    error = attempt.error or ""
    named = next((kind for start, kind in _KINDS if error.startswith(start)), None)
    return named or ("exception" if attempt.where else "failure")
