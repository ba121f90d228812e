"""The attempt session; field cases 2.1, 2.3, 2.4 and 2.5."""

import asyncio
import threading

import pytest

from arkdev import ChatCompletionMessage, ChatCompletionResponse, rollout, single_grader
from arkdev.errors import (
    EndpointResponseError,
    EndpointUnreachableError,
    LateCallError,
)
from arkdev.plugin.threads import call_in_thread
from arkdev.runs.records import Verdict
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.retries import RetryPolicy
from tests.running import (
    LINE,
    WEATHER_TOOL,
    a_request_of,
    answer,
    running,
    tool_call,
    with_tokens,
)

BODY = {"messages": LINE["messages"]}
BUSY = EndpointResponseError("slow down", status=429, is_transient=True)
OVERLOADED = EndpointResponseError(
    "the answer holds an error: overloaded",
    status=200,
    body={"error": {"message": "overloaded"}, "choices": None},
    is_transient=True,
)
EMPTY = EndpointResponseError("an answer without choices", status=200, is_transient=True)
CUT = EndpointUnreachableError("connection reset")
SLOW = EndpointUnreachableError("no answer", is_timeout=True)
BAD_REQUEST = EndpointResponseError("Unexpected message role.", status=400)


def asks(*, swallow=()):
    """A rollout that calls its model once."""

    @rollout
    async def asking(context, proxy, sample):
        client = proxy.async_rollout_client()
        try:
            await client.chat.completions.create(model="m", messages=LINE["messages"])
        except swallow:
            return None

    return asking


@pytest.mark.parametrize("error", [BUSY, OVERLOADED, EMPTY, CUT, SLOW])
async def test_a_transient_error_is_tried_again(error):
    async with running([error, error, "good"]) as run:
        session = run.session()
        body = await session.complete(BODY)
    assert body["choices"][0]["message"]["content"] == "good"
    assert [turn.num_retries for turn in session.turns] == [2]
    assert len(run.requests) == 3
    assert len({request.seed for request in run.requests}) == 1


@pytest.mark.parametrize("error", [BUSY, OVERLOADED, CUT])
async def test_a_transient_error_that_persists_is_raised_and_leaves_no_turn(error):
    async with running([error]) as run:
        session = run.session()
        with pytest.raises(type(error)) as raised:
            await session.complete(BODY)
    assert raised.value is error
    assert (len(run.requests), session.turns, session.conversation.num_calls) == (3, (), 0)


async def test_a_bad_request_is_not_tried_again():
    async with running([BAD_REQUEST]) as run:
        with pytest.raises(EndpointResponseError, match="Unexpected message role"):
            await run.session().complete(BODY)
    assert len(run.requests) == 1


async def test_retries_can_be_switched_off():
    async with running([BUSY], retries=RetryPolicy(max_retries=0)) as run:
        with pytest.raises(EndpointResponseError):
            await run.session().complete(BODY)
    assert len(run.requests) == 1


def test_the_wait_grows_is_spread_and_is_capped():
    policy = RetryPolicy()
    for retry, (low, high) in enumerate([(1, 2), (2, 4), (4, 8), (8, 16), (16, 30), (30, 30)]):
        waits = [policy.wait_s(retry) for _ in range(20)]
        assert low <= min(waits) <= max(waits) <= high
        assert retry == 5 or len(set(waits)) > 1


async def test_other_attempts_go_on_while_one_waits_to_try_again():
    async with running([BUSY, "quick", "late"], retries=RetryPolicy(first_wait_s=0.2)) as run:
        waiting = asyncio.create_task(run.session().complete(BODY))
        await asyncio.sleep(0)
        quick = await run.session().complete(BODY)
        assert quick["choices"][0]["message"]["content"] == "quick"
        assert not waiting.done()
        assert (await waiting)["choices"][0]["message"]["content"] == "late"


