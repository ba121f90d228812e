"""Faults of model calls, real and injected: what the plugin gets, what the record says."""

import asyncio
import json

import pytest

from arkdev import rollout
from arkdev.errors import EndpointResponseError, EndpointUnreachableError
from arkdev.runs.records import HandledBy, Verdict
from arkdev.sessions.retries import RetryPolicy
from tests.running import LINE, QUESTION, answer, running, tool_call, with_tokens

BODY = {"messages": LINE["messages"]}
BUSY = EndpointResponseError("slow down", status=429, is_transient=True)
SLOW = EndpointUnreachableError("no answer", is_timeout=True)
CUT = EndpointUnreachableError("connection reset")
NO_RETRIES = RetryPolicy(max_retries=0)


def told(faults):
    return [(f.kind, f.target, f.handled_by.value, f.is_injected, f.detail) for f in faults]


def text_of(body):
    return body["choices"][0]["message"]["content"]


async def test_real_faults_that_sending_again_made_good_are_the_harness_s():
    async with running([BUSY, SLOW, "good"]) as run:
        session = run.session()
        await session.complete(BODY)
        await session.complete(BODY)
    assert told(session.faults) == [
        ("429", "call 1", "harness", False, "slow down"),
        ("timeout", "call 1", "harness", False, "no answer"),
    ]


async def test_real_faults_that_reach_the_plugin_are_its_own_when_the_attempt_ends_well():
    @rollout
    async def swallows(context, proxy, sample):
        import openai

        client = proxy.async_rollout_client()
        try:
            await client.chat.completions.create(**QUESTION)
        except openai.APIError:
            await client.chat.completions.create(**QUESTION)

    async with running([CUT, CUT, CUT, "good"]) as run:
        finished = await run.rollout(swallows)
    (attempt,) = finished.record.attempts
    assert [(f.kind, f.target) for f in attempt.faults] == [("unreachable", "call 1")] * 3
    assert {f.handled_by for f in attempt.faults} == {HandledBy.PLUGIN}


async def test_an_error_inside_a_success_answer_and_a_refusal_are_recorded_by_their_status():
    hidden = EndpointResponseError("overloaded", status=200, is_transient=True)
    refused = EndpointResponseError("no such role", status=400)
    async with running([hidden, refused]) as run:
        session = run.session()
        with pytest.raises(EndpointResponseError):
            await session.complete(BODY)
    assert [fault.kind for fault in session.faults] == ["200", "400"]


async def test_the_time_that_a_plugin_allows_gives_a_timeout():
    async with running(["late"], delay_s=60, retries=NO_RETRIES) as run:
        session = run.session()
        with pytest.raises(EndpointUnreachableError):
            await session.complete(BODY, timeout_s=0.01)
    assert [fault.kind for fault in session.faults] == ["timeout"]


@pytest.mark.parametrize(
    ("inject", "error", "text"),
    [
        ("model.timeout=100%", "APITimeoutError", "injected timeout"),
        ("model.raise=100%", "APIConnectionError", "injected raise"),
        ("model.429=100%:7s", "RateLimitError", "injected 429"),
        ("model.500=100%", "InternalServerError", "injected 500"),
        ("model.404=100%", "NotFoundError", "injected 404"),
    ],
)
async def test_an_injected_error_comes_as_the_client_s_own_and_says_that_it_is_injected(
    inject, error, text
):
    import openai

    async with running(retries=NO_RETRIES, inject=inject) as run:
        session = run.session()
        client = run.proxy(session).async_rollout_client()
        with pytest.raises(getattr(openai, error), match=text) as raised:
            await client.chat.completions.create(**QUESTION)
    assert run.requests == []
    kind = inject.partition("=")[0].removeprefix("model.")
    assert told(session.faults) == [(kind, "call 1", "nobody", True, text)]
    if "7s" in inject:
        assert raised.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(("kind", "num_sends"), [("429", 3), ("503", 3), ("404", 1), ("raise", 3)])
async def test_an_injected_error_is_sent_again_as_a_real_one_would_be(kind, num_sends):
    async with running(inject=f"model.{kind}=100%") as run:
        session = run.session()
        with pytest.raises((EndpointResponseError, EndpointUnreachableError)):
            await session.complete(BODY)
    assert len(session.faults) == num_sends


async def test_the_retry_after_of_an_injected_429_counts_as_a_real_one():
    async with running(inject="model.429=100%:61s") as run:
        session = run.session()
        with pytest.raises(EndpointResponseError, match=r"injected 429 \(it asks to wait 61 s"):
            await session.complete(BODY)
    assert [fault.kind for fault in session.faults] == ["429"]


async def test_sends_are_drawn_apart_so_a_call_that_goes_out_again_can_be_answered():
    async with running(inject="model.429=50%") as run:
        session = run.session()
        for _ in range(12):
            try:
                await session.complete(BODY)
            except EndpointResponseError:
                continue
    by_harness = [f for f in session.faults if f.handled_by is HandledBy.HARNESS]
    assert 0 < len(by_harness) <= len(session.faults)
    answered = {f"call {number}" for number in range(1, 13)} - {
        f.target for f in session.faults if f.handled_by is not HandledBy.HARNESS
    }
    assert len(answered) == len(session.turns)


