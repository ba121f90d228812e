"""Endpoints that speak the Responses API only (field cases 2.6, 2.7, 2.8)."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from arkdev.endpoints.event_stream import event_lines
from arkdev.endpoints.parameters import write_sampling
from arkdev.endpoints.registry import resolve_endpoint
from arkdev.endpoints.response_events import response_events
from arkdev.errors import ConfigurationError, EndpointResponseError, TranslationError
from arkdev.plugin.responses import response_of_answer
from tests.running import answer, tool_call
from tests.unit.endpoints.chat_server import ChatServer
from tests.unit.endpoints.test_remote_calls import call

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


class ResponsesServer(ChatServer):
    @asynccontextmanager
    async def running(self):
        app = web.Application()
        app.router.add_post("/v1/responses", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}/v1"
            yield self
        finally:
            await runner.cleanup()


def response_of(body):
    return response_of_answer(body, response_id="resp_1", previous_response_id=None, request={})


@pytest.fixture
async def server():
    server = ResponsesServer()
    server.answer = server.say(response_of(answer("hello")))
    async with server.running():
        yield server


async def test_the_complete_history_goes_out_and_a_chat_answer_comes_back(server):
    turn = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [tool_call("f", id="c1")],
    }
    result = {"role": "tool", "tool_call_id": "c1", "content": "22"}
    body = {"messages": [USER, turn, result], "tools": [TOOL], "tool_choice": None}
    sampling = {"max_new_tokens": 5, "top_k": 0, "top_p": 0.9}
    made = await call(server, body, sampling=sampling, seed=11, api="responses")
    assert made["choices"][0]["message"] == {"role": "assistant", "content": "hello"}
    assert made["usage"]["completion_tokens"] == 2
    headers, sent = server.requests[0]
    assert headers["x-arkdev-seed"] == "11"
    assert [item["type"] for item in sent.pop("input")] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert sent == {
        "model": "m1",
        "store": False,
        "stream": False,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "max_output_tokens": 5,
        "top_p": 0.9,
    }


async def test_calls_come_back_as_tool_calls(server):
    server.answer = server.say(response_of(answer(None, tool_calls=[tool_call("f", id="c1")])))
    choice = (await call(server, api="responses"))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [tool_call("f", id="c1")]


async def test_a_server_that_streams_all_the_same_is_understood(server):
    lines = event_lines(response_events(response_of(answer("hello"))))
    server.answer = server.say("".join(lines), content_type="text/event-stream")
    made = await call(server, api="responses")
    assert made["choices"][0]["message"]["content"] == "hello"


async def test_a_stream_cut_short_is_a_transient_error(server):
    lines = list(event_lines(response_events(response_of(answer("hello")))))
    server.answer = server.say("".join(lines[:-1]), content_type="text/event-stream")
    with pytest.raises(EndpointResponseError, match="text/event-stream") as caught:
        await call(server, api="responses")
    assert caught.value.is_transient


def failed(**fields):
    return {**response_of(answer("hello")), **fields}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"error": {"message": "overloaded"}}, "overloaded"),
        (failed(status="failed", error={"code": "server_error", "message": "broke"}), "broke"),
        (failed(status="in_progress"), "in_progress"),
        (failed(output=[]), "no usable response"),
        (failed(output=None), "no usable response"),
        (answer("from the wrong API"), "no usable choice"),
    ],
)
async def test_what_is_no_finished_response_is_a_transient_error(server, body, says):
    server.answer = server.say(body)
    with pytest.raises(EndpointResponseError, match=says) as caught:
        await call(server, api="responses")
    assert caught.value.is_transient


async def test_a_refused_request_is_not_transient(server):
    server.answer = server.say({"error": {"code": "InvalidParameter", "message": "no"}}, status=400)
    with pytest.raises(EndpointResponseError, match="InvalidParameter: no") as caught:
        await call(server, api="responses")
    assert caught.value.status == 400 and not caught.value.is_transient


async def test_output_of_a_server_s_own_tools_is_an_error(server):
    server.answer = server.say(failed(output=[{"type": "web_search_call"}]))
    with pytest.raises(EndpointResponseError, match="web_search_call") as caught:
        await call(server, api="responses")
    assert not caught.value.is_transient


async def test_tokens_spent_before_a_word_are_an_answer_cut_short(server):
    details = {"reason": "max_output_tokens"}
    server.answer = server.say(failed(status="incomplete", output=[], incomplete_details=details))
    choice = (await call(server, api="responses"))["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] is None


async def test_a_history_that_the_api_cannot_hold_is_refused_before_it_is_sent(server):
    body = {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}
    with pytest.raises(TranslationError, match="input_audio"):
        await call(server, body, api="responses")
    assert server.requests == []


async def test_the_chat_path_is_the_default(server):
    with pytest.raises(EndpointResponseError, match="404"):
        await call(server)


@pytest.mark.parametrize(
    ("family", "sampling", "name"),
    [
        ("ark", {"stop": ["x"]}, "stop"),
        ("ark", {"repetition_penalty": 1.2}, "repetition_penalty"),
        ("generic", {"thinking": {"type": "enabled"}}, "thinking"),
    ],
)
def test_sampling_parameters_that_the_responses_api_lacks_are_refused(family, sampling, name):
    with pytest.raises(ConfigurationError, match=name):
        write_sampling(sampling, family=family, api="responses")


def test_sampling_that_the_responses_api_does_anyway_is_left_out():
    assert write_sampling({"repetition_penalty": 1.0}, family="ark", api="responses") == {}
    auto = {"thinking": {"type": "auto"}}
    assert write_sampling(auto, family="generic", api="responses") == {}


def resolve(definition):
    return resolve_endpoint(
        "lab",
        workspace_endpoints={"lab": {"base_url": "http://x/v1", **definition}},
        user_config=None,
    )


def test_a_definition_names_the_api():
    assert resolve({"api": "responses"}).api == "responses"
    assert resolve({}).api == "chat"
    with pytest.raises(ConfigurationError, match="'completions'") as caught:
        resolve({"api": "completions"})
    assert "endpoints.lab" in caught.value.where