async def test_an_error_hidden_in_a_success_answer_ends_in_failure_with_its_text():
    async with running([OVERLOADED, EMPTY, "good"]) as run:
        (recovered,) = await run.samples(asks())
    assert (recovered.verdict, recovered.rewards) == (Verdict.SUCCESS, (1.0,))
    async with running([OVERLOADED]) as run:
        (group,) = await run.samples(asks())
    (finished,) = run.finished
    assert (finished.record.verdict, group.rewards) == (Verdict.FAILURE, (None,))
    assert "overloaded" in finished.record.attempts[-1].error
    assert (len(finished.record.attempts), len(run.requests)) == (4, 12)


BROKEN_ARGUMENTS = '{"Query": "a'


async def test_broken_arguments_cost_one_more_request_and_are_reported_unchanged():
    def strict(request):
        if any("tool_calls" in message for message in request.body["messages"]):
            return BAD_REQUEST
        return answer(None, tool_calls=[tool_call("search", BROKEN_ARGUMENTS, id="c7")])

    @rollout
    async def loop(context, proxy, sample):
        import openai

        client = proxy.async_rollout_client()
        messages = sample.model_dump()["messages"]
        for _ in range(6):
            try:
                completion = await client.chat.completions.create(model="m", messages=messages)
            except openai.BadRequestError:
                return
            message = completion.choices[0].message
            messages.append(message.model_dump())
            messages.append({"role": "tool", "content": "bad JSON", "tool_call_id": "c7"})

    @single_grader
    def sees_the_raw_string(context, sample, trajectory):
        (call,) = trajectory.messages[-1].tool_calls
        return float(call.function.arguments == BROKEN_ARGUMENTS)

    async with running(strict) as run:
        (group,) = await run.samples(loop, sees_the_raw_string)
    (finished,) = run.finished
    assert len(run.requests) == 2
    assert (finished.record.verdict, group.rewards) == (Verdict.SUCCESS, (1.0,))
    hidden, warning = finished.record.warnings
    assert hidden.startswith("exception_swallowed: EndpointResponseError")
    assert warning.startswith("invalid_tool_arguments: tool call c7 (search): Unterminated string")


