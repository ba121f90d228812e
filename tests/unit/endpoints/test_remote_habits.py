"""Servers that are not quite OpenAI: what a caller of a remote endpoint gets from them."""

import json
from types import SimpleNamespace

import pytest

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.remote import RemoteEndpoint
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import EndpointResponseError
from arkdev.plugin.answers import convert_answer
from arkdev.types import ChatCompletionResponse
from tests.unit.endpoints.chat_server import ChatServer, completion

USER = {"role": "user", "content": "hi"}


@pytest.fixture
async def server():
    async with ChatServer().running() as server:
        yield server


async def call(server, body=None, **spec):
    fields = {"model": "m1", "family": "generic", "source": "command line", **spec}
    endpoint = RemoteEndpoint(
        EndpointSpec(name="test", base_url=server.url, api_key_env=None, **fields),
        api_key=None,
        max_in_flight=1,
        timeout_s=60,
    )
    try:
        return await endpoint.complete(ModelRequest(body=body or {"messages": [USER]}))
    finally:
        await endpoint.close()


def as_record(answer):
    """What a plugin's client makes of the answer."""
    record = convert_answer(answer, client=SimpleNamespace())
    assert isinstance(record, ChatCompletionResponse)
    return record


HABITS = {
    "explicit nulls": {
        "id": "r1",
        "usage": None,
        "system_fingerprint": None,
        "choices": [
            {
                "index": None,
                "logprobs": None,
                "finish_reason": "stop",
                "message": {"role": None, "content": "hello", "tool_calls": None, "audio": None},
            }
        ],
    },
    "nothing but the text": {"choices": [{"message": {"content": "hello"}}]},
    "content as parts": completion({"role": "assistant", "content": [{"text": "hello"}]}),
    "created as a float": completion(created=1.75e9),
}


@pytest.mark.parametrize("body", HABITS.values(), ids=HABITS)
async def test_the_text_of_an_unusual_answer_is_read(server, body):
    server.answer = server.say(body)
    answer = await call(server)
    record = as_record(answer)
    assert record.choices[0].message.role == "assistant"
    assert record.choices[0].message.content == "hello"
    assert record.usage is None


@pytest.mark.parametrize("body", HABITS.values(), ids=HABITS)
async def test_openai_s_own_class_takes_the_mended_answer(server, body):
    from openai.types.chat import ChatCompletion

    server.answer = server.say({"created": 1, **body})
    answer = await call(server)
    choice = answer["choices"][0]
    if choice["finish_reason"] is None:  # unknown stays unknown; openai's class wants one
        choice["finish_reason"] = "stop"
    assert ChatCompletion.model_validate(answer).choices[0].message.content == "hello"


async def test_a_tool_call_without_id_and_with_an_object_goes_there_and_back(server):
    function = {"name": "f", "arguments": {"a": 1}}
    server.answer = server.say(
        completion({"content": None, "tool_calls": [{"function": function}]})
    )
    message = (await call(server))["choices"][0]["message"]
    made = message["tool_calls"][0]
    assert made["function"]["arguments"] == '{"a": 1}' and made["type"] == "function"
    result = {"role": "tool", "tool_call_id": made["id"], "content": "ok"}
    await call(server, {"messages": [USER, message, result]})
    _, sent = server.requests[-1]
    assert sent["messages"][1]["tool_calls"] == [made] and sent["messages"][1]["content"] is None


async def test_reasoning_that_the_server_calls_reasoning_goes_back_to_it(server):
    server.answer = server.say(
        completion({"role": "assistant", "content": "4", "reasoning": "2+2"})
    )
    message = (await call(server))["choices"][0]["message"]
    record = as_record(completion(message)).choices[0].message
    assert record.reasoning_content == "2+2"
    await call(server, {"messages": [USER, record.model_dump(), USER]})
    assert server.requests[-1][1]["messages"][1]["reasoning_content"] == "2+2"


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json", "text/plain"])
async def test_a_stream_is_put_together_whatever_its_label(server, content_type):
    events = [
        {"choices": [{"delta": {"role": "assistant", "content": "hel"}}]},
        {"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]},
    ]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    server.answer = server.say(text, content_type=content_type)
    answer = await call(server)
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert server.requests[0][1]["stream"] is False


async def test_json_that_is_labelled_as_a_stream_is_json(server):
    server.answer = server.say(completion(), content_type="text/event-stream")
    assert (await call(server))["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("page", "content_type"),
    [
        ("<!DOCTYPE html><title>Sign in</title>", "text/html"),
        ("\n<html><body>Sign in", "text/plain"),
        ("<!-- made by hand --><body>Sign in", "text/html"),
    ],
)
async def test_a_web_page_in_place_of_an_answer_is_not_asked_again(server, page, content_type):
    server.answer = server.say(page, content_type=content_type)
    with pytest.raises(EndpointResponseError, match="Sign in") as caught:
        await call(server)
    assert not caught.value.is_transient
    assert "/v1" in caught.value.hint


async def test_an_error_in_a_200_that_is_no_envelope_says_its_sentence(server):
    server.answer = server.say({"code": 1305, "success": False, "message": "model overloaded"})
    with pytest.raises(EndpointResponseError, match="model overloaded") as caught:
        await call(server)
    assert caught.value.is_transient


@pytest.mark.parametrize("family", ["generic", "ark"])
async def test_token_evidence_is_asked_for_when_the_endpoint_has_it(server, family):
    await call(
        server, {"messages": [USER], "logprobs": False}, has_token_evidence=True, family=family
    )
    await call(server)
    with_evidence, without = (sent for _, sent in server.requests)
    assert with_evidence["return_token_ids"] is True and with_evidence["logprobs"] is True
    assert "return_token_ids" not in without and "logprobs" not in without


async def test_a_server_that_answers_only_streams_is_asked_for_streams(server):
    async def only_streams(request):
        if not (await request.json())["stream"]:
            refusal = {"error": {"code": "InvalidParameter", "message": "only stream=true"}}
            return await server.say(refusal, status=400)(request)
        chunk = {"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]}
        text = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        return await server.say(text, content_type="text/event-stream")(request)

    server.answer = only_streams
    answer = await call(server)
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert [body["stream"] for _, body in server.requests] == [False, True]
    assert server.requests[1][1]["stream_options"] == {"include_usage": True}


async def test_an_answer_in_another_role_is_the_assistants(server):
    odd = completion()
    odd["choices"][0]["message"]["role"] = "user"
    server.answer = server.say(odd)
    assert (await call(server))["choices"][0]["message"]["role"] == "assistant"
