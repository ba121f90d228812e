"""Graders and the final reward; field cases 3.7 and 10.3."""

import asyncio
import threading

import pytest

from arkdev import (
    GroupGraderResult,
    Runtime,
    group_grader,
    rollout,
    single_grader,
)
from arkdev.errors import EndpointResponseError
from arkdev.harness.grading import weighted_rewards
from arkdev.harness.statistics import RunStatistics
from arkdev.runs.records import GraderRecord, Verdict
from tests.running import QUESTION, always_one, answer, as_grader, lines, running


@rollout
async def asks(context, proxy, sample):
    await proxy.async_rollout_client().chat.completions.create(**QUESTION)


_is_over = threading.Event()
JUDGE_DOWN = EndpointResponseError("judge is down", status=503, is_transient=True)


def _raises(context, sample, trajectories):
    raise RuntimeError("grader broke")


async def _judge_is_down(context, sample, trajectories):
    raise JUDGE_DOWN


async def _takes_too_long(context, sample, trajectories):
    await asyncio.sleep(60)


def _takes_too_long_in_a_thread(context, sample, trajectories):
    _is_over.wait(60)


BROKEN_GRADERS = {
    "raises": (_raises, "RuntimeError: grader broke"),
    "judge always 503": (_judge_is_down, "EndpointResponseError: judge is down"),
    "times out": (_takes_too_long, "PluginTimeoutError: grader took longer than 0.02 s"),
    "sync and times out": (_takes_too_long_in_a_thread, "PluginTimeoutError"),
    "returns nothing": (lambda c, s, t: None, "PluginResultError"),
    "returns NaN": (lambda c, s, t: [1.0, float("nan")], "rewards[1]=nan"),
    "returns None for one": (lambda c, s, t: [1.0, None], "rewards[1]=None"),
    "returns too few": (lambda c, s, t: [1.0], "1 rewards for 2 trajectories"),
    "returns too many": (lambda c, s, t: [1.0] * 3, "3 rewards for 2 trajectories"),
    "exits": (lambda c, s, t: exit(1), "sys.exit(1)"),
}


@pytest.mark.parametrize("case", BROKEN_GRADERS)
async def test_a_grader_that_breaks_leaves_its_group_ungraded_and_never_zero(case):
    function, error = BROKEN_GRADERS[case]
    runtime = Runtime(timeout=0.02 if "times out" in case else None)
    broken = group_grader(name="grader", runtime=runtime)(function)
    _is_over.clear()
    async with running() as run:
        (group,) = await run.samples(asks, broken, n=2)
    _is_over.set()
    (record,) = group.graders
    assert (group.verdict, group.rewards, record.rewards) == ("failure", (None,) * 2, (None,) * 2)
    assert (record.attempts, len(run.requests)) == (4, 2), "the grader alone runs again"
    assert error in record.error
    assert record.where.startswith(__file__)


async def test_ungraded_is_counted_beside_the_mean_of_the_graded():
    @group_grader
    def breaks_on_odd(context, sample, trajectories):
        if sample.extra["index"] % 2:
            raise RuntimeError("no")
        return [0.5] * len(trajectories)

    async with running() as run:
        await run.samples(asks, breaks_on_odd, lines=lines(4), n=2)
    statistics = RunStatistics(2)
    for finished in run.finished:
        statistics.add_trajectory(finished.record)
    for group in run.groups:
        statistics.add_group(group)
    summary = statistics.summary()
    assert (summary.num_graded, summary.num_ungraded, summary.reward.mean) == (4, 4, 0.5)


async def test_one_trajectory_that_cannot_be_graded_does_not_cost_the_others_their_reward():
    @single_grader
    def breaks_once(context, sample, trajectory):
        if trajectory.messages[-1].content == "answer 1":
            raise RuntimeError("no")
        return 1.0

    async with running(lambda _: answer(f"answer {len(run.requests)}")) as run:
        (group,) = await run.samples(asks, breaks_once, n=3, concurrency=1)
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (None, 1.0, 1.0))
    assert group.graders[0].error == "RuntimeError: no"


async def test_a_grader_of_weight_0_is_observed_and_decides_nothing():
    broken = group_grader(name="broken")(_raises)

    @group_grader
    def drops(context, sample, trajectories):
        return GroupGraderResult(status="discard", error="not counted")

    graders = [always_one, as_grader(broken, weight=0), as_grader(drops, weight=0)]
    async with running() as run:
        (group,) = await run.samples(asks, *graders, n=2)
    assert (group.verdict, group.rewards, group.error) == (Verdict.SUCCESS, (1.0, 1.0), None)
    assert [record.verdict for record in group.graders] == ["success", "failure", "discard"]
    assert [record.rewards for record in group.graders][1:] == [(None, None)] * 2


async def test_a_grader_with_weight_that_breaks_leaves_no_reward():
    broken = group_grader(name="broken")(_raises)
    async with running() as run:
        (group,) = await run.samples(asks, always_one, as_grader(broken, weight=0.1))
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (None,))
    assert group.graders[0].rewards == (1.0,)
    assert group.error == "RuntimeError: grader broke"


def test_weights_add_up_and_missing_stays_missing():
    def record(weight, *rewards):
        return GraderRecord("g", weight, Verdict.SUCCESS, rewards)

    def weighted(*graders, num_trajectories=2):
        return weighted_rewards(graders, num_trajectories=num_trajectories)

    assert weighted(record(0.5, 1.0, 0.0), record(2.0, 1.0, 1.0)) == [2.5, 2.0]
    assert weighted(record(1.0, 1.0, None), record(0.0, None, 1.0)) == [1.0, None]
    assert weighted(record(0.0, 1.0, 1.0)) == [None, None]
    assert weighted(record(-1.0, 1.0, 0.5)) == [-1.0, -0.5]


async def test_a_weighted_reward_that_is_no_float_is_a_failure_that_is_told():
    @group_grader
    def large(context, sample, trajectories):
        return [1.0, 10.0]

    async with running() as run:
        (group,) = await run.samples(asks, as_grader(large, weight=1e308), n=2)
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (1e308, None))
    assert group.error is not None
    assert group.error.startswith("the weighted reward of 0.1 is past the largest float")


async def test_the_mean_is_over_graded_rollouts_not_over_turns():
    turns = {0: 2, 1: 8, 2: 1}

    @rollout
    async def of_many_turns(context, proxy, sample):
        client = proxy.async_rollout_client()
        for _ in range(turns[sample.extra["index"]]):
            await client.chat.completions.create(**QUESTION)
        if sample.extra["index"] == 2:
            raise ValueError("no")

    @single_grader
    def first_is_right(context, sample, trajectory):
        return float(sample.extra["index"] == 0)

    async with running() as run:
        await run.samples(of_many_turns, first_is_right, lines=lines(3))
    statistics = RunStatistics(1)
    for finished in run.finished:
        statistics.add_trajectory(finished.record)
    for group in run.groups:
        statistics.add_group(group)
    summary = statistics.summary()
    assert (summary.reward.mean, summary.num_graded) == (0.5, 2)
    assert summary.verdicts["failure"] == 1