async def test_null_content_keeps_its_turn():
    call = answer(None, tool_calls=[tool_call()])

    @rollout
    async def loop(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = sample.model_dump()["messages"]
        completion = await client.chat.completions.create(model="m", messages=messages)
        messages.append(completion.choices[0].message.model_dump())
        messages.append({"role": "tool", "content": "22", "tool_call_id": "call_1"})
        await client.chat.completions.create(model="m", messages=messages)

    @single_grader
    def reads_content(context, sample, trajectory):
        return float([m.content for m in trajectory.messages][1:] == [None, "22", "done"])

    async with running([call, "done"]) as run:
        (group,) = await run.samples(loop, reads_content)
    assert run.sent[1][1] == {"role": "assistant", "content": None, "tool_calls": [tool_call()]}
    assert [message["role"] for message in run.sent[1]] == ["user", "assistant", "tool"]
    assert group.rewards == (1.0,)


ODD = {
    "tool_calls_with_finish_stop": answer(None, tool_calls=[tool_call()], finish_reason="stop"),
    "finish_tool_calls_without_calls": answer("done", finish_reason="tool_calls"),
    "double_encoded_arguments: tool call call_1 (get_weather)": answer(
        None, tool_calls=[tool_call(arguments='"{\\"a\\": 1}"')]
    ),
    "invalid_tool_arguments: tool call call_1 (get_weather): a JSON list, not an object": answer(
        None, tool_calls=[tool_call(arguments="[1]")]
    ),
    "usage_unknown": answer(usage=None),
}


@pytest.mark.parametrize("warning", ODD)
async def test_what_is_odd_about_an_answer_is_counted_and_left_alone(warning):
    async with running([ODD[warning]]) as run:
        session = run.session()
        assert await session.complete(BODY) == ODD[warning]
    assert session.warnings == (warning,)


async def test_the_same_note_counts_once_in_an_attempt():
    async with running([answer("done", finish_reason="tool_calls")]) as run:
        session = run.session()
        for _ in range(3):
            await session.complete(BODY)
    assert session.warnings == ("finish_tool_calls_without_calls", "history_rewritten")


async def test_a_loop_sees_contradictory_finish_reasons_as_they_are():
    calls_with_stop = answer(None, tool_calls=[tool_call()], finish_reason="stop")

    @rollout
    async def by_tool_calls(context, proxy, sample):
        client = proxy.async_rollout_client()
        messages = sample.model_dump()["messages"]
        for _ in range(6):
            completion = await client.chat.completions.create(
                model="m", messages=messages, tools=[WEATHER_TOOL]
            )
            message = completion.choices[0].message
            messages.append(message.model_dump())
            if not message.tool_calls:
                break
            messages.append({"role": "tool", "content": "22", "tool_call_id": "call_1"})

    async with running([calls_with_stop, "done"]) as run:
        first = (await run.rollout(by_tool_calls)).record
    assert [message["role"] for message in first.messages][-2:] == ["tool", "assistant"]
    async with running([answer("done", finish_reason="tool_calls")]) as run:
        second = (await run.rollout(by_tool_calls)).record
    assert (len(second.turns), len(run.requests)) == (1, 1)
    assert (first.warnings, second.warnings) == (
        ("tool_calls_with_finish_stop",),
        ("finish_tool_calls_without_calls",),
    )


async def test_seeds_are_the_same_whatever_ran_beside():
    @rollout
    async def two_turns(context, proxy, sample):
        client = proxy.async_rollout_client()
        for _ in range(2):
            await client.chat.completions.create(model="m", messages=LINE["messages"])
            await asyncio.sleep(0)

    async def seeds(samples, concurrency):
        async with running(lambda request: "x") as run:
            await run.samples(two_turns, lines=[LINE] * samples, n=2, concurrency=concurrency)
        return sorted(request.seed for request in run.requests)

    alone, crowded = await seeds(3, 1), await seeds(3, 6)
    assert alone == crowded
    assert len(set(alone)) == 12
    assert set(await seeds(1, 1)) < set(alone)


def test_run_sample_generation_attempt_and_turn_make_the_seed():
    identities = [
        AttemptIdentity(0, 0, 0),
        AttemptIdentity(1, 0, 0),
        AttemptIdentity(0, 1, 0),
        AttemptIdentity(0, 0, 1),
        AttemptIdentity(0, 0, 0, run_seed=1),
        AttemptIdentity(0, 0, 0, phase="train", step=0),
        AttemptIdentity(0, 0, 0, phase="train", step=1),
        AttemptIdentity(0, 0, 0, phase="test", step=1),
    ]
    seeds = {identity.seed(order) for identity in identities for order in range(3)}
    assert len(seeds) == 24
    assert AttemptIdentity(0, 0, 0).seed(0) == AttemptIdentity(0, 0, 0, phase="train").seed(0)


async def test_of_overlapping_calls_the_one_made_last_is_the_trajectory():
    release = asyncio.Event()

    class SlowFirst:
        name = model = "fake"
        capabilities = None

        async def complete(self, request):
            text = request.body["messages"][0]["content"]
            if text == "first":
                await release.wait()
            return answer(f"{text} answered")

    async with running() as run:
        run.services.endpoint = SlowFirst()
        session = run.session()
        calls = [
            asyncio.create_task(session.complete({"messages": [{"role": "user", "content": text}]}))
            for text in ("first", "last")
        ]
        await calls[1]
        release.set()
        await calls[0]
    contents = [message.content for message in session.conversation.messages]
    assert contents == ["last", "last answered"]
    assert (len(session.turns), session.conversation.usage.total_tokens) == (2, 14)


async def test_an_answer_that_comes_after_the_end_is_refused_and_not_recorded():
    async with running(delay_s=60) as run:
        session = run.session()
        call = asyncio.create_task(session.complete(BODY))
        await a_request_of(run)
        session.close()
        with pytest.raises(LateCallError, match=r"rollout 0\.0 came after the end"):
            await call
        with pytest.raises(LateCallError):
            await session.complete(BODY)
    assert (session.turns, session.conversation.messages) == ((), [])
    assert len(run.requests) == 1


async def test_after_the_end_nothing_of_a_raw_rollout_is_taken_either():
    async with running() as run:
        session = run.session()
        await session.complete(BODY)
        session.close()
        with pytest.raises(LateCallError):
            session.set_history([])
        with pytest.raises(LateCallError):
            session.acknowledge(answer("late"))
    assert len(session.conversation.messages) == 2


async def test_a_blocking_call_after_the_run_is_refused_at_once():
    async with running() as run:
        session = run.session()
    session.close()
    with pytest.raises(LateCallError):
        await asyncio.to_thread(session.complete_blocking, BODY)


async def test_a_call_is_not_sent_again_once_the_attempt_has_ended():
    async with running([BUSY], retries=RetryPolicy(first_wait_s=2)) as run:
        session = run.session()
        call = asyncio.create_task(session.complete(BODY))
        await a_request_of(run)
        session.close()
        with pytest.raises(LateCallError):
            await call
    assert len(run.requests) == 1


@pytest.mark.parametrize("answer_id", ["same", None, ...])
async def test_each_raw_answer_is_acknowledged_whatever_its_id(answer_id):
    body = answer("a", id=answer_id)
    async with running([body]) as run:
        session = run.session()
        for _ in range(2):
            await session.complete(BODY, via="raw")
        dumped = ChatCompletionResponse(**body).model_dump()
        session.acknowledge(dumped)
        assert "raw_call_not_processed" in session.warnings
        session.acknowledge(dumped)
        assert "raw_call_not_processed" not in session.warnings
        session.acknowledge(dumped)
    assert session.conversation.num_calls == 2


async def test_the_timeout_of_a_call_is_the_plugins():
    async with running(delay_s=60, retries=RetryPolicy(max_retries=0)) as run:
        with pytest.raises(EndpointUnreachableError, match=r"within the 0\.01 s") as late:
            await run.session().complete(BODY, timeout_s=0.01)
    assert late.value.is_timeout


async def test_a_turn_knows_its_times_and_its_tools():
    first = answer(None, tool_calls=[tool_call("a"), tool_call("b", id="c2")])
    async with running([first, answer("done", usage=None)], delay_s=0.01) as run:
        session = run.session()
        await session.complete(BODY)
        await asyncio.sleep(0.02)
        await session.complete(BODY)
    one, two = session.turns
    assert (one.tool_calls, one.finish_reason, one.completion_tokens) == (
        ("a", "b"),
        "tool_calls",
        2,
    )
    assert one.tool_duration_s > 0.015
    assert two.started_s == pytest.approx(
        one.started_s + one.duration_s + one.tool_duration_s, abs=0.01
    )
    assert (two.tool_duration_s, two.prompt_tokens) == (None, None)
    assert one.duration_s >= 0.009


async def test_the_session_tells_of_each_turn():
    told = []
    async with running() as run:
        run.services.on_turn = told.append
        session = run.session()
        await session.complete(BODY)
        await asyncio.to_thread(session.complete_blocking, BODY)
    assert told == [session, session]


async def test_sessions_are_safe_for_threads():
    async with running() as run:
        session = run.session()
        barrier = threading.Barrier(8)

        def calls():
            barrier.wait(60)
            for _ in range(10):
                session.complete_blocking(BODY)

        await asyncio.gather(*(call_in_thread(calls) for _ in range(8)))
    assert (session.num_turns, session.conversation.usage.total_tokens) == (80, 560)
    assert len({request.seed for request in run.requests}) == 80


async def test_evidence_of_the_endpoint_arrives_on_the_conversation():
    async with running([with_tokens([1], [2], [-0.1])]) as run:
        session = run.session()
        await session.complete(BODY)
    assert session.conversation.tokens.token_ids == (1, 2)
    assert session.conversation.messages[-1] == ChatCompletionMessage(
        role="assistant", content="fine"
    )


async def test_an_answer_without_text_and_calls_is_counted():
    async with running([answer(None)]) as run:
        session = run.session()
        await session.complete({"messages": LINE["messages"]})
    assert "empty_answer" in session.warnings
