"""Groups that were graded several times: each grader's noise, and how far graders agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arkdev.harness.advantages import grpo_advantages
from arkdev.harness.bootstrap import Estimate, bootstrapped
from arkdev.harness.distributions import mean_of
from arkdev.harness.judge_agreement import krippendorff_alpha
from arkdev.harness.judge_noise import Gradings, JudgeNoise, judge_noise
from arkdev.runs.records import GroupRecord, Verdict

WEIGHTED = "weighted"


@dataclass(frozen=True)
class RepeatedGrader:
    """One grader's repeated gradings, or the weighted sum of all."""

    name: str
    reference: str | None
    """``module:function``; None: the weighted sum."""
    noise: JudgeNoise | None
    """None where no group of two was graded every time."""
    num_left_out: int
    """Trajectories that did not get a reward every time."""
    num_failed: int
    """Gradings of groups that failed for good."""
    error: str | None


@dataclass(frozen=True)
class GraderAgreement:
    """How far several graders agree: Krippendorff's alpha (interval) of each trajectory's means."""

    rewards: Estimate
    advantages: Estimate
    """Of the advantages that each grader's rewards alone would give: whatever their scale."""
    num_trajectories: int


Repeats = Sequence[GroupRecord]
"""Of one group: its record from each grading."""


def repeated_graders(
    repeats: Sequence[Repeats], *, references: Mapping[str, str], seed: int
) -> tuple[RepeatedGrader, ...]:
    """Return the noise of each grader, with several also of the weighted sum.

    `references` has the graders' ``module:function`` by name, in the order of the records.
    """
    graders = [
        _repeated(repeats, number, name=name, reference=reference, seed=seed)
        for number, (name, reference) in enumerate(references.items())
    ]
    if len(graders) > 1:
        graders.append(_repeated(repeats, None, name=WEIGHTED, reference=None, seed=seed))
    return tuple(graders)


def graders_agreement(repeats: Sequence[Repeats], *, seed: int) -> GraderAgreement | None:
    """Return how far the graders agree; None where there is one."""
    num_graders = len(repeats[0][0].graders)
    if num_graders < 2:
        return None
    rewards: list[list[_Unit]] = []
    advantages: list[list[_Unit]] = []
    for group in repeats:
        means = [
            [_mean(column) for column in _columns(group, number)] for number in range(num_graders)
        ]
        rewards.append(list(zip(*means, strict=True)))
        advantages.append(list(zip(*map(_advantages, means), strict=True)))
    return GraderAgreement(
        rewards=bootstrapped(rewards, _alpha, seed=seed),
        advantages=bootstrapped(advantages, _alpha, seed=seed),
        num_trajectories=sum(map(len, rewards)),
    )


def _rewards(record: GroupRecord, number: int | None) -> Sequence[float | None]:
    """Return what grader `number` gave, None: the weighted sums."""
    return record.rewards if number is None else record.graders[number].rewards


def _columns(repeats: Repeats, number: int | None) -> list[list[float | None]]:
    """Return for each trajectory of a group what it got each time."""
    rows = [_rewards(record, number) for record in repeats]
    return [list(column) for column in zip(*rows, strict=True)]


def _repeated(
    repeats: Sequence[Repeats],
    number: int | None,
    *,
    name: str,
    reference: str | None,
    seed: int,
) -> RepeatedGrader:
    groups: list[Gradings] = []
    num_left_out = 0
    for group in repeats:
        columns = _columns(group, number)
        whole = [[v for v in column if v is not None] for column in columns if None not in column]
        num_left_out += len(columns) - len(whole)
        if len(whole) > 1:
            groups.append(whole)
    records = [] if number is None else [r.graders[number] for group in repeats for r in group]
    failed = [r for r in records if r.verdict in (Verdict.FAILURE, Verdict.RETRY)]
    return RepeatedGrader(
        name,
        reference=reference,
        noise=judge_noise(groups, seed=seed) if groups else None,
        num_left_out=num_left_out,
        num_failed=len(failed),
        error=failed[0].error if failed else None,
    )


_Unit = tuple[float | None, ...]
"""Of one trajectory: a number from each grader."""


def _alpha(groups: Sequence[Sequence[_Unit]]) -> float | None:
    return krippendorff_alpha([unit for group in groups for unit in group])


def _mean(column: Sequence[float | None]) -> float | None:
    known = [value for value in column if value is not None]
    return mean_of(known) if known else None


def _advantages(means: Sequence[float | None]) -> list[float | None]:
    known = iter(grpo_advantages([mean for mean in means if mean is not None]))
    return [None if mean is None else next(known) for mean in means]
