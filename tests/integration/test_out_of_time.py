"""Plugins that run out of time, and many that block at once; field case 5.1."""

import asyncio
import threading

import pytest

from arkdev import Runtime, group_grader, group_rollout, rollout, single_grader
from arkdev.plugin import clients
from arkdev.runs.records import Verdict
from arkdev.types import GroupRolloutResult, SingleResponse
from tests.running import QUESTION, answer, lines, running

SHORT = Runtime(timeout=1.5)


@pytest.fixture(autouse=True)
async def _prepared():
    """What the first client and the first call load must not count as the time of a rollout."""
    clients.prepare()


async def test_64_graders_that_sleep_run_at_once():
    @rollout
    async def quick(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    all_sleep = threading.Barrier(64)

    @single_grader
    def sleeps(context, sample, trajectory):
        all_sleep.wait(60)
        return 1.0

    async with running() as run:
        groups = await run.samples(quick, sleeps, lines=lines(64), concurrency=64)
    assert [group.rewards for group in groups] == [(1.0,)] * 64


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_group_rollout_that_runs_out_of_time_leaves_nothing_in_its_group(is_async):
    proxies, is_over, late = [], threading.Event(), threading.Event()

    def result_of(*responses):
        return GroupRolloutResult(responses=[SingleResponse(id=r.id) for r in responses])

    @group_rollout(runtime=SHORT)
    async def asynchronous(context, proxy, sample, n_sample):
        proxies.append(proxy)
        client = proxy.async_rollout_client()
        made = [await client.responses.create(model="m", input="x") for _ in range(n_sample)]
        if len(proxies) == 1:
            try:
                await asyncio.sleep(60)
            finally:
                late.set()
        return result_of(*made)

    @group_rollout(runtime=SHORT)
    def synchronous(context, proxy, sample, n_sample):
        proxies.append(proxy)
        client = proxy.rollout_client()
        made = [client.responses.create(model="m", input="x") for _ in range(n_sample)]
        if len(proxies) == 1:
            is_over.wait(60)
            late.set()
        return result_of(*made)

    async with running(lambda _: answer(f"answer {len(run.requests)}")) as run:
        records = await run.group(asynchronous if is_async else synchronous, n=2)
        is_over.set()
        assert await asyncio.to_thread(late.wait, 60)
    assert [finished.record.verdict for finished in records] == [Verdict.SUCCESS] * 2
    attempts = records[0].record.attempts
    assert [attempt.verdict for attempt in attempts] == ["failure", "success"]
    assert "took longer than 1.5 s" in attempts[0].error
    said = [finished.record.messages[-1]["content"] for finished in records]
    assert said == ["answer 3", "answer 4"]
    assert run.host.num_timed_out == 1


@pytest.mark.parametrize("kind", [single_grader, group_grader])
async def test_what_a_grader_gives_after_its_time_is_no_reward(kind):
    calls, is_over = [], threading.Event()

    @kind(runtime=SHORT)
    def grades(context, sample, graded):
        calls.append(graded)
        is_first = len(calls) == 1
        if is_first:
            is_over.wait(60)
        reward = 1.0 if is_first else 0.25
        return reward if kind is single_grader else [reward] * len(graded)

    @rollout
    async def quick(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    async with running() as run:
        (group,) = await run.samples(quick, grades)
        is_over.set()
        await none_left_running(run)
    assert (group.rewards, group.graders[0].attempts) == ((0.25,), 2)
    assert run.groups == [group]
    assert (run.host.num_timed_out, run.host.num_left_running) == (1, 0)


async def none_left_running(run):
    async with asyncio.timeout(60):
        while run.host.num_left_running:  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.005)


async def test_calls_that_are_left_behind_are_counted_while_they_run():
    release = threading.Event()

    @rollout(runtime=Runtime(timeout=0.02))
    def blocks(context, proxy, sample):
        release.wait(60)

    @rollout(runtime=Runtime(timeout=0.02))
    async def stubborn(context, proxy, sample):
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async with running() as run:
        await run.rollout(blocks)
        await run.rollout(stubborn)
        assert (run.host.num_timed_out, run.host.num_left_running) == (8, 8)
        release.set()
        await none_left_running(run)
    assert run.host.num_timed_out == 8
