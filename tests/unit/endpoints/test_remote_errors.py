"""What a failed call to a remote endpoint says, and what it never says."""

import asyncio
import socket
import traceback

import pytest
from aiohttp import web
from pydantic import SecretStr

from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.remote import RemoteEndpoint
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import EndpointResponseError, EndpointUnreachableError
from tests.unit.endpoints.chat_server import ChatServer, completion

KEY = "sk-0123456789abcdef"


@pytest.fixture
async def server():
    async with ChatServer().running() as server:
        yield server


async def failure(url, *, timeout_s=60.0, **spec):
    """The error of one call to `url`."""
    fields = {"family": "generic", "source": "command line", "model": "m1", **spec}
    endpoint = RemoteEndpoint(
        EndpointSpec(name="test", base_url=url, api_key_env="TEST_KEY", **fields),
        api_key=SecretStr(KEY),
        max_in_flight=2,
        timeout_s=timeout_s,
    )
    try:
        with pytest.raises((EndpointResponseError, EndpointUnreachableError)) as caught:
            await endpoint.complete(ModelRequest(body={"messages": []}))
    finally:
        await endpoint.close()
    error = caught.value
    everything = [*traceback.format_exception(error), error.hint, repr(vars(error))]
    assert KEY not in "".join(everything)
    return error


@pytest.fixture
def port():
    """A port at which nobody listens, kept from others."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_a_refused_connection_names_host_and_port_and_what_to_check(port):
    error = await failure(f"http://127.0.0.1:{port}/v1")
    assert isinstance(error, EndpointUnreachableError)
    assert f"127.0.0.1:{port}" in error.message
    assert error.is_transient and not error.is_timeout
    assert "--endpoint" in error.hint


async def test_a_scripted_server_that_is_down_says_how_to_start_it(port):
    error = await failure(f"http://127.0.0.1:{port}/v1", family="scripted")
    assert f"arkdev endpoint serve scripted --port {port}" in error.hint


async def test_a_named_endpoint_that_is_down_says_where_it_was_defined(port):
    error = await failure(f"http://127.0.0.1:{port}", source="arkworkspace.toml")
    assert "base_url in arkworkspace.toml" in error.hint


async def test_an_unknown_host_is_named():
    error = await failure("http://no-such-host.invalid/v1")
    assert "no-such-host.invalid:80" in error.message


async def test_no_answer_in_time_is_a_timeout(server):
    server.answer = server.say(completion(), delay_s=60)
    error = await failure(server.url, timeout_s=0.1)
    assert isinstance(error, EndpointUnreachableError)
    assert error.is_timeout
    assert "within 0.1 s" in error.message


async def test_a_connection_cut_before_the_answer_is_unreachable(server):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    server.answer = cut
    error = await failure(server.url)
    assert isinstance(error, EndpointUnreachableError)
    assert error.is_transient


async def test_a_body_cut_short_is_unreachable(server):
    async def cut(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        request.transport.abort()
        return response

    server.answer = cut
    assert isinstance(await failure(server.url), EndpointUnreachableError)


async def test_something_that_does_not_speak_http_is_named():
    async def greet(reader, writer):
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    smtp = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = smtp.sockets[0].getsockname()[1]
    error = await failure(f"http://127.0.0.1:{port}")
    smtp.close()
    await smtp.wait_closed()
    assert f"not HTTP came from 127.0.0.1:{port}" in error.message


@pytest.mark.parametrize(
    ("status", "is_transient"), [(400, False), (401, False), (429, True), (503, True)]
)
async def test_an_error_answer_keeps_status_body_and_headers(server, status, is_transient):
    body = {"error": {"code": "Some.Code", "message": "说明 Request id: 42"}}
    server.answer = server.say(body, status=status, headers={"Retry-After": "3"})
    error = await failure(server.url)
    assert (error.status, error.body, error.is_transient) == (status, body, is_transient)
    assert error.headers["retry-after"] == "3"
    assert "说明 Request id: 42" in error.message


@pytest.mark.parametrize(
    "body", [{"error": {"message": "overloaded"}, "choices": None}, {"choices": []}]
)
async def test_an_error_hidden_in_a_200_is_transient(server, body):
    server.answer = server.say(body)
    error = await failure(server.url)
    assert (error.status, error.is_transient) == (200, True)


@pytest.mark.parametrize("status", [200, 502])
async def test_an_html_page_is_an_error_with_status_host_and_a_short_text(server, status):
    page = "<html><title>Bad gateway</title>" + "x" * 20_000
    server.answer = server.say(
        page, status=status, content_type="text/html", headers={"X-Request-Id": "r-77"}
    )
    error = await failure(server.url)
    assert server.url.split("/")[2] in error.message
    assert str(status) in error.message
    assert "r-77" in error.message
    assert len(error.body) <= 200
    assert len(error.message) < 400


async def test_a_redirect_is_an_error_and_is_not_followed(server):
    server.answer = server.say("", status=307, headers={"Location": "/elsewhere"})
    error = await failure(server.url)
    assert error.status == 307
    assert len(server.requests) == 1


@pytest.mark.parametrize("cut", range(180, 205, 4))
async def test_a_key_that_the_server_echoes_is_masked_also_where_the_text_is_cut(server, cut):
    server.answer = server.say("x" * cut + KEY, status=401, content_type="text/plain")
    error = await failure(server.url)
    assert KEY[:6] not in error.message + str(error.body)


async def test_a_key_echoed_in_json_and_headers_is_masked(server):
    server.answer = server.say(
        {"error": {"message": f"bad key {KEY}", "details": [{"given": KEY}]}},
        status=401,
        headers={"X-Given": KEY},
    )
    error = await failure(server.url)
    assert "bad key [API key]" in error.message
    assert "TEST_KEY" in error.hint


async def test_a_body_over_the_limit_is_refused(server, monkeypatch):
    monkeypatch.setattr("arkdev.endpoints.http_body.MAX_BODY_BYTES", 1024 * 1024)
    server.answer = server.say("x" * (1024 * 1024 + 1), content_type="text/plain")
    error = await failure(server.url)
    assert "longer than 1 MiB" in error.message
    assert not error.is_transient


async def test_a_stream_that_cannot_be_put_together_names_its_content_type(server):
    server.answer = server.say("data: nonsense\n\n", content_type="text/event-stream")
    error = await failure(server.url)
    assert "text/event-stream" in error.message


async def test_an_error_inside_a_stream_is_the_error(server):
    text = 'data: {"error": {"message": "overloaded"}}\n\n'
    server.answer = server.say(text, content_type="text/event-stream")
    error = await failure(server.url)
    assert "overloaded" in error.message
    assert error.is_transient


async def test_a_missing_path_reminds_of_v1(server):
    error = await failure(server.url.removesuffix("/v1"))
    assert error.status == 404
    assert "/v1" in error.hint
