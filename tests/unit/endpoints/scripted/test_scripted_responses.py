"""The scripted server's Responses API and its streams, with the clients that people use."""

import os
import time

import aiohttp
import openai
import pytest

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.registry import open_endpoint
from arkdev.endpoints.scripted.script import Script
from arkdev.endpoints.serving import stored_responses
from arkdev.endpoints.spec import EndpointSpec
from tests.unit.endpoints.scripted.test_scripted_server import QUESTION, WEATHER, post, serving

FLAT_WEATHER = {"type": "function", **WEATHER["function"]}
ASKED = '{"location": "北京", "unit": "摄氏度"}'


def script(*answers):
    return Script.model_validate({"answers": list(answers)})


@pytest.fixture
async def client():
    async with (
        serving(skill=1.0) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        yield client


def output_of(response):
    calls = [item for item in response.output if item.type == "function_call"]
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": "北京：晴，22摄氏度"}
        for call in calls
    ]


async def test_a_tool_conversation_continues_by_response_id(client):
    first = await client.responses.create(model="any", input=[QUESTION], tools=[FLAT_WEATHER])
    assert first.output[0].arguments == ASKED and first.status == "completed"
    last = await client.responses.create(
        model="any", input=output_of(first), tools=[FLAT_WEATHER], previous_response_id=first.id
    )
    assert "22" in last.output_text and last.previous_response_id == first.id
    assert last.usage.input_tokens > first.usage.input_tokens > 0


async def test_a_tool_conversation_continues_by_its_items(client):
    first = await client.responses.create(
        model="any", input=[QUESTION], tools=[FLAT_WEATHER], store=False
    )
    history = [QUESTION, *first.output, *output_of(first)]
    last = await client.responses.create(model="any", input=history, tools=[FLAT_WEATHER])
    assert "22" in last.output_text
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        await client.responses.create(model="any", input="go on", previous_response_id=first.id)


async def test_branches_of_one_response_do_not_see_each_other():
    answers = [{"turn": turn, "content": f"turn {turn}"} for turn in range(3)]
    async with (
        serving(script=script(*answers)) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none") as client,
    ):
        root = await client.responses.create(model="any", input="a")
        branches = [
            await client.responses.create(model="any", input="b", previous_response_id=root.id)
            for _ in range(2)
        ]
        leaf = await client.responses.create(
            model="any", input="c", previous_response_id=branches[0].id
        )
    assert [branch.output_text for branch in branches] == ["turn 1", "turn 1"]
    assert branches[0].id != branches[1].id and leaf.output_text == "turn 2"


async def test_instructions_do_not_carry_over():
    async with serving(script=script({"content": "x"})) as url:
        path = f"{url}/responses"
        _, first = await post(path, {"input": "a", "instructions": "a long instruction " * 20})
        _, again = await post(path, {"input": "b", "previous_response_id": first["id"]})
    assert again["usage"]["input_tokens"] < first["usage"]["input_tokens"]


async def test_the_store_is_bounded(monkeypatch):
    monkeypatch.setattr(stored_responses, "MAX_STORED_RESPONSES", 2)
    async with serving() as url:
        path = f"{url}/responses"
        made = [(await post(path, {"input": "12 + 7"}))[1]["id"] for _ in range(3)]
        statuses = [
            (await post(path, {"input": "and 1?", "previous_response_id": known}))[0]
            for known in (made[0], made[2])
        ]
    assert statuses == [400, 200]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "InvalidParameter", ""),
        ([], "InvalidParameter", ""),
        ({"model": "m"}, "MissingParameter", "input"),
        (
            {"input": "a", "previous_response_id": "nope"},
            "InvalidParameter",
            "previous_response_id",
        ),
        ({"input": "a", "tools": [WEATHER]}, "InvalidParameter", "tools[0]"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "InvalidParameter", "tools[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, "InvalidParameter", "input[0]"),
        ({"input": "a", "temperature": 9}, "InvalidParameter", "temperature"),
        ({"input": "a", "conversation": "c"}, "InvalidParameter", "conversation"),
    ],
)
async def test_bad_requests_get_the_ark_envelope(body, code, param):
    async with serving() as url:
        status, made = await post(f"{url}/responses", body)
    assert status == 400 and made["error"]["code"] == code and made["error"]["param"] == param
    assert "Request id: " in made["error"]["message"]


