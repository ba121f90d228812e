"""Whatever calls, crashes, timeouts and cancellations come: the promises of a pool hold."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.errors import InstanceError, PluginTimeoutError
from arkdev.faas_emulator.records import InvocationStatus
from tests.unit.faas_emulator.fake_instances import fake_pool, run_virtually

TIMEOUT_S = 8

calls = st.lists(
    st.fixed_dictionaries(
        {
            "arrives_s": st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, 30.0]),
            "takes_s": st.sampled_from([0.0, 0.1, 1.0, 5.0, 100.0]),
            "what": st.sampled_from(
                [{}, {}, {}, {"crash": "crashed"}, {"crash": "out_of_memory"}, {"is_cut": True}]
            ),
            "cancelled_after_s": st.sampled_from([None, None, None, 0.0, 0.6, 2.0]),
        }
    ),
    max_size=40,
)
limits = st.fixed_dictionaries(
    {
        "max_concurrency": st.integers(1, 4),
        "max_replicas": st.integers(1, 4),
        "min_replicas": st.integers(0, 1),
    }
)


@given(
    calls=calls, limits=limits, failed_starts=st.integers(0, 5), idle_s=st.sampled_from([0.1, 9])
)
@settings(max_examples=40, deadline=None)
def test_limits_order_and_answers_hold_whatever_happens(calls, limits, failed_starts, idle_s):
    async def test():
        run = fake_pool(
            start_s=0.7,
            failures=[InstanceError("no")] * failed_starts,
            idle_s=idle_s,
            timeout=TIMEOUT_S,
            **limits,
        )
        arrived: list[int] = []
        numbers = itertools.count()

        async def one(what):
            await asyncio.sleep(what["arrives_s"])
            number = next(numbers)
            arrived.append(number)
            call = asyncio.create_task(run.call(number, what["takes_s"], **what["what"]))
            if what["cancelled_after_s"] is not None:
                asyncio.get_running_loop().call_later(what["cancelled_after_s"], call.cancel)
            try:
                return number, await call
            except (InstanceError, PluginTimeoutError, asyncio.CancelledError) as error:
                return number, error

        answers = dict(await asyncio.gather(*(one(what) for what in calls)))
        await run.pool.close()
        return run, arrived, answers

    run, arrived, answers = run_virtually(test())
    assert sorted(answers) == arrived  # each call came to an end
    told = [int(record.request_id[1:]) for record in run.invocations]
    assert sorted(told) == arrived  # and is told of once
    assert all(answer == number for number, answer in answers.items() if isinstance(answer, int))
    assert run.launcher.max_alive <= limits["max_replicas"]
    busiest = max((instance.max_calls for instance in run.launcher.started), default=0)
    assert busiest <= limits["max_concurrency"]
    assert run.client.begun == sorted(run.client.begun)  # first in, first out
    assert run.launcher.num_alive == 0
    assert run.pool.num_queued == run.pool.num_running == run.pool.num_instances == 0
    statuses = {record.request_id: record.status for record in run.invocations}
    for number, answer in answers.items():
        assert (statuses[f"r{number}"] is InvocationStatus.OK) == isinstance(answer, int)


def test_thousands_of_waiting_calls_are_answered_in_order_and_quickly():
    async def test():
        run = fake_pool(max_concurrency=10, max_replicas=10)
        answers = await asyncio.gather(*(run.call(number, 0.5) for number in range(2000)))
        await run.pool.close()
        return run, answers

    run, answers = run_virtually(test())
    assert answers == run.client.begun == [*range(2000)]
