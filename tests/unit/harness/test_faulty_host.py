"""Injected faults of the calls of rollouts and graders themselves."""

import asyncio

from arkdev import Runtime, rollout, single_grader
from arkdev.harness.faulty_host import FaultyHost
from arkdev.runs.records import HandledBy, Verdict
from arkdev.sessions.faults.grammar import parse_faults
from arkdev.sessions.faults.plan import FaultPlan
from tests.running import QUESTION, as_grader, lines, running

calls = []


@rollout
async def asks(context, proxy, sample):
    calls.append("asks")
    await proxy.async_rollout_client().chat.completions.create(**QUESTION)


@single_grader(runtime=Runtime(timeout=3))
async def half(context, sample, trajectory):
    calls.append("half")
    return 0.5


def faulty(run, inject, *, seed=0):
    run.host = FaultyHost(run.host, FaultPlan(parse_faults(inject), seed=seed))
    calls.clear()


def told(faults):
    return [(f.side.value, f.kind, f.target, f.handled_by.value, f.detail) for f in faults]


async def test_a_grader_that_raises_before_it_is_called_leaves_ungraded_and_never_zero():
    async with running(inject="") as run:
        faulty(run, "grader.raise=100%")
        (group,) = await run.samples(asks, as_grader(half, name="of the job"))
    assert calls == ["asks"]
    assert (group.rewards, group.verdict) == ((None,), Verdict.FAILURE)
    (grader,) = group.graders
    assert grader.attempts == 4
    assert "injected raise: half was not called" in grader.error
    assert (
        told(grader.faults) == [("grader", "raise", "of the job", "nobody", "injected raise")] * 4
    )


async def test_a_grader_times_out_as_if_its_own_time_had_passed():
    async with running() as run:
        faulty(run, "grader.timeout=100%")
        (group,) = await run.samples(asks, as_grader(half))
    (grader,) = group.graders
    assert "PluginTimeoutError: injected timeout: as if half had taken longer than 3 s" in (
        grader.error
    )
    assert grader.where.rpartition(":")[0].endswith("test_faulty_host.py")


async def test_a_slow_grader_is_called_late_and_one_slower_than_its_time_is_not_called():
    loop = asyncio.get_running_loop()
    async with running() as run:
        faulty(run, "grader.slow=100%:20ms")
        started = loop.time()
        (group,) = await run.samples(asks, as_grader(half))
        assert loop.time() - started >= 0.02
    assert group.rewards == (0.5,)
    assert told(group.graders[0].faults) == [("grader", "slow", "half", "plugin", "0.02 s")]
    async with running() as run:
        faulty(run, "grader.slow=100%:9s")
        (group,) = await run.samples(asks, as_grader(half))
    assert calls == ["asks"]
    assert "PluginTimeoutError: injected slow" in group.graders[0].error


async def test_a_rollout_that_raised_by_injection_is_tried_again_with_a_draw_of_its_own():
    async with running() as run:
        faulty(run, "rollout.raise=50%")
        await run.samples(asks, lines=lines(16))
    attempts = [f.record.attempts for f in run.finished]
    faults = [[told(a.faults) for a in each] for each in attempts]
    injected = [("rollout", "raise", "asks", "nobody", "injected raise")]
    assert {len(each) for each in attempts} >= {1, 2}
    for each in faults:
        assert all(f == injected for f in each[:-1])
        assert len(each) == 4 or each[-1] == []
    assert len(calls) == sum(f.record.verdict is Verdict.SUCCESS for f in run.finished)


async def test_a_fault_that_a_later_grading_made_good_stays_nobody_s_in_its_own_attempt():
    async with running() as run:
        faulty(run, "grader.raise=50%", seed=3)
        groups = await run.samples(asks, as_grader(half), lines=lines(12))
    again = [g.graders[0] for g in groups if g.graders[0].attempts > 1 and g.rewards == (0.5,)]
    assert again
    for grader in again:
        assert len(grader.faults) == grader.attempts - 1
        assert {fault.handled_by for fault in grader.faults} == {HandledBy.NOBODY}
