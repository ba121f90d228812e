"""What a remote endpoint sends and what it makes of answers; field case 5.4."""

import asyncio
import gc
import json
import threading
import weakref

import pytest
from pydantic import SecretStr

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.remote import RemoteEndpoint
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError, EndpointError
from arkdev.types import ChatCompletionMessage
from tests.unit.endpoints.chat_server import ChatServer, completion

USER = {"role": "user", "content": "hi"}


@pytest.fixture
async def server():
    async with ChatServer().running() as server:
        yield server


def remote(server, *, api_key="key-0123456789", max_in_flight=8, timeout_s=60, **spec):
    fields = {"model": "m1", "family": "generic", "source": "command line", **spec}
    return RemoteEndpoint(
        EndpointSpec(name="test", base_url=server.url, api_key_env="TEST_KEY", **fields),
        api_key=SecretStr(api_key) if api_key else None,
        max_in_flight=max_in_flight,
        timeout_s=timeout_s,
    )


async def call(server, body=None, *, sampling=None, seed=None, **settings):
    endpoint = remote(server, **settings)
    try:
        return await endpoint.complete(
            ModelRequest(body=body or {"messages": [USER]}, sampling=sampling or {}, seed=seed)
        )
    finally:
        await endpoint.close()


async def test_a_request_names_the_endpoints_model_and_says_that_it_does_not_stream(server):
    body = {"messages": [USER], "model": "other", "stream": True, "tool_choice": None}
    answer = await call(server, body, sampling={"max_new_tokens": 5, "top_k": 0}, seed=11)
    assert answer == completion()
    headers, sent = server.requests[0]
    assert sent == {"messages": [USER], "model": "m1", "stream": False, "max_tokens": 5}
    assert headers["Authorization"] == "Bearer key-0123456789"
    assert headers["x-arkdev-seed"] == "11"


async def test_without_a_model_of_its_own_an_endpoint_takes_the_calls(server):
    await call(server, {"messages": [USER], "model": "asked-for"}, model=None)
    assert server.requests[0][1]["model"] == "asked-for"
    with pytest.raises(ConfigurationError, match="needs a model") as caught:
        await call(server, {"messages": [USER], "model": ""}, model=None)
    assert "--model" in caught.value.hint


async def test_without_a_key_or_seed_their_headers_are_absent(server):
    await call(server, api_key=None)
    headers, _ = server.requests[0]
    assert "Authorization" not in headers
    assert "x-arkdev-seed" not in headers


async def test_an_assistant_turn_with_null_content_keeps_the_key_and_loses_other_nulls(server):
    call_part = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "",
        "tool_calls": [{**call_part, "index": None}],
    }
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok", "tool_calls": None}
    await call(server, {"messages": [USER, turn, result]})
    _, sent = server.requests[0]
    assert sent["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call_part]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]


async def test_reasoning_goes_back_to_the_server(server):
    turn = ChatCompletionMessage(role="assistant", content="4", reasoning_content="2 and 2")
    await call(server, {"messages": [USER, turn.model_dump(), USER]})
    _, sent = server.requests[0]
    assert sent["messages"][1] == {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "2 and 2",
    }


async def test_a_plugins_template_settings_are_kept_beside_thinking(server):
    body = {"messages": [USER], "chat_template_kwargs": {"date": "today"}}
    await call(server, body, sampling={"thinking": {"type": "enabled"}})
    _, sent = server.requests[0]
    assert sent["chat_template_kwargs"] == {"date": "today", "enable_thinking": True}


async def test_a_parameter_that_the_family_refuses_is_never_sent(server):
    with pytest.raises(ConfigurationError, match="top_k"):
        await call(server, sampling={"top_k": 9}, family="ark")
    assert server.requests == []


@pytest.mark.parametrize("usage", [{}, {"usage": None}])
async def test_an_answer_without_usage_is_an_answer(server, usage):
    server.answer = server.say(completion(**usage))
    assert (await call(server)).get("usage") is None


async def test_a_lone_surrogate_can_be_sent_and_received(server):
    message = {"role": "assistant", "content": "\ud83d"}
    server.answer = server.say(completion(message))
    answer = await call(server, {"messages": [{"role": "user", "content": "\ud83d 中文"}]})
    assert server.requests[0][1]["messages"][0]["content"] == "\ud83d 中文"
    assert answer["choices"][0]["message"] == message


async def test_512_calls_at_once_all_succeed_and_are_all_in_flight(server):
    all_there = asyncio.Barrier(512)

    async def answer(request):
        await all_there.wait()
        return await server.say(completion())(request)

    server.answer = answer
    endpoint = remote(server, max_in_flight=512, timeout_s=60)
    request = ModelRequest(body={"messages": [USER]})
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(endpoint.complete(request)) for _ in range(512)]
    await endpoint.close()
    assert all(task.result() == completion() for task in calls)
    assert server.peak_in_flight == 512