async def test_garbage_and_empty_replace_the_answer_and_take_its_tool_calls_and_tokens_away():
    sampled = with_tokens([1, 2], [3], [-0.5])
    sampled["choices"][0]["message"]["tool_calls"] = [tool_call()]
    sampled["choices"][0]["finish_reason"] = "tool_calls"
    for kind in ("garbage", "empty"):
        async with running([sampled], inject=f"model.{kind}=100%") as run:
            session = run.session()
            body = await session.complete(BODY)
            again = await run.session().complete(BODY)
        assert "tool_calls" not in body["choices"][0]["message"]
        assert body["choices"][0]["finish_reason"] == "stop"
        assert (text_of(body) == "") is (kind == "empty")
        assert text_of(again) == text_of(body)
        assert session.conversation.tokens is None
        assert told(session.faults) == [(kind, "call 1", "nobody", True, f"injected {kind}")]
    assert sampled["choices"][0]["message"]["tool_calls"], "the endpoint's own answer is untouched"


async def test_cut_json_cuts_the_last_tool_call_or_the_json_of_a_text_and_nothing_else():
    calls = [tool_call(arguments='{"a": 1}'), tool_call(arguments='{"city": "Paris"}', id="c2")]
    answers = [answer(None, tool_calls=calls), 'so: {"answer": [1, 2, 3]} ok', "no JSON here"]
    async with running(answers, inject="model.cut_json=100%") as run:
        session = run.session()
        first, second, third = [await session.complete(BODY) for _ in range(3)]
    cut = [c["function"]["arguments"] for c in first["choices"][0]["message"]["tool_calls"]]
    assert cut[0] == '{"a": 1}'
    assert '{"city": "Paris"}'.startswith(cut[1]) and 0 < len(cut[1]) < len('{"city": "Paris"}')
    assert 'so: {"answer": [1, 2, 3]}'.startswith(text_of(second)) and len(text_of(second)) > 4
    with pytest.raises(ValueError):
        json.loads(text_of(second).removeprefix("so: "))
    assert text_of(third) == "no JSON here"
    assert [fault.target for fault in session.faults] == ["call 1", "call 2"]


async def test_slow_delays_the_answer_and_a_plugin_without_patience_times_out():
    loop = asyncio.get_running_loop()
    async with running(retries=NO_RETRIES, inject="model.slow=100%:60ms") as run:
        started = loop.time()
        session = run.session()
        assert text_of(await session.complete(BODY)) == "fine"
        assert loop.time() - started >= 0.06
        with pytest.raises(EndpointUnreachableError) as raised:
            await session.complete(BODY, timeout_s=0.01)
    assert raised.value.is_timeout
    assert [(f.kind, f.detail) for f in session.faults] == [("slow", "0.06 s")] * 2


async def test_a_timeout_can_take_its_time():
    loop = asyncio.get_running_loop()
    async with running(retries=NO_RETRIES, inject="model.timeout=100%:50ms") as run:
        started = loop.time()
        with pytest.raises(EndpointUnreachableError):
            await run.session().complete(BODY)
    assert loop.time() - started >= 0.05


async def test_raw_clients_and_responses_get_the_same_faults_through_the_gateway():
    import openai

    async with running(retries=NO_RETRIES, inject="model.429=100%:3s") as run:
        session = run.session()
        raw = openai.AsyncOpenAI(base_url=session.url, api_key=session.jwt_token, max_retries=0)
        async with raw:
            with pytest.raises(openai.RateLimitError, match="injected 429"):
                await raw.chat.completions.create(**QUESTION)
            with pytest.raises(openai.RateLimitError, match="injected 429"):
                await raw.responses.create(model="m", input="hello")
        wrapped = run.proxy(session).async_rollout_client()
        with pytest.raises(openai.RateLimitError, match="injected 429"):
            await wrapped.responses.create(model="m", input="hello")
    assert [(f.kind, f.target) for f in session.faults] == [
        ("429", "call 1"),
        ("429", "call 2"),
        ("429", "call 3"),
    ]


async def test_branches_that_run_side_by_side_draw_by_their_place_in_the_tree():
    async def drawn(questions):
        async with running(retries=NO_RETRIES, inject="model.empty=50%") as run:
            session = run.session()
            answers = await asyncio.gather(
                *(session.respond({"model": "m", "input": question}) for question in questions)
            )
            await asyncio.sleep(0)
        is_empty = [body["output"][0]["content"][0]["text"] == "" for body in answers]
        return dict(zip(questions, is_empty, strict=True))

    questions = [f"question {number}" for number in range(10)]
    forwards, backwards = await drawn(questions), await drawn(questions[::-1])
    assert forwards == backwards
    assert 0 < sum(forwards.values()) < 10


async def test_the_fault_of_an_attempt_that_timed_out_in_it_is_recorded():
    from arkdev import Runtime

    @rollout(runtime=Runtime(timeout=0.7))
    async def asks(context, proxy, sample):
        await proxy.async_rollout_client().chat.completions.create(**QUESTION)

    async with running(inject="model.slow=100%:60s") as run:
        finished = await run.rollout(asks)
    assert finished.record.verdict is Verdict.FAILURE
    assert [[f.kind for f in attempt.faults] for attempt in finished.record.attempts] == [
        ["slow"]
    ] * 4