async def test_explicit_nulls_are_accepted():
    unset = ("tools", "temperature", "previous_response_id", "text", "stream", "caching", "store")
    async with serving() as url:
        status, made = await post(
            f"{url}/responses",
            {"input": "12 + 7", **dict.fromkeys(unset)},
            **{"x-arkdev-seed": "1"},
        )
    assert status == 200 and made["tools"] == []


async def test_a_script_programs_responses_as_it_programs_chat():
    answers = [
        {"error": {"status": 429, "code": "ServerOverloaded", "message": "busy."}, "times": 1},
        {"raw_body": {"error": {"message": "overloaded"}, "choices": None}, "times": 1},
        {
            "reasoning_content": "hm",
            "tool_calls": [{"name": "f", "arguments": "{broken", "id": "c1"}],
            "token_ids": [7, 8],
            "logprobs": [-0.1, -0.2],
            "prompt_token_ids": [1],
            "finish_reason": "length",
        },
    ]
    async with serving(script=script(*answers)) as url:
        made = [await post(f"{url}/responses", {"input": "a"}) for _ in range(3)]
    assert [status for status, _ in made] == [429, 200, 200]
    assert made[1][1] == {"error": {"message": "overloaded"}, "choices": None}
    response = made[2][1]
    assert response["status"] == "incomplete" and response["token_ids"] == [7, 8]
    assert response["prompt_token_ids"] == [1]
    assert (
        response["output"][1]["arguments"] == "{broken" and response["output"][1]["call_id"] == "c1"
    )


async def test_the_same_request_has_the_same_answer_in_both_apis():
    async with serving(skill=0.5) as url:
        for seed in map(str, range(4)):
            headers = {"x-arkdev-seed": seed}
            _, chat = await post(
                f"{url}/chat/completions", {"messages": [QUESTION], "tools": [WEATHER]}, **headers
            )
            _, made = await post(
                f"{url}/responses", {"input": [QUESTION], "tools": [FLAT_WEATHER]}, **headers
            )
            message = chat["choices"][0]["message"]
            calls = [item for item in made["output"] if item["type"] == "function_call"]
            assert [c["function"]["arguments"] for c in message.get("tool_calls", [])] == [
                item["arguments"] for item in calls
            ]
            assert chat["usage"]["prompt_tokens"] == made["usage"]["input_tokens"]


async def test_ark_s_client_speaks_responses():
    if not os.environ.get("CI"):
        pytest.importorskip("volcenginesdkarkruntime")
    from volcenginesdkarkruntime import AsyncArk

    async with serving(skill=1.0) as url:
        client = AsyncArk(base_url=url.replace("/v1", "/api/v3"), api_key="none")
        first = await client.responses.create(model="any", input=[QUESTION], tools=[FLAT_WEATHER])
        stream = await client.responses.create(
            model="any",
            input=output_of(first),
            tools=[FLAT_WEATHER],
            previous_response_id=first.id,
            stream=True,
        )
        events = [event async for event in stream]
        chat = await client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "12 + 7"}], stream=True
        )
        said = [chunk.choices[0].delta.content or "" async for chunk in chat]
        await client.close()
    assert events[-1].type == "response.completed"
    assert "22" in events[-1].response.output[0].content[0].text
    assert "".join(said) == "The answer is 19."


