"""A pool in virtual time: schedules worked by hand, and what holds for every schedule."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.faas_emulator.capacity.loads import Batch, simulate_batch
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime
from tests.unit.faas_emulator.capacity.functions import fixed, pool_of, run_calls, setting
from tests.unit.faas_emulator.fake_instances import fake_pool, run_virtually


def test_calls_queue_for_the_places_of_the_instances_as_worked_by_hand():
    pool = pool_of(fixed(1, 2))
    pool.warm(2)
    # 3 and 5 begin at 0; 4 at 3, when the first place is free; 1 at 5
    calls = run_calls(pool, [(0, 3), (0, 5), (1, 4), (1, 1)])
    assert [(call.taken, call.ended) for call in calls] == [(0, 3), (0, 5), (3, 7), (5, 6)]
    assert [call.queued_s for call in calls] == [0, 0, 2, 4]
    assert pool.total_instance_s() == 14


def test_a_call_that_finds_no_instance_waits_for_its_start():
    pool = pool_of(Runtime(max_concurrency=1, max_replicas=1))
    first, second = run_calls(pool, [(0, 1), (0.1, 1)])
    assert (first.taken, first.is_cold) == (0.5, True)
    assert (second.taken, second.is_cold) == (1.5, False)


def test_an_idle_instance_is_gone_after_a_minute_and_the_next_call_is_cold():
    pool = pool_of(Runtime(max_concurrency=1, max_replicas=1))
    _, second = run_calls(pool, [(0, 1), (100, 1)])
    assert second.is_cold and second.queued_s == pytest.approx(0.5)
    assert [count for _, count in pool.counts] == [1, 0, 1]


def test_calls_that_compute_share_their_instance():
    pool = pool_of(fixed(2, 1), cpu_share=1.0)
    pool.warm(1)
    # alone for 1 s, together until the first has 4 s of work done at 7, then alone again
    first, second = run_calls(pool, [(0, 4), (1, 4)])
    assert (first.ended, second.ended) == pytest.approx((7, 8))


def test_a_call_that_runs_out_of_time_takes_its_instance_with_it():
    pool = pool_of(fixed(2, 1, timeout=2.0))
    pool.warm(1)
    slow, beside, later = run_calls(pool, [(0, 5), (1, 1.5), (1.1, 1)])
    assert (slow.is_timeout, slow.ended) == (True, 2)
    assert beside.ended == 2.5
    assert later.taken == 3.0 and later.is_cold  # the instance drains, and another one is started


def test_a_batch_is_graded_when_all_rollouts_of_a_sample_are_done():
    functions = {
        "answer": setting([1.0], fixed(2, 1)),
        "one": setting([0.25], fixed(1, 1), kind=PluginKind.SINGLE_GRADER),
        "all": setting([2.0], fixed(1, 1), kind=PluginKind.GROUP_GRADER),
    }
    outcome = simulate_batch(functions, Batch(2, 2, in_flight=2), seed=0)
    # the samples' rollouts end at 1 and 2, their group gradings at 3 and 5
    assert outcome.makespan_s == 5
    assert outcome.functions["all"].queued_s == [0, 1]
    assert outcome.functions["one"].queued_s == [0, 0.25, 0, 0.25]
    assert len(outcome.functions["answer"].total_s) == 4


def test_a_grader_has_no_more_calls_under_way_than_its_request_concurrency():
    functions = {
        "answer": setting([0.0], fixed(100, 1)),
        "one": setting([1.0], fixed(100, 1, request_concurrency=2), kind=PluginKind.SINGLE_GRADER),
    }
    assert simulate_batch(functions, Batch(1, 8, in_flight=8), seed=0).makespan_s == 4


def test_a_rollout_that_fails_is_made_again_in_its_slot():
    always = {"answer": setting([1.0], fixed(1, 1), retry_share=1.0)}
    outcome = simulate_batch(always, Batch(2, 1, in_flight=1), seed=0)
    assert (outcome.makespan_s, len(outcome.functions["answer"].total_s)) == (8, 8)


works = st.lists(st.floats(0.01, 20.0), min_size=1, max_size=30)


@settings(max_examples=30, deadline=None)
@given(works, st.integers(1, 4), st.integers(1, 6), st.integers(0, 5))
def test_more_replicas_are_never_worse_with_the_same_draws(times, concurrency, replicas, seed):
    few, many = (
        simulate_batch(
            {"answer": setting(times, fixed(concurrency, count))}, Batch(8, 3, 12), seed=seed
        )
        for count in (replicas, replicas + 1)
    )
    assert many.makespan_s <= few.makespan_s + 1e-9
    assert sum(many.functions["answer"].queued_s) <= sum(few.functions["answer"].queued_s) + 1e-9


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_the_real_pool_makes_the_schedule_that_is_simulated(arrivals, concurrency, replicas):
    """The same calls to a pool whose instances take as long as they are told to."""
    # apart by a little, so that nothing happens at the same moment
    arrivals = [(at + n / 64, work + n / 128) for n, (at, work) in enumerate(sorted(arrivals))]
    runtime = Runtime(max_concurrency=concurrency, max_replicas=replicas)
    simulated = run_calls(pool_of(runtime), arrivals)

    async def real():
        run = fake_pool(start_s=0.5, max_concurrency=concurrency, max_replicas=replicas)

        async def call(number, at, takes_s):
            await asyncio.sleep(at)
            await run.call(number, takes_s)

        await asyncio.gather(*(call(n, *arrival) for n, arrival in enumerate(arrivals)))
        records = [run.record(number) for number in range(len(arrivals))]
        await run.pool.close()
        return [record.queued_s for record in records]

    found = []

    async def keep():
        found.extend(await real())

    run_virtually(keep())
    assert found == pytest.approx([call.queued_s for call in simulated], abs=0.01)
