"""`arkdev test grader --repeat N`: a recorded run graded N times, and how noisy its graders are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from arkdev.errors import ExitCode, RunError
from arkdev.flows.test_grader import GraderTestObserver, GraderTestPlan, graders_environment
from arkdev.harness.grading import GroupGrading
from arkdev.harness.hidden_tasks import hidden
from arkdev.harness.regrading import recorded_rollouts, recorded_sample
from arkdev.harness.repeated_grading import (
    GraderAgreement,
    RepeatedGrader,
    Repeats,
    graders_agreement,
    repeated_graders,
)
from arkdev.plugin.host import InProcessHost
from arkdev.runs.masking import masked_value
from arkdev.runs.recorded import RecordedGroup
from arkdev.runs.records import GroupRecord, Verdict

DEFAULT_GROUPS = 32


@dataclass(frozen=True)
class RepeatOutcome:
    """What repeated grading came to."""

    run: str
    num_groups: int
    num_gradings: int
    """Of each trajectory."""
    num_small_groups: int
    """Groups with fewer than two successful trajectories: they have no spread."""
    graders: tuple[RepeatedGrader, ...]
    agreement: GraderAgreement | None
    """None with one grader."""
    judge_calls: int
    """Model calls of graders that went to the scripted model, for want of an ARK_BASE_URL."""
    exit_code: ExitCode


async def run_repeat(plan: GraderTestPlan, observer: GraderTestObserver) -> RepeatOutcome:
    """Grade every group N times. What graders do wrong is in the outcome, not an exception.

    Raises `RunError` when the run has no group of two successful trajectories.
    """
    num_gradings = plan.request.repeat or 0
    assert plan.source is not None
    recorded = plan.groups(limit=plan.request.limit or DEFAULT_GROUPS)
    groups = list(recorded)
    large = [group for group in groups if _num_successes(group) > 1]
    if not large:
        raise RunError(
            f"run {plan.source.manifest.run_id} has no group of two successful rollouts, so there "
            "is no spread that noise could be compared with",
            hint="record one with `arkdev test plugin --n-sample 8`",
        )
    async with graders_environment(plan) as judge:
        observer.on_start(len(large))
        repeats = await _all_graded(plan, large, observer=observer)
        num_judge_calls = judge.num_chat_calls if judge is not None else 0
    references = {grader.name: grader.loaded.reference for grader in plan.graders}
    graders = repeated_graders(repeats, references=references, seed=plan.request.seed)
    is_bad = any(grader.num_failed for grader in graders)
    return RepeatOutcome(
        run=plan.source.manifest.run_id,
        num_groups=len(large),
        num_gradings=num_gradings,
        num_small_groups=len(groups) - len(large),
        graders=masked_value(graders, secrets=plan.secrets),
        agreement=graders_agreement(repeats, seed=plan.request.seed),
        judge_calls=num_judge_calls,
        exit_code=ExitCode.SOME_FAILED if is_bad else ExitCode.OK,
    )


def _num_successes(group: RecordedGroup) -> int:
    return sum(one.record.verdict is Verdict.SUCCESS for one in group.trajectories)


async def _all_graded(
    plan: GraderTestPlan, groups: Sequence[RecordedGroup], *, observer: GraderTestObserver
) -> list[Repeats]:
    grading = GroupGrading(plan.graders, host=InProcessHost(), context=plan.context)
    slots = asyncio.Semaphore(plan.concurrency)

    async def once(group: RecordedGroup) -> GroupRecord:
        rollouts = [
            rollout
            for rollout in recorded_rollouts(group)
            if rollout.record.verdict is Verdict.SUCCESS
        ]
        async with slots:
            return await grading.grade(recorded_sample(group), rollouts)

    async def repeated(group: RecordedGroup) -> Repeats:
        async with asyncio.TaskGroup() as tasks:
            running = [
                hidden(tasks.create_task(once(group))) for _ in range(plan.request.repeat or 0)
            ]
        observer.on_step()
        return [task.result() for task in running]

    async with asyncio.TaskGroup() as tasks:
        running = [hidden(tasks.create_task(repeated(group))) for group in groups]
    return [task.result() for task in running]
