"""The gateway for raw clients: streams, and the Responses API."""

from contextlib import asynccontextmanager

import aiohttp
import openai
import pytest

from arkdev.errors import EndpointResponseError
from arkdev.plugin.responses import chat_body_of_responses, response_of_answer
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.session import Session
from tests.running import LINE, WEATHER_TOOL, answer, running, tool_call

FLAT_TOOL = {"type": "function", **WEATHER_TOOL["function"]}


class RespondingSession(Session):
    """An attempt that answers Responses requests and remembers what it was asked."""

    asked = None

    async def respond(self, request, *, via, sampling):
        self.asked = (request, via, sampling)
        body = chat_body_of_responses(request)
        made = await self.complete(body, via=via, sampling=sampling)
        return response_of_answer(
            made, response_id="resp_1", previous_response_id=None, request=request
        )


def openai_client(session):
    return openai.AsyncOpenAI(base_url=session.url, api_key=session.jwt_token, max_retries=0)


@asynccontextmanager
async def responding(answers=("fine",), **sampling):
    async with running(answers) as run:
        session = RespondingSession(
            AttemptIdentity(0, 0, 0), sampling=sampling, services=run.services
        )
        run.gateway.open(session)
        async with openai_client(session) as client:
            yield run, session, client


async def test_a_chat_stream_is_made_of_the_answer_that_the_session_records():
    calls = answer(None, tool_calls=[tool_call(arguments='{"city": "北京"}')])
    async with running([calls, "It is 22 degrees."]) as run:
        session = run.session()
        async with openai_client(session) as client:
            stream = await client.chat.completions.create(
                model="any",
                messages=LINE["messages"],
                tools=[WEATHER_TOOL],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
            text = await client.chat.completions.create(
                model="any", messages=LINE["messages"], stream=True
            )
            said = [chunk.choices[0].delta.content or "" async for chunk in text]
    arguments = [c.choices[0].delta.tool_calls for c in chunks if c.choices]
    assert "".join(part[0].function.arguments for part in arguments if part) == '{"city": "北京"}'
    assert chunks[-1].usage.total_tokens == 7
    assert "".join(said) == "It is 22 degrees."
    assert [turn.finish_reason for turn in session.turns] == ["tool_calls", "stop"]
    assert {turn.via for turn in session.turns} == {"raw"}
    assert session.conversation.plain_messages[-1]["content"] == "It is 22 degrees."
    assert "stream" not in run.requests[0].body and "stream_options" not in run.requests[0].body


async def test_an_error_comes_as_an_error_and_not_as_a_stream():
    error = EndpointResponseError("overloaded", status=429, body={"error": {"message": "busy"}})
    async with running([error]) as run:
        session = run.session()
        async with openai_client(session) as client:
            with pytest.raises(openai.RateLimitError, match="busy") as caught:
                await client.chat.completions.create(
                    model="any", messages=LINE["messages"], stream=True
                )
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_a_responses_call_reaches_the_session():
    async with responding(temperature=0.5) as (run, session, client):
        response = await client.responses.create(
            model="any",
            input=LINE["messages"],
            tools=[FLAT_TOOL],
            max_output_tokens=9,
            temperature=0.5,
            metadata={"a": "b"},
        )
    assert response.output_text == "fine" and response.id == "resp_1"
    request, via, sampling = session.asked
    assert request == {
        "model": "any",
        "input": LINE["messages"],
        "tools": [FLAT_TOOL],
        "metadata": {"a": "b"},
    }
    assert via == "raw" and sampling == {"max_new_tokens": 9, "temperature": 0.5}
    assert run.requests[0].sampling["max_new_tokens"] == 9
    assert session.warnings[0] == "raw_sampling_parameter: max_new_tokens"


async def test_a_responses_stream_is_made_of_the_whole_response():
    call = answer(None, tool_calls=[tool_call(arguments='{"city": "北京"}')])
    async with (
        responding([call]) as (_, session, client),
        client.responses.stream(model="any", input=LINE["messages"], tools=[FLAT_TOOL]) as stream,
    ):
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()
    assert response.output[0].arguments == '{"city": "北京"}'
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "stream" not in session.asked[0]


async def test_what_cannot_be_translated_is_named_in_the_envelope():
    async with responding() as (run, _, client):
        with pytest.raises(openai.BadRequestError, match=r"nested `function`") as caught:
            await client.responses.create(model="any", input="hi", tools=[WEATHER_TOOL])
    assert caught.value.param == "tools[0]"
    assert run.requests == []


async def test_a_key_of_no_attempt_and_one_that_has_ended_are_refused():
    async with responding() as (_, session, client):
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="other").responses.create(model="any", input="hi")
        session.close()
        with pytest.raises(openai.AuthenticationError, match="after the end"):
            await client.responses.create(model="any", input="hi")


@pytest.mark.parametrize("path", ["responses", "chat/completions"])
@pytest.mark.parametrize("body", ["{", "[]", '"text"', "\xff"])
async def test_a_body_that_is_no_json_object_is_a_bad_request(path, body):
    async with responding() as (_, session, _), aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {session.jwt_token}"}
        async with http.post(
            f"{session.url}/{path}", data=body.encode("latin-1"), headers=headers
        ) as answered:
            assert answered.status == 400
            assert (await answered.json())["error"]["code"] == "InvalidParameter"


async def test_other_routes_name_those_that_there_are():
    async with (
        running() as run,
        aiohttp.ClientSession() as http,
        http.get(f"{run.gateway.url}/responses/resp_1") as answered,
    ):
        assert answered.status == 404
        assert "POST /api/v3/responses" in (await answered.json())["error"]["message"]
