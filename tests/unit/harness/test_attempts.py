"""Attempts, verdicts and timeouts; field cases 3.6 and 5.2."""

import asyncio
import threading

import openai  # noqa: F401 (its import must not count as the time of a rollout)
import pytest

from arkdev import (
    InferenceProxy,
    RolloutResult,
    Runtime,
    rollout,
)
from arkdev.errors import LateCallError
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.runs.records import Verdict
from tests.running import QUESTION, answer, lines, running


def scripted(outcomes):
    """A rollout that makes one call and then does what `outcomes` says, attempt by attempt."""
    attempts = {}

    @rollout
    async def scripted_rollout(context, proxy, sample):
        key = sample.extra["index"]
        number = attempts[key] = attempts.get(key, -1) + 1
        await proxy.async_rollout_client().chat.completions.create(
            model="m", messages=[{"role": "user", "content": f"attempt {number}"}]
        )
        script = outcomes[key]
        outcome = script[min(number, len(script) - 1)]
        if isinstance(outcome, Exception):
            raise type(outcome)(*outcome.args)  # a new one: its traceback holds the frames
        return outcome

    return scripted_rollout


RETRY, FAILURE, DISCARD = ({"status": s, "error": s} for s in ("retry", "failure", "discard"))
STATE_MACHINE = [
    # script of one rollout; attempts; the rollout's verdict; reward
    ([RETRY, RETRY, None], "retry retry success", Verdict.SUCCESS, 1.0),
    ([FAILURE, ValueError("x"), RETRY, None], "failure failure retry success", "success", 1.0),
    ([RETRY], "retry retry retry retry", Verdict.RETRY, None),
    ([RolloutRetryException("busy")], "retry retry retry retry", Verdict.RETRY, None),
    ([FAILURE], "failure failure failure failure", Verdict.FAILURE, None),
    ([ValueError("坏")], "failure failure failure failure", Verdict.FAILURE, None),
    ([DISCARD], "discard", Verdict.DISCARD, None),
    ([RETRY, DISCARD], "retry discard", Verdict.DISCARD, None),
    ([None], "success", Verdict.SUCCESS, 1.0),
    ([RolloutResult(extra={"a": 1})], "success", Verdict.SUCCESS, 1.0),
]


async def test_every_status_leads_where_the_contract_says():
    plugin = scripted([script for script, *_ in STATE_MACHINE])
    async with running() as run:
        groups = await run.samples(plugin, lines=lines(len(STATE_MACHINE)))
    records = {f.record.sample_index: f.record for f in run.finished}
    assert len(records) == len(groups) == len(STATE_MACHINE)
    for index, (_, attempts, verdict, reward) in enumerate(STATE_MACHINE):
        record = records[index]
        assert [attempt.verdict for attempt in record.attempts] == attempts.split()
        assert [attempt.num_turns for attempt in record.attempts] == [1] * len(record.attempts)
        assert (record.verdict, groups[index].verdict) == (verdict, verdict)
        assert groups[index].rewards == (reward,)
        assert len(record.turns) == 1, "turns of an earlier attempt were kept"
        last = f"attempt {len(record.attempts) - 1}"
        assert [m["content"] for m in record.messages] == [last, "fine"]


async def test_one_exception_leaves_its_siblings_alone():
    @rollout
    async def seventh_fails(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)
        if sample.extra["index"] == 7:
            raise ValueError("坏")

    async with running() as run:
        groups = await run.samples(seventh_fails, lines=lines(16), concurrency=16)
        others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [group.sample_index for group in groups if group.rewards == (1.0,)] == [
        index for index in range(16) if index != 7
    ]
    record = next(f.record for f in run.finished if f.record.sample_index == 7)
    last = record.attempts[-1]
    assert (last.error, groups[7].error) == ("ValueError: 坏", "ValueError: 坏")
    assert "in seventh_fails" in last.traceback
    assert "arkdev/" not in last.traceback
    assert others == set()


BAD_RESULTS = {
    "a status set to nonsense": lambda: _changed(RolloutResult(), "nice"),
    "a word": lambda: "success",
    "a number": lambda: 1.0,
}


def _changed(result, status):
    result.status = status
    return result


@pytest.mark.parametrize("case", BAD_RESULTS)
async def test_a_result_that_cannot_be_read_is_a_failure(case):
    @rollout
    async def odd(context, proxy, sample):
        return BAD_RESULTS[case]()

    async with running() as run:
        (group,) = await run.samples(odd)
    assert (group.verdict, group.rewards) == (Verdict.FAILURE, (None,))
    assert "PluginResultError" in group.error


async def test_a_rollout_that_cancels_itself_or_exits_is_a_failure_and_costs_no_slot():
    @rollout
    async def tries_to_get_out(context, proxy, sample):
        if sample.extra["index"] % 2:
            raise SystemExit(2)
        raise asyncio.CancelledError

    async with running() as run:
        groups = await run.samples(tries_to_get_out, lines=lines(6), concurrency=2)
    assert [group.verdict for group in groups] == [Verdict.FAILURE] * 6
    assert "CancelledError" in groups[0].error
    assert "sys.exit(2)" in groups[1].error


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_rollout_that_times_out_is_tried_again_and_leaves_nothing_behind(is_async):
    late, attempts = [], []
    is_over, ended = threading.Event(), threading.Semaphore(0)

    def begin(proxy):
        attempts.append(proxy)
        return len(attempts) == 1

    @rollout(runtime=Runtime(timeout=1.5))
    async def asynchronous(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(**QUESTION)
        if begin(proxy):
            try:
                await asyncio.sleep(60)
            finally:
                try:
                    await client.chat.completions.create(**QUESTION)
                except LateCallError as error:
                    late.append(error)
                    ended.release()

    @rollout(runtime=Runtime(timeout=1.5))
    def synchronous(context, proxy, sample):
        client = proxy.rollout_client()
        client.chat.completions.create(**QUESTION)
        if begin(proxy):
            is_over.wait(60)
            try:
                client.chat.completions.create(**QUESTION)
            except LateCallError as error:
                late.append(error)
            ended.release()

    async with running(lambda _: answer(f"answer {len(run.requests)}")) as run:
        (group,) = await run.samples(asynchronous if is_async else synchronous)
        is_over.set()
        assert await asyncio.to_thread(ended.acquire, timeout=60)
    (finished,) = run.finished
    record = finished.record
    assert [attempt.verdict for attempt in record.attempts] == ["failure", "success"]
    assert record.attempts[0].error.startswith("PluginTimeoutError: ")
    assert "took longer than 1.5 s" in record.attempts[0].error
    assert record.attempts[0].where.startswith(__file__)
    assert [message["content"] for message in record.messages][1:] == ["answer 2"]
    assert (len(record.turns), len(late), len(run.requests)) == (1, 1, 2)
    assert (len(attempts[0].messages), group.rewards) == (2, (1.0,))


async def test_the_proxy_of_a_rollout_is_made_afresh_for_each_attempt():
    proxies = []

    @rollout
    async def always_fails(context, proxy, sample):
        assert isinstance(proxy, InferenceProxy)
        assert all(proxy is not earlier for earlier in proxies)
        proxies.append(proxy)
        raise ValueError("no")

    async with running() as run:
        await run.rollout(always_fails)
    assert len({proxy.jwt_token for proxy in proxies}) == 4
    assert len({id(proxy.sample) for proxy in proxies}) == 4
