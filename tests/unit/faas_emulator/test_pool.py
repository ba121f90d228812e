"""A pool on instances that are no processes, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from arkdev.errors import InstanceError, PluginTimeoutError
from arkdev.faas_emulator.records import InvocationStatus
from arkdev.observe.attempt import current_attempt
from arkdev.observe.held_calls import HeldCalls
from tests.unit.faas_emulator.fake_instances import fake_pool, run_virtually


def virtually(test):
    """Run an async test in virtual time."""

    def run():
        run_virtually(test())

    run.__name__ = test.__name__
    return run


@virtually
async def test_instances_are_started_on_saturation_up_to_max_replicas():
    run = fake_pool(max_concurrency=2, max_replicas=3)
    results = await asyncio.gather(*(run.call(number) for number in range(20)))
    assert results == [*range(20)]
    assert len(run.launcher.started) == 3
    assert {instance.max_calls for instance in run.launcher.started} == {2}
    assert run.pool.num_queued == run.pool.num_running == 0
    await run.pool.close()
    assert run.launcher.num_alive == 0
    assert [record.ending for record in run.ended] == ["closed"] * 3


@virtually
async def test_instances_are_no_part_of_the_attempt_that_needed_one():
    run = fake_pool(max_concurrency=1, max_replicas=3, failures=[InstanceError("not now")])
    current_attempt.set(object())  # what belongs to one is counted as its plugin's
    await asyncio.gather(*(run.call(number) for number in range(5)))
    assert run.launcher.attempts == [None] * len(run.launcher.attempts) != []
    await run.pool.close()


@virtually
async def test_no_more_instances_are_started_than_what_waits_can_use():
    run = fake_pool(max_concurrency=10, max_replicas=5)
    await asyncio.gather(*(run.call(number) for number in range(11)))
    assert len(run.launcher.started) == 2
    await run.pool.close()


@virtually
async def test_what_waits_is_taken_first_in_first_out():
    run = fake_pool(max_concurrency=1, max_replicas=2)
    await asyncio.gather(*(run.call(number, 1 + number % 3) for number in range(30)))
    assert run.client.begun == [*range(30)]
    await run.pool.close()


@virtually
async def test_min_replicas_are_warm_before_the_first_call_and_stay():
    run = fake_pool(min_replicas=2, max_replicas=4, max_concurrency=1, idle_s=10)
    await run.pool.warm()
    assert len(run.launcher.started) == 2
    await asyncio.gather(*(run.call(number) for number in range(4)))
    assert [run.record(number).cold_start_s for number in range(2)] == [0, 0]
    assert len(run.launcher.started) == 4
    await asyncio.sleep(11)
    assert run.pool.num_instances == 2
    await asyncio.sleep(1000)
    assert run.launcher.num_alive == 2
    assert [record.ending for record in run.ended] == ["idle", "idle"]
    await run.pool.close()


@virtually
async def test_an_idle_function_has_no_instance_and_the_next_call_starts_one():
    run = fake_pool(idle_s=5)
    await run.call(0)
    await asyncio.sleep(6)
    assert run.pool.num_instances == 0
    assert await run.call(1) == 1
    assert run.record(1).cold_start_s == run.record(1).queued_s == pytest.approx(1.0)
    await run.pool.close()


@virtually
async def test_a_crashed_warm_instance_is_replaced():
    run = fake_pool(min_replicas=1, max_replicas=1)
    await run.pool.warm()
    with pytest.raises(InstanceError):
        await run.call(0, crash="crashed")
    await asyncio.sleep(5)
    assert run.launcher.num_alive == 1 and len(run.launcher.started) == 2
    await run.pool.close()


@virtually
async def test_queue_cold_start_and_service_are_told_apart():
    run = fake_pool(start_s=2, max_concurrency=1, max_replicas=1)
    await asyncio.gather(run.call(0, 3), run.call(1, 4))
    first, second = run.record(0), run.record(1)
    assert (first.queued_s, first.cold_start_s, first.service_s) == pytest.approx((2, 2, 3))
    assert (second.queued_s, second.cold_start_s, second.service_s) == pytest.approx((5, 0, 4))
    assert (first.num_concurrent, first.instance_id, first.status) == (1, "i0", "ok")
    await run.pool.close()


@virtually
async def test_the_timeout_counts_from_when_an_instance_takes_the_call():
    run = fake_pool(start_s=10, timeout=5, max_concurrency=1, max_replicas=1)
    assert await asyncio.gather(run.call(0, 4), run.call(1, 4)) == [0, 1]
    assert run.record(1).queued_s == pytest.approx(14)
    await run.pool.close()


@virtually
async def test_the_time_in_which_limits_hold_calls_back_is_not_counted():
    run = fake_pool(timeout=5, max_concurrency=1)
    held = HeldCalls()
    with held.timed():
        body = {"number": 0, "takes_s": 5.04}
        answer = await run.pool.invoke(body, request_id="r0", held=held)
    assert answer.document == {"result": 0}
    await run.pool.close()


@virtually
async def test_a_timed_out_call_takes_its_instance_with_it_and_no_other():
    run = fake_pool(timeout=5, max_concurrency=1, max_replicas=2)
    endless = asyncio.create_task(run.call(0, 10_000))
    await asyncio.sleep(0)
    assert await run.call(1) == 1
    began = asyncio.get_running_loop().time()
    with pytest.raises(PluginTimeoutError, match="grader took longer than 5 s"):
        await endless
    await asyncio.sleep(1)
    assert [instance.is_stopped for instance in run.launcher.started] == [True, False]
    assert asyncio.get_running_loop().time() - began < 10
    assert [record.ending for record in run.ended] == ["timeout"]
    assert run.record(0).status is InvocationStatus.TIMEOUT
    assert run.record(1).status is InvocationStatus.OK
    assert run.pool.num_timed_out == 1
    await run.pool.close()


@virtually
async def test_calls_beside_a_timed_out_one_finish_before_their_instance_is_stopped():
    run = fake_pool(timeout=5, max_concurrency=3, max_replicas=1)
    endless = asyncio.create_task(run.call(0, 10_000))
    await asyncio.sleep(4)  # three of them since it is ready
    beside = asyncio.create_task(run.call(1, 4))
    with pytest.raises(PluginTimeoutError):
        await endless
    after = asyncio.create_task(run.call(2))
    assert await beside == 1
    assert not run.launcher.started[0].is_stopped
    assert await after == 2
    assert run.record(2).instance_id == "i1"  # a drained instance takes no new call
    assert run.launcher.started[0].is_stopped
    await run.pool.close()


@pytest.mark.parametrize(
    ("status", "words"), [("out_of_memory", "ran out of memory"), ("crashed", "crashed: exit")]
)
def test_every_call_of_an_instance_that_ends_fails_with_the_cause_and_others_go_on(status, words):
    async def test():
        run = fake_pool(max_concurrency=2, max_replicas=2)
        calls = [
            run.call(0, 1, crash=status),
            run.call(1, 3),  # beside the one that crashes
            run.call(2, 3),  # these in the other instance
            run.call(3, 3),
            run.call(4, 3),  # waits, for the replacement
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert results[2:] == [2, 3, 4]
        for number in (0, 1):
            assert isinstance(results[number], InstanceError)
            assert words in results[number].message
            assert results[number].where == "plugins/grader.py:7"
            assert run.record(number).status == status
        await run.pool.close()
        endings = {record.instance_id: record.ending for record in run.ended}
        assert endings["i0"] == f"{status} (exit code 3)"
        assert endings["i1"] == "closed"

    run_virtually(test())


@virtually
async def test_a_lost_connection_to_an_instance_that_lives_is_lost_and_it_is_drained():
    run = fake_pool(max_concurrency=2, max_replicas=1)
    cut = asyncio.create_task(run.call(0, 1, is_cut=True))
    beside = asyncio.create_task(run.call(1, 9))
    with pytest.raises(InstanceError, match="was lost: it runs, but gave no answer"):
        await cut
    assert await beside == 1
    assert run.record(0).status is InvocationStatus.LOST
    assert await run.call(2) == 2
    assert run.record(2).instance_id == "i1"
    await run.pool.close()


@virtually
async def test_calls_that_never_got_to_a_dead_instance_go_to_another_in_their_order():
    run = fake_pool(max_concurrency=2, max_replicas=1)
    await run.call(0)
    run.launcher.started[0].crash(InvocationStatus.CRASHED)  # while idle
    assert await asyncio.gather(*(run.call(number) for number in range(1, 6))) == [1, 2, 3, 4, 5]
    assert run.client.begun == [0, 1, 2, 3, 4, 5]
    assert len(run.invocations) == 6
    await run.pool.close()
    assert run.ended[0].ending == "crashed (exit code 3)"


@virtually
async def test_a_start_that_fails_is_tried_three_times_and_told_with_the_plugins_own_error():
    error = InstanceError("ModuleNotFoundError: no module named 'numpy'", where="plugins/a.py:3")
    run = fake_pool(failures=[error] * 20, max_concurrency=1, max_replicas=8)
    results = await asyncio.gather(*map(run.call, range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {InstanceError}
    assert "no instance of grader can be started: ModuleNotFoundError" in results[0].message
    assert results[0].where == "plugins/a.py:3"
    assert len(run.launcher.ordered_at) == 8  # all that were under way when the first one failed
    assert {record.status for record in run.invocations} == {InvocationStatus.NOT_STARTED}
    await run.pool.close()


@virtually
async def test_after_a_broken_start_calls_fail_at_once_until_it_is_tried_again():
    run = fake_pool(failures=[InstanceError("broken")] * 3, max_replicas=1)
    with pytest.raises(InstanceError, match="broken"):
        await run.call(0)
    ordered = len(run.launcher.ordered_at)
    assert ordered == 3
    with pytest.raises(InstanceError, match="broken"):
        await run.call(1)
    assert len(run.launcher.ordered_at) == ordered
    await asyncio.sleep(31)
    assert await run.call(2) == 2
    await run.pool.close()


@virtually
async def test_warm_raises_what_the_start_raises():
    run = fake_pool(failures=[InstanceError("ImportError: no")])
    with pytest.raises(InstanceError, match="ImportError"):
        await run.pool.warm()
    await run.pool.close()


@virtually
async def test_a_cancelled_call_leaves_the_queue_and_its_place():
    run = fake_pool(max_concurrency=1, max_replicas=1)
    running = asyncio.create_task(run.call(0, 1000))
    waiting = [asyncio.create_task(run.call(number)) for number in (1, 2)]
    await asyncio.sleep(2)
    waiting[0].cancel()
    running.cancel()
    await asyncio.wait([running, waiting[0]])
    assert await waiting[1] == 2
    assert [run.record(n).status for n in (0, 1)] == [InvocationStatus.CANCELLED] * 2
    assert run.record(1).instance_id == ""
    assert run.record(2).instance_id == "i1"  # what was cancelled still runs in i0
    await run.pool.close()
    assert run.launcher.num_alive == 0


@virtually
async def test_the_end_leaves_nothing_and_refuses_what_comes():
    run = fake_pool(max_concurrency=1, max_replicas=2)
    calls = [asyncio.create_task(run.call(number, 1000)) for number in range(5)]
    await asyncio.sleep(1.5)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await run.pool.close()
    await run.pool.close()
    assert run.launcher.num_alive == 0
    with pytest.raises(InstanceError, match="have been stopped"):
        await run.call(9)


@virtually
async def test_the_end_does_not_wait_for_instances_that_are_starting():
    run = fake_pool(start_s=500)
    call = asyncio.create_task(run.call(0))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await run.pool.close()
    assert asyncio.get_running_loop().time() - began < 1
    with pytest.raises(InstanceError, match="have been stopped"):
        await call