async def test_openai_s_chat_streams_are_parsed(client):
    create = client.chat.completions.create
    stream = await create(
        model="any",
        messages=[QUESTION],
        tools=[WEATHER],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    arguments = [
        call.function.arguments
        for chunk in chunks
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
    ]
    assert "".join(arguments) == ASKED
    assert chunks[-1].usage.total_tokens > 0 and chunks[-2].choices[0].finish_reason == "tool_calls"


async def test_openai_s_stream_helper_puts_the_chat_answer_together(client):
    if not hasattr(client.chat.completions, "stream"):
        pytest.skip("this openai has no chat.completions.stream")
    async with client.chat.completions.stream(
        model="any", messages=[QUESTION], tools=[WEATHER]
    ) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.tool_calls[0].function.arguments == ASKED


async def test_openai_s_stream_helper_puts_the_response_together(client):
    async with client.responses.stream(
        model="any", input=[QUESTION], tools=[FLAT_WEATHER]
    ) as stream:
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()
    assert response.output[0].arguments == ASKED
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "response.function_call_arguments.delta" in kinds
    async with client.responses.stream(
        model="any", input=output_of(response), previous_response_id=response.id
    ) as stream:
        said = [e.delta async for e in stream if e.type == "response.output_text.delta"]
        assert "".join(said) == (await stream.get_final_response()).output_text


async def test_reasoning_streams_through_openai_s_helper():
    answers = script({"reasoning_content": "let me think", "content": "22"})
    async with (
        serving(script=answers) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none") as client,
        client.responses.stream(model="any", input="a") as stream,
    ):
        response = await stream.get_final_response()
    assert response.output[0].summary[0].text == "let me think" and response.output_text == "22"


async def test_the_latency_is_spread_over_the_chunks():
    body = {"messages": [{"role": "user", "content": "12 + 7"}], "stream": True}
    async with serving(latency_s=2.0) as url, aiohttp.ClientSession() as session:
        started = time.monotonic()
        async with session.post(f"{url}/chat/completions", json=body) as response:
            await response.content.readuntil(b"\n\n")
            first = time.monotonic()
            text = await response.text()
            ended = time.monotonic()
    assert 1.9 <= ended - started < 60
    assert ended - first > 0.1
    assert text.endswith("data: [DONE]\n\n")


async def test_an_error_answer_is_not_streamed_and_one_in_a_success_is_an_event():
    answers = [
        {"error": {"status": 429, "code": "C", "message": "m."}, "times": 1},
        {"raw_body": {"error": {"message": "overloaded"}, "choices": None}},
    ]
    async with (
        serving(script=script(*answers)) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        for path in (client.chat.completions, client.responses):
            sent = {"messages": [QUESTION]} if path is client.chat.completions else {"input": "a"}
            if path is client.chat.completions:
                with pytest.raises(openai.RateLimitError):
                    await path.create(model="any", stream=True, **sent)
            stream = await path.create(model="any", stream=True, **sent)
            with pytest.raises(openai.APIError, match="overloaded"):
                [event async for event in stream]


async def test_a_client_that_goes_away_does_no_harm():
    body = {"input": "12 + 7", "stream": True}
    async with serving(latency_s=0.3) as url:
        async with aiohttp.ClientSession() as session:
            response = await session.post(f"{url}/responses", json=body)
            response.close()
        status, _ = await post(f"{url}/responses", {"input": "12 + 7"})
    assert status == 200


async def test_a_remote_endpoint_is_served_by_translation_of_responses():
    async with serving(skill=1.0) as url:
        spec = EndpointSpec(
            name="lab",
            base_url=url,
            model="scripted",
            api_key_env=None,
            family="scripted",
            source="a file",
            api="responses",
        )
        endpoint = open_endpoint(spec, max_in_flight=2, timeout_s=60)
        try:
            request = ModelRequest({"messages": [QUESTION], "tools": [WEATHER]}, seed=3)
            made = await endpoint.complete(request)
        finally:
            await endpoint.close()
    [call] = made["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == ASKED
