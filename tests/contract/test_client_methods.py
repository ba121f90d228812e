"""ROLL-39, PROXY-22..25: what else a client has beside `create`, and calls that make no sense."""

import asyncio

import pytest
from pydantic import BaseModel

from arkdev import rollout, wrap_async_client_inplace, wrap_client_inplace
from arkdev.errors import PluginError, SamplingParameterError
from tests.running import LINE, QUESTION, WEATHER_TOOL, answer, running, tool_call

pytestmark = pytest.mark.openai_range
RESPONSES = {"model": "m", "input": LINE["messages"]}


class Weather(BaseModel):
    degrees: int


def chat(client):
    """Return the chat resource that has `parse`: `beta` in the oldest openai that we allow."""
    chat = client.chat.completions
    return chat if hasattr(chat, "parse") else client.beta.chat.completions


SUNNY = answer('{"degrees": 22}')


async def test_parse_is_recorded_and_reads_the_answer():
    async with running([SUNNY]) as run:
        session = run.session(temperature=0.5)
        client = run.proxy(session).async_rollout_client()
        parsed = await chat(client).parse(**QUESTION, response_format=Weather)
        old = await client.beta.chat.completions.parse(**QUESTION, response_format=Weather)
        response = await client.responses.parse(**RESPONSES, text_format=Weather)
        sync_client = run.proxy(session).rollout_client()
        same = await asyncio.to_thread(chat(sync_client).parse, **QUESTION, response_format=Weather)
    for completion in (parsed, old, same):
        assert completion.choices[0].message.parsed == Weather(degrees=22)
    assert response.output_parsed == Weather(degrees=22)
    assert [turn.via for turn in session.turns] == ["wrapped"] * 4
    assert run.requests[0].sampling == {"temperature": 0.5}
    assert run.requests[0].body["response_format"]["type"] == "json_schema"


async def test_parse_refuses_sampling_parameters_as_create_does():
    async with running([SUNNY]) as run:
        client = run.proxy().async_rollout_client()
        for resource, call in (
            (chat(client), QUESTION),
            (client.beta.chat.completions, QUESTION),
            (client.responses, RESPONSES),
        ):
            with pytest.raises(SamplingParameterError):
                await resource.parse(**call, temperature=0)
        create = getattr(client.beta.chat.completions, "create", client.chat.completions.create)
        with pytest.raises(SamplingParameterError):
            await create(**QUESTION, top_p=0.5)
    assert run.requests == []


async def test_parse_of_a_client_that_points_elsewhere_is_a_clear_error():
    import openai

    elsewhere = openai.AsyncOpenAI(base_url="http://127.0.0.1:9", api_key="k")
    async with running() as run, elsewhere as client:
        wrap_async_client_inplace(client, run.proxy())
        with pytest.raises(PluginError, match="this call goes over HTTP"):
            await chat(client).parse(**QUESTION, response_format=Weather)


@pytest.mark.parametrize("method", ["with_options", "copy"])
async def test_a_client_with_other_options_belongs_to_the_same_rollout(method):
    async with running() as run:
        session = run.session()
        client = run.proxy(session).async_rollout_client()
        same = getattr(client, method)(default_headers={"x": "y"})
        patient = getattr(client, method)(timeout=50, max_retries=0)
        again = getattr(patient, method)(max_retries=0)
        for made in (same, patient, again):
            await made.chat.completions.create(**QUESTION)
            await made.responses.create(**RESPONSES)
            with pytest.raises(SamplingParameterError):
                await made.chat.completions.create(**QUESTION, temperature=0)
    assert [turn.via for turn in session.turns] == ["wrapped"] * 6


async def test_a_raw_response_of_a_client_that_was_handed_out_is_a_real_one():
    async with running(["fine"]) as run:
        session = run.session()
        client = run.proxy(session).async_rollout_client()
        raw = await client.chat.completions.with_raw_response.create(**QUESTION)
    assert raw.status_code == 200 and raw.headers["content-type"].startswith("application/json")
    assert raw.parse().choices[0].message.content == "fine"
    assert len(session.turns) == 1


async def test_a_timeout_of_the_transport_library_counts():
    import openai

    async with running(delay_s=300) as run:
        client = run.proxy().async_rollout_client()
        async with asyncio.timeout(60):
            with pytest.raises(openai.APITimeoutError):
                await client.chat.completions.create(
                    **QUESTION, timeout=openai.Timeout(60, read=0.01)
                )
        with pytest.raises(PluginError, match="timeout='soon' is no time"):
            await client.chat.completions.create(**QUESTION, timeout="soon")


async def test_an_unknown_keyword_is_the_error_that_the_client_would_raise():
    async with running() as run:
        client = run.proxy().async_rollout_client()
        with pytest.raises(TypeError, match="argument 'tool'; did you mean 'tools'"):
            await client.chat.completions.create(**QUESTION, tool=[])
        with pytest.raises(TypeError, match="argument 'min_p'; extra_body"):
            await client.chat.completions.create(**QUESTION, min_p=0.1)
        await client.chat.completions.create(**QUESTION, extra_body={"min_p": 0.1})
    assert len(run.requests) == 1


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("hello", "messages is 'hello', not a list"),
        ([None], r"messages\[0\] is None, not a message with a role"),
        ([{"content": "x"}], r"messages\[0\] is .* not a message with a role"),
        ({"role": "user"}, "messages is .* not a list"),
    ],
)
async def test_messages_that_are_none_are_refused_where_they_are_sent(messages, problem):
    async with running() as run:
        client = run.proxy().async_rollout_client()
        with pytest.raises(PluginError, match=problem) as refused:
            await client.chat.completions.create(model="m", messages=messages)
    assert refused.value.where.startswith(__file__)
    assert run.requests == []


def test_wrapping_for_nothing_is_a_clear_error():
    import openai

    with (
        openai.OpenAI(base_url="http://127.0.0.1:9", api_key="k") as client,
        pytest.raises(PluginError, match="wrapped for None, which is no proxy") as refused,
    ):
        wrap_client_inplace(client, None)
    assert refused.value.where.startswith(__file__)


async def test_a_forgotten_await_in_the_messages_is_named():
    async def tool():
        return "sunny"

    @rollout
    async def forgets(context, proxy, sample):
        result = tool()
        try:
            message = {"role": "tool", "tool_call_id": "c", "content": result}
            client = proxy.async_rollout_client()
            await client.chat.completions.create(model="m", messages=[message])
        finally:
            result.close()

    async with running() as run:
        (attempt, *_) = (await run.rollout(forgets)).record.attempts
    assert "did you forget await?" in attempt.error
    assert attempt.where.startswith(__file__)


async def test_tool_messages_that_answer_no_call_are_counted():
    @rollout
    async def sloppy(context, proxy, sample):
        asked = {"role": "assistant", "tool_calls": [tool_call(id="c1")]}
        messages = [
            *LINE["messages"],
            asked,
            {"role": "tool", "tool_call_id": "c1", "content": "good"},
            {"role": "tool", "content": "no id"},
            {"role": "tool", "tool_call_id": "c2", "content": "unknown id"},
        ]
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=messages, tools=[WEATHER_TOOL])

    async with running() as run:
        record = (await run.rollout(sloppy)).record
    assert record.warnings == (
        "tool_message_without_call: a tool message has no tool_call_id",
        "tool_message_without_call: no call before it has the id c2",
    )
