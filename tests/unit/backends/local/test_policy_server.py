"""The policy over HTTP, with the clients that people use."""

import asyncio
import functools
import json
from contextlib import asynccontextmanager

import aiohttp
import openai
import pytest

from arkdev.backends.local.server import PolicyServer
from arkdev.errors import PolicyEngineError
from tests.unit.backends.local.letters import CALL, END, QUESTION, WEATHER, policy

FLAT_WEATHER = {"type": "function", **WEATHER["function"]}
THOUGHT = "<think>\nI look.\n</think>\n\n"


@asynccontextmanager
async def serving(*answers, seed=None, api_key=None, **settings):
    endpoint = policy(*answers, **settings)
    server = PolicyServer(endpoint, seed=seed, api_key=api_key)
    url = await server.start()
    try:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield endpoint, client
    finally:
        await server.stop()


def nested(num_levels):
    return functools.reduce(lambda inner, _: {"a": inner}, range(num_levels), 1)


async def chat(client, *messages, **fields):
    return await client.chat.completions.create(
        model="told", messages=list(messages or [QUESTION]), **fields
    )


async def test_a_tool_conversation_over_chat():
    async with serving(THOUGHT + CALL, "It rains.") as (endpoint, client):
        first = await chat(client, tools=[WEATHER])
        said = first.choices[0].message
        assert said.reasoning_content == "I look."
        result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "rain"}
        last = await chat(client, QUESTION, said.model_dump(), result, tools=[WEATHER])
    assert last.choices[0].message.content == "It rains."
    before, after = (request.prompt_token_ids for request in endpoint.engine.requests)
    assert after[: len(before)] == before
    assert chr(after[len(before)]) == "<"  # the reasoning as it was sampled


async def test_token_ids_and_logprobs_come_when_they_are_asked_for_alone():
    async with serving("It rains.") as (_, client):
        plain = await chat(client)
        full = await chat(
            client, logprobs=True, top_logprobs=1, extra_body={"return_token_ids": True}
        )
    assert plain.choices[0].logprobs is None and "token_ids" not in plain.choices[0].model_extra
    assert "prompt_token_ids" not in plain.model_extra
    assert plain.model_extra["policy_version"] == 7
    entries = full.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == "It rains." + END
    assert len(full.choices[0].model_extra["token_ids"]) == len(entries)
    assert len(full.model_extra["prompt_token_ids"]) == full.usage.prompt_tokens


async def test_a_stream_comes_token_by_token_while_it_is_sampled():
    async with serving("It rains in Oslo.", pause_s=0.02) as (endpoint, client):
        pieces, seen_at = [], []
        stream = await chat(client, stream=True)
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                pieces.append(chunk.choices[0].delta.content)
                seen_at.append(endpoint.engine.num_sampled)
    assert "".join(pieces) == "It rains in Oslo." and len(pieces) > 5
    assert seen_at[0] < len("It rains in Oslo.") < endpoint.engine.num_sampled


