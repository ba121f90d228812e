"""What plugins do wrong ends their attempt, never the run, and never looks like a success."""

import asyncio
from contextlib import suppress

import pytest

from arkdev import group_grader, rollout
from arkdev.errors import EndpointResponseError
from arkdev.runs.records import Verdict
from tests.running import QUESTION, answer, lines, running


def outcome(finished):
    return finished.record.verdict, finished.record.attempts[-1].error


REFUSED = EndpointResponseError("too long", status=400)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failed_model_call_that_the_rollout_hides_is_counted(is_async):
    if is_async:

        @rollout
        async def hides(context, proxy, sample):
            with suppress(Exception):
                await proxy.async_rollout_client().chat.completions.create(**QUESTION)
    else:

        @rollout
        def hides(context, proxy, sample):
            with suppress(Exception):
                proxy.rollout_client().chat.completions.create(**QUESTION)

    async with running([REFUSED]) as run:
        record = (await run.rollout(hides)).record
    assert record.verdict is Verdict.SUCCESS
    assert "exception_swallowed: EndpointResponseError: too long" in record.warnings


async def test_a_failed_call_that_the_rollout_makes_again_is_not_hidden():
    @rollout
    async def tries_again(context, proxy, sample):
        client = proxy.async_rollout_client()
        for _ in range(2):
            with suppress(Exception):
                await client.chat.completions.create(**QUESTION)

    async with running([REFUSED, "fine"]) as run:
        record = (await run.rollout(tries_again)).record
    assert (record.verdict, record.warnings) == (Verdict.SUCCESS, ())


async def test_messages_that_are_no_trajectory_fail_their_rollout_alone():
    @rollout
    async def odd(context, proxy, sample):
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}
        odd_message = {"role": "assistant", "tool_calls": [call]}
        messages = [odd_message] if sample.extra["index"] == 0 else QUESTION["messages"]
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=messages)

    async with running() as run:
        bad, good = await run.samples(odd, lines=lines(2))
    assert (bad.verdict, good.verdict) == (Verdict.FAILURE, Verdict.SUCCESS)
    assert "messages are no trajectory: messages.0.tool_calls.0.function.arguments" in bad.error
    assert {len(one.record.attempts) for one in run.finished} == {1, 4}


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


async def test_an_exception_without_a_text_is_a_failure():
    @rollout
    async def raises(context, proxy, sample):
        raise Unspeakable

    async with running() as run:
        verdict, error = outcome(await run.rollout(raises))
    assert verdict is Verdict.FAILURE
    assert error == "Unspeakable: (its text cannot be made: RuntimeError)"


RAISED = [
    BaseException("base"),
    GeneratorExit(),
    KeyboardInterrupt(),
    SystemExit(3),
    BaseExceptionGroup("group", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_is_no_exception_is_a_failure_too(error, is_async):
    if is_async:

        @rollout
        async def raises(context, proxy, sample):
            if sample.extra["index"] == 0:
                raise error

        @group_grader
        async def grader(context, sample, trajectories):
            raise error
    else:

        @rollout
        def raises(context, proxy, sample):
            if sample.extra["index"] == 0:
                raise error

        @group_grader
        def grader(context, sample, trajectories):
            raise error

    async with running() as run:
        failed, graded = await run.samples(raises, grader, lines=lines(2))
    name = "sys.exit(3)" if isinstance(error, SystemExit) else type(error).__name__
    assert failed.verdict is graded.verdict is Verdict.FAILURE
    assert name in failed.error and name in graded.error


async def test_a_plugin_that_cancels_every_task_fails_alone():
    @rollout
    async def cancels(context, proxy, sample):
        if sample.extra["index"] == 0:
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(0)
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    @group_grader
    async def cancels_too(context, sample, trajectories):
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)

    async with running() as run:
        bad, good = await run.samples(cancels, lines=lines(2), concurrency=1)
    assert (bad.verdict, good.verdict) == (Verdict.FAILURE, Verdict.SUCCESS)
    assert "CancelledError" in bad.error


async def test_a_grader_that_cancels_every_task_fails_alone():
    @rollout
    async def quiet(context, proxy, sample): ...

    @group_grader
    async def cancels(context, sample, trajectories):
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)

    async with running() as run:
        (graded,) = await run.samples(quiet, cancels)
    assert (graded.verdict, graded.rewards) == (Verdict.FAILURE, (None,))


async def test_there_are_no_more_slots_than_rollouts():
    seen = []

    @rollout
    async def counts(context, proxy, sample):
        seen.append(sample)

    async with running() as run:
        async with asyncio.timeout(60):
            await run.samples(counts, lines=lines(3), concurrency=10**11)
    assert len(seen) == 3


async def test_an_answer_of_odd_messages_is_a_failure_and_no_crash():
    broken = answer()
    broken["choices"][0]["message"]["tool_calls"] = ["f"]

    @rollout
    async def asks(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    async with running([broken, broken, broken, broken]) as run:
        verdict, error = outcome(await run.rollout(asks))
    assert verdict is Verdict.FAILURE and error


async def test_awaiting_a_synchronous_client_says_which_client_to_take():
    @rollout
    async def mixes(context, proxy, sample):
        await proxy.rollout_client().chat.completions.create(**QUESTION)

    @rollout
    async def forgets(context, proxy, sample):
        call = proxy.async_rollout_client().chat.completions.create(**QUESTION)
        try:
            return call.choices
        finally:
            call.close()

    async with running() as run:
        _, mixed = outcome(await run.rollout(mixes))
        _, forgotten = outcome(await run.rollout(forgets))
    assert "can't be used in 'await' expression" in mixed
    assert "take proxy.async_rollout_client()" in mixed
    assert "did you forget await?" in forgotten
