"""Slots and groups, and what stays in memory; field case 5.3."""

import asyncio
import gc
import os
import threading
import weakref

import pytest

from arkdev import (
    Runtime,
    group_grader,
    rollout,
    single_grader,
    wrap_client_inplace,
)
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.runs.records import Verdict
from arkdev.sessions.retries import RetryPolicy
from tests.running import LINE, QUESTION, always_one, lines, running, sample_to_run


@rollout
async def silent(context, proxy, sample):
    return None


class Occupancy:
    """How many rollouts are inside at once."""

    def __init__(self):
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_):
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize("size", [1, 16, 512])
async def test_exactly_as_many_sync_rollouts_as_slots_run_at_once(size):
    barrier, occupancy = threading.Barrier(size), Occupancy()

    @rollout
    def meets_the_others(context, proxy, sample):
        with occupancy:
            barrier.wait(timeout=300)

    async with running() as run:
        await run.samples(meets_the_others, lines=[LINE] * 2 * size, concurrency=size)
    assert [f.record.attempts[0].error for f in run.finished] == [None] * 2 * size
    assert occupancy.most == size


@pytest.mark.parametrize("size", [1, 16, 512])
async def test_exactly_as_many_async_rollouts_as_slots_run_at_once(size):
    barrier, occupancy = asyncio.Barrier(size), Occupancy()

    @rollout
    async def meets_the_others(context, proxy, sample):
        with occupancy:
            async with asyncio.timeout(60):
                await barrier.wait()

    async with running() as run:
        await run.samples(meets_the_others, lines=[LINE] * 2 * size, concurrency=size)
    assert [f.record.attempts[0].error for f in run.finished] == [None] * 2 * size
    assert occupancy.most == size


async def test_the_rollouts_of_one_sample_share_the_slots_with_others():
    barrier, occupancy = asyncio.Barrier(6), Occupancy()

    @rollout
    async def meets_the_others(context, proxy, sample):
        with occupancy:
            async with asyncio.timeout(60):
                await barrier.wait()

    async with running() as run:
        await run.samples(meets_the_others, lines=[LINE] * 3, n=4, concurrency=6)
    assert {f.record.verdict for f in run.finished} == {Verdict.SUCCESS}
    assert occupancy.most == 6


async def test_grading_holds_no_slot():
    started = asyncio.Semaphore(0)

    @rollout
    async def counts(context, proxy, sample):
        started.release()

    @group_grader(runtime=Runtime(request_concurrency=1))
    async def waits_for_all_rollouts(context, sample, trajectories):
        async with asyncio.timeout(60):
            for _ in range(6):
                await started.acquire()
        for _ in range(6):
            started.release()
        return [1.0]

    async with running() as run:
        groups = await run.samples(counts, waits_for_all_rollouts, lines=lines(6), concurrency=1)
    assert [group.rewards for group in groups] == [(1.0,)] * 6


async def test_rollouts_begin_in_the_order_of_the_data_and_read_it_as_they_go():
    begun, read = [], []

    @rollout
    async def notes(context, proxy, sample):
        begun.append((sample.extra["index"], len(read)))

    def data():
        for index, line in enumerate(lines(5)):
            read.append(index)
            yield sample_to_run(line, index=index)

    async with running() as run:
        engine = Engine(
            run.runner(notes),
            run.grading(always_one),
            EngineSettings(concurrency=1),
            on_rollout=run.finished.append,
            on_group=run.groups.append,
        )
        await engine.run(data())
    assert begun == [(index, index + 1) for index in range(5)]
    assert engine.num_busy == 0


async def test_a_discard_drops_its_group_and_begins_no_further_sibling():
    begun = []

    @rollout
    async def second_discards(context, proxy, sample):
        begun.append(sample.extra["index"])
        if begun.count(1) == 2 and sample.extra["index"] == 1:
            return {"status": "discard", "error": "bad sample"}
        return None

    async with running() as run:
        groups = await run.samples(second_discards, lines=lines(3), n=4, concurrency=1)
    assert [begun.count(index) for index in range(3)] == [4, 2, 4]
    assert [group.verdict for group in groups] == ["success", "discard", "success"]
    assert groups[1].trajectory_ids == ("1.0", "1.1")
    assert (groups[1].rewards, groups[1].graders) == ((None, None), ())
    assert groups[1].error == "bad sample"
    assert groups[0].rewards == groups[2].rewards == (1.0,) * 4


async def test_siblings_under_way_when_one_discards_are_finished_and_dropped():
    release = asyncio.Event()

    @rollout
    async def first_discards(context, proxy, sample):
        if not release.is_set():
            release.set()
            return {"status": "discard"}
        await asyncio.sleep(0.01)
        return None

    async with running() as run:
        (group,) = await run.samples(first_discards, n=8, concurrency=3)
    assert group.trajectory_ids == ("0.0", "0.1", "0.2")
    assert (group.verdict, group.rewards) == (Verdict.DISCARD, (None,) * 3)


async def test_survivors_of_a_failure_are_graded_and_the_group_failed():
    seen = []

    @rollout
    async def second_fails(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)
        if proxy.access.identity.generation == 1:
            raise ValueError("no")

    @group_grader
    def counts(context, sample, trajectories):
        seen.append(len(trajectories))
        return [1.0, 0.5][: len(trajectories)]

    async with running() as run:
        (group,) = await run.samples(second_fails, counts, n=3)
    assert seen == [2]
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (1.0, None, 0.5))
    assert group.graders[0].rewards == (1.0, None, 0.5), "by member"


async def test_nothing_of_a_finished_rollout_stays_in_memory():
    alive = []

    @rollout
    def sync_one(context, proxy, sample):
        alive.extend(map(weakref.ref, (proxy, sample, proxy.access)))
        proxy.rollout_client().chat.completions.create(**QUESTION)

    @rollout
    async def async_one(context, proxy, sample):
        alive.extend(map(weakref.ref, (proxy, sample, proxy.access)))
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    @single_grader
    def grader(context, sample, trajectory):
        alive.append(weakref.ref(trajectory))
        return 1.0

    async with running() as run:
        for plugin in (sync_one, async_one):
            await run.samples(plugin, grader, lines=lines(10))
        run.finished.clear()
        run.groups.clear()
        gc.collect()
        assert [reference() for reference in alive] == [None] * 80
        assert run.gateway._sessions == {}


def open_descriptors():
    return len(os.listdir("/dev/fd"))


async def test_500_rollouts_with_a_client_each_leave_no_descriptors():
    openai = pytest.importorskip("openai")
    alive = []

    @rollout
    def builds_its_own(context, proxy, sample):
        client = openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token)
        wrap_client_inplace(client, proxy)
        client.chat.completions.create(**QUESTION)
        alive.append(weakref.ref(proxy))

    async with running(retries=RetryPolicy(max_retries=0)) as run:
        await run.samples(silent, lines=lines(8), concurrency=8)
        before = open_descriptors()
        await run.samples(builds_its_own, lines=lines(500), concurrency=8)
        assert {f.record.verdict for f in run.finished} == {Verdict.SUCCESS}
        run.finished.clear()
        async with asyncio.timeout(60):
            while open_descriptors() > before + 20:
                gc.collect()
                await asyncio.sleep(0.05)
        gc.collect()
        assert [proxy for proxy in alive if proxy() is not None] == []
    assert len(run.requests) == len(alive) == 500