async def test_a_stream_has_reasoning_calls_usage_and_evidence():
    async with serving(f"{THOUGHT}Let me look.\n{CALL}") as (_, client):
        stream = await chat(
            client,
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            tools=[WEATHER],
            extra_body={"return_token_ids": True},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(d.content or "" for d in deltas) == "Let me look."
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "I look."
    calls = [call for d in deltas for call in d.tool_calls or ()]
    assert calls[0].function.name == "get_weather" and calls[0].id
    assert json.loads("".join(call.function.arguments for call in calls)) == {"city": "Oslo"}
    last = chunks[-2].choices[0]
    assert last.finish_reason == "tool_calls"
    assert len(last.logprobs.content) == len(last.model_extra["token_ids"])
    assert chunks[-1].usage.completion_tokens == len(last.logprobs.content)
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_stream_and_the_whole_answer_say_the_same():
    texts = [
        "a < b and b <i>so</i>\n\n on",
        f"\n\nHello\n\n{CALL}\nthen\n{CALL}",
        "<tool_call>\nbroken",
        '{"a": 1}',
        "Grüße <thin",
        f"{THOUGHT}done\n",
    ]
    for text in texts:
        async with serving(text) as (_, client):
            whole = (await chat(client, tools=[WEATHER])).choices[0].message
            stream = await chat(client, tools=[WEATHER], stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream]
        said = "".join(delta.content or "" for delta in deltas)
        # line breaks that go before a call cannot be taken back
        assert said.lstrip("\n") == (whole.content or "").lstrip("\n"), text
        calls = [call for delta in deltas for call in delta.tool_calls or ()]
        assert len({call.index for call in calls}) == len(whole.tool_calls or ()), text


async def test_a_stop_text_never_shows_in_a_stream():
    async with serving("One. Two. Three.", pause_s=0.002) as (endpoint, client):
        stream = await chat(client, stream=True, stop=[". Tw"])
        said = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(said) == "One"
    assert endpoint.engine.num_sampled == len("One. Tw")


async def test_a_client_that_hangs_up_ends_the_sampling():
    async with serving("a" * 9000, pause_s=0.002) as (endpoint, client):
        stream = await chat(client, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        assert await asyncio.to_thread(endpoint.engine.was_cancelled.wait, 60)
    assert endpoint.engine.num_sampled < 9000


async def test_a_client_that_hangs_up_on_a_whole_answer_ends_the_sampling_too():
    async with serving("a" * 9000, pause_s=0.002) as (endpoint, client):
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=1.0).chat.completions.create(
                model="told", messages=[QUESTION]
            )
        assert await asyncio.to_thread(endpoint.engine.was_cancelled.wait, 60)
    assert endpoint.engine.num_sampled < 9000


async def test_a_tool_conversation_continues_by_response_id():
    async with serving(THOUGHT + CALL, "It rains.", "No.") as (endpoint, client):
        first = await client.responses.create(model="m", input=[QUESTION], tools=[FLAT_WEATHER])
        call = next(item for item in first.output if item.type == "function_call")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        for _ in range(2):  # two branches from one response
            last = await client.responses.create(
                model="m", input=[result], tools=[FLAT_WEATHER], previous_response_id=first.id
            )
    assert last.output_text == "No." and last.previous_response_id == first.id
    before, one, other = (request.prompt_token_ids for request in endpoint.engine.requests)
    sampled = [ord(letter) for letter in THOUGHT + CALL + END]
    assert one == other and list(one[: len(before) + len(sampled)]) == [*before, *sampled]


async def test_a_streamed_response_has_its_events_while_it_is_sampled():
    async with serving(f"{THOUGHT}Let me look.\n{CALL}", pause_s=0.002) as (endpoint, client):
        seen_at, events = [], []
        stream = await client.responses.create(
            model="m", input=[QUESTION], tools=[FLAT_WEATHER], stream=True
        )
        async for event in stream:
            events.append(event)
            seen_at.append(endpoint.engine.num_sampled)
        final = events[-1].response
        again = await client.responses.create(
            model="m", input="go on", previous_response_id=final.id
        )
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in done] == [item.id for item in final.output]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == final.output_text == "Let me look."
    thought = [e.delta for e in events if e.type == "response.reasoning_summary_text.delta"]
    assert "".join(thought) == "I look."
    first_piece = kinds.index("response.output_text.delta")
    assert seen_at[first_piece] < endpoint.engine.num_sampled / 2
    assert final.usage.output_tokens > 0 and again.previous_response_id == final.id


async def test_an_empty_answer_is_a_whole_stream():
    async with serving("") as (_, client):
        events = [e async for e in await client.responses.create(model="m", input="q", stream=True)]
        chunks = [chunk async for chunk in await chat(client, stream=True)]
    assert events[-1].response.status == "completed" and events[-1].response.output_text == ""
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_a_cut_response_is_incomplete():
    async with serving("It rains.") as (_, client):
        made = await client.responses.create(model="m", input="q", max_output_tokens=3)
    assert made.status == "incomplete" and made.incomplete_details.reason == "max_output_tokens"


async def test_errors_come_in_the_envelope_before_a_stream_begins():
    async with serving("x", max_context_tokens=20) as (_, client):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                await chat(client, stream=stream)
            assert caught.value.code == "context_length_exceeded"
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(model="m", input="q" * 30, stream=stream)
            assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError, match="no response"):
            await client.responses.create(model="m", input="q", previous_response_id="nope")


async def test_an_engine_that_dies_is_a_503_and_ends_a_stream_with_an_error():
    async with serving("x") as (endpoint, client):
        endpoint.engine.fails = PolicyEngineError("the engine has died: killed")
        with pytest.raises(openai.InternalServerError, match="killed") as caught:
            await chat(client)
        assert caught.value.status_code == 503
        with pytest.raises(openai.APIError, match="killed"):
            async for _ in await chat(client, stream=True):
                pass