async def test_more_calls_than_slots_wait_their_turn_beyond_the_timeout(server):
    server.answer = server.say(completion(), delay_s=0.4)
    endpoint = remote(server, max_in_flight=2, timeout_s=2)
    request = ModelRequest(body={"messages": [USER]})
    async with asyncio.TaskGroup() as group:
        for _ in range(14):  # the last waits for 2.4 s
            group.create_task(endpoint.complete(request))
    await endpoint.close()
    assert server.peak_in_flight == 2


async def test_token_evidence_is_claimed_only_when_configured(server):
    assert not remote(server).capabilities.has_token_evidence
    assert remote(server, has_token_evidence=True).capabilities.has_token_evidence


def _loop_in_thread():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    return loop, thread


def _stop(loop, thread):
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


async def test_two_loops_share_an_endpoint_and_one_of_them_closes_it(server):
    endpoint = remote(server)
    request = ModelRequest(body={"messages": [USER]})
    loop, thread = _loop_in_thread()
    there = asyncio.run_coroutine_threadsafe(endpoint.complete(request), loop)
    assert await asyncio.wrap_future(there) == await endpoint.complete(request)
    await endpoint.close()
    await endpoint.close()
    _stop(loop, thread)
    with pytest.raises(EndpointError, match="closed"):
        await endpoint.complete(request)


@pytest.mark.filterwarnings("ignore")  # asyncio warns of the sockets that the loop left behind
async def test_a_loop_that_ended_without_closing_is_forgotten(server):
    endpoint = remote(server)
    request = ModelRequest(body={"messages": [USER]})
    loop, thread = _loop_in_thread()
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(endpoint.complete(request), loop))
    _stop(loop, thread)
    await endpoint.complete(request)
    ended = weakref.ref(loop)
    del loop, thread
    gc.collect()
    assert ended() is None
    await endpoint.close()


async def test_calls_reuse_connections(server):
    peers = set()
    reply = server.say(completion())

    async def answer(request):
        peers.add(request.transport.get_extra_info("peername"))
        return await reply(request)

    server.answer = answer
    endpoint = remote(server)
    for _ in range(5):
        await endpoint.complete(ModelRequest(body={"messages": [USER]}))
    await endpoint.close()
    assert len(peers) == 1


CALL_CHUNKS = [
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "get_weather"}}]},
    {"tool_calls": [{"id": "", "function": {"arguments": '{"location": '}}]},
    {"tool_calls": [{"id": "", "function": {"name": "", "arguments": '"北京"}'}}]},
]


def stream(chunks, *, end="data: [DONE]\n\n"):
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end


async def test_a_streamed_answer_is_put_together(server):
    chunks = [{"id": "s1", "choices": [{"index": 0, "delta": delta}]} for delta in CALL_CHUNKS]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    server.answer = server.say(stream(chunks), content_type="text/event-stream")
    answer = await call(server)
    assert answer["id"] == "s1"
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"location": "北京"}'},
            }
        ],
    }