async def test_the_servers_seed_makes_requests_in_a_row_repeatable():
    seeds = []
    for _ in range(2):
        async with serving("x", seed=3) as (endpoint, client):
            for _ in range(3):
                await chat(client)
            await chat(client, seed=11)
            seeds.append([request.sampling.seed for request in endpoint.engine.requests])
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 4 and seeds[0][-1] == 11


async def test_models_health_keys_and_the_ark_path():
    async with serving("x", api_key="s3cret") as (_, client):
        root = str(client.base_url).removesuffix("/v1/")
        with pytest.raises(openai.AuthenticationError):
            await chat(client)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{root}/health") as health:
                assert await health.json() == {"status": "ok"}
            async with session.get(f"{root}/api/v3/models") as models:
                assert [model["id"] for model in (await models.json())["data"]] == ["told"]
            async with session.post(
                f"{root}/api/v3/chat/completions",
                json={"messages": [QUESTION], "stream": True},
                headers={"Authorization": "Bearer s3cret"},
            ) as response:
                lines = [line async for line in response.content if line.strip()]
    assert response.headers["x-request-id"] and lines[-1] == b"data: [DONE]\n"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user", "content": "\ud83d"}]}, "messages"),
        ({"messages": [QUESTION], "thinking": {"type": []}}, "thinking.type"),
        ({"messages": [QUESTION], "temperature": 1e-45}, "temperature"),
        ({"messages": [QUESTION], "top_p": 0}, "top_p"),
        ({"messages": [QUESTION], "repetition_penalty": 1e-300}, "repetition_penalty"),
        ("[" * 100_000, ""),
        ({"messages": [{**QUESTION, "extra": nested(600)}]}, "messages"),
        ({"messages": [QUESTION], "tools": [{**WEATHER, "extra": nested(600)}]}, "tools"),
    ],
)
async def test_odd_bodies_are_refused_by_name(body, param):
    async with serving("It rains.") as (_, client), aiohttp.ClientSession() as http:
        data = body if isinstance(body, str) else json.dumps(body)
        async with http.post(f"{client.base_url}chat/completions", data=data) as reply:
            error = (await reply.json())["error"]
    assert (reply.status, error["param"]) == (400, param)


async def test_an_input_that_is_nested_too_deeply_is_refused():
    async with serving("It rains.") as (_, client):
        with pytest.raises(openai.BadRequestError, match="nested") as caught:
            await client.responses.create(model="m", input=[{**QUESTION, "extra": nested(600)}])
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "\ud83d"}, "input"),
        ({"input": []}, "input"),
        ({"input": "q" * 1000}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
    ],
)
async def test_what_a_response_cannot_be_is_said_by_the_names_of_its_api(fields, param):
    async with serving("It rains.") as (_, client), aiohttp.ClientSession() as http:
        for stream in (False, True):
            body = json.dumps({"input": "q", "stream": stream, **fields})
            async with http.post(f"{client.base_url}responses", data=body) as reply:
                error = (await reply.json())["error"]
            assert (reply.status, error["param"]) == (400, param)
            assert f"`{param}`" in error["message"] or "context" in error["message"]


async def test_a_body_that_cannot_be_read_is_refused_in_the_envelope(caplog, monkeypatch):
    monkeypatch.setattr("arkdev.endpoints.serving.server.MAX_BODY_BYTES", 1000)
    async with serving("It rains.") as (_, client), aiohttp.ClientSession() as http:
        url = f"{client.base_url}chat/completions"
        packed = {"content-encoding": "gzip"}
        async with http.post(url, data=b"not packed at all", headers=packed) as reply:
            code = (await reply.json())["error"]["code"]
            assert (reply.status, code) == (400, "InvalidParameter")
        async with http.post(url, data=b" " * 2000) as reply:
            kind = (await reply.json())["error"]["type"]
            assert (reply.status, kind) == (413, "BadRequest")
        assert (await chat(client)).choices[0].message.content == "It rains."
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_is_told_in_the_envelope_and_in_one_line(stream, caplog):
    async with serving("x", "It rains.") as (endpoint, client):
        endpoint.engine.fails = RecursionError("too\ndeep")
        with pytest.raises(openai.APIError, match="RecursionError"):
            async for _ in await chat(client, stream=stream):
                pass
        endpoint.engine.fails = None
        assert (await chat(client)).choices[0].message.content == "It rains."
    (record,) = (record for record in caplog.records if record.name == "arkdev.serving")
    assert record.getMessage() == "a request could not be answered: RecursionError: too deep"
    assert record.exc_info is None
