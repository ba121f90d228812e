"""The loopback gateway: raw clients, by HTTP; field case 5.5."""

import asyncio
import io
import json

import aiohttp
import pytest

from arkdev import rollout
from arkdev.errors import (
    ConfigurationError,
    EndpointResponseError,
    EndpointUnreachableError,
)
from arkdev.runs.records import Verdict
from arkdev.sessions.retries import RetryPolicy
from tests.running import LINE, a_request_of, answer, running

REQUEST = {"model": "m", **LINE}
NO_RETRIES = RetryPolicy(max_retries=0)


async def post(run, session, body=REQUEST, *, path="/chat/completions", key=None, data=None):
    """Return (status, decoded body, headers)."""
    headers = {"Authorization": f"Bearer {key or session.jwt_token}"}
    payload = {"data": data} if data is not None else {"json": body}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(run.gateway.url + path, **payload) as response,
    ):
        return response.status, await response.json(), response.headers


async def test_an_answer_passes_through_unchanged():
    body = answer("北京 22℃", vendor_field={"kept": [1]})
    async with running([body]) as run:
        session = run.session()
        status, received, _ = await post(run, session)
    assert (status, received) == (200, body)
    assert [turn.via for turn in session.turns] == ["raw"]


async def test_the_gateway_listens_on_this_machine_only():
    async with running() as run:
        assert run.gateway.url.startswith("http://127.0.0.1:")
        assert run.gateway.url.endswith("/api/v3")


async def test_a_key_of_no_running_attempt_is_refused():
    async with running() as run:
        ended, other = run.session(), run.session()
        run.gateway.close(ended)
        for key in (ended.jwt_token, "nobody", "none"):
            status, body, _ = await post(run, other, key=key)
            assert (status, body["error"]["code"]) == (401, "AuthenticationError")
        async with aiohttp.ClientSession() as client:
            response = await client.post(run.gateway.url + "/chat/completions", json=REQUEST)
            assert response.status == 401
    assert run.requests == []


async def test_each_key_reaches_its_own_attempt():
    async with running(lambda request: request.body["messages"][0]["content"]) as run:
        sessions = [run.session() for _ in range(8)]
        asked = [{"messages": [{"role": "user", "content": f"q{i}"}]} for i in range(8)]
        await asyncio.gather(
            *(post(run, session, body) for session, body in zip(sessions, asked, strict=True))
        )
    contents = [[m.content for m in session.conversation.messages] for session in sessions]
    assert contents == [[f"q{i}", f"q{i}"] for i in range(8)]


async def test_an_answer_after_the_end_is_refused():
    async with running(delay_s=60) as run:
        session = run.session()
        call = asyncio.create_task(post(run, session))
        await a_request_of(run)
        run.gateway.close(session)
        status, body, _ = await call
    assert (status, body["error"]["code"]) == (401, "AuthenticationError")
    assert "came after the end" in body["error"]["message"]
    assert session.turns == ()


BAD = {
    "not JSON": (b"{", 400),
    "no messages": (b"{}", 400),
    "messages that are none": (b'{"messages": 3}', 400),
    "a list": (b"[]", 400),
    "a message that is a text": (b'{"messages": ["hi"], "stream": true}', 400),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_request_gets_the_platforms_error(case):
    data, expected = BAD[case]
    async with running() as run:
        status, body, headers = await post(run, run.session(), data=data)
    error = body["error"]
    assert (status, error["code"], error["type"], error["param"]) == (
        expected,
        "InvalidParameter",
        "InvalidParameter",
        "",
    )
    assert error["message"].endswith(f"Request id: {headers['x-request-id']}")
    assert headers["x-should-retry"] == "false"


async def test_another_path_says_what_is_served():
    async with running() as run:
        status, body, _ = await post(run, run.session(), path="/embeddings")
    assert (status, body["error"]["code"]) == (404, "InvalidAction.NotFound")
    assert "POST /api/v3/embeddings is not built yet" in body["error"]["message"]
    assert "POST /api/v3/chat/completions" in body["error"]["message"]
    assert "POST /api/v3/responses" in body["error"]["message"]


OWN_BODY = {"error": {"code": "RateLimit", "message": "slow down", "type": "t", "param": "p"}}
ERRORS = {
    "the endpoint's own body": (
        EndpointResponseError("slow", status=429, body=OWN_BODY, is_transient=True),
        429,
        OWN_BODY["error"]["message"],
    ),
    "a text": (EndpointResponseError("bad gateway", status=502, body="<html>"), 502, "bad gateway"),
    "hidden in a 200": (
        EndpointResponseError("overloaded", status=200, body=None, is_transient=True),
        502,
        "overloaded",
    ),
    "no connection": (EndpointUnreachableError("refused"), 502, "refused"),
    "no answer": (EndpointUnreachableError("too slow", is_timeout=True), 504, "too slow"),
    "a parameter": (ConfigurationError("top_k cannot be sent", hint="unset it"), 400, "unset it"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_errors_of_the_endpoint_reach_the_client(case):
    error, expected, text = ERRORS[case]
    async with running([error], retries=NO_RETRIES) as run:
        status, body, headers = await post(run, run.session())
    assert (status, headers["x-should-retry"]) == (expected, "false")
    assert text in body["error"]["message"]


@pytest.mark.parametrize("library", ["openai", "volcenginesdkarkruntime"])
@pytest.mark.parametrize("is_wrapped", [True, False])
async def test_retries_of_client_and_session_do_not_multiply(library, is_wrapped):
    module = pytest.importorskip(f"{library}._exceptions")
    api_error = getattr(module, {"openai": "APIError"}.get(library, "ArkAPIError"))
    module = pytest.importorskip(library)
    client_class = getattr(module, {"openai": "OpenAI"}.get(library, "Ark"))
    busy = EndpointResponseError("busy", status=429, is_transient=True)

    @rollout
    def with_default_settings(context, proxy, sample):
        if is_wrapped and library == "openai":
            client = proxy.rollout_client()
        else:
            client = client_class(base_url=proxy.url, api_key=proxy.jwt_token)
        try:
            client.chat.completions.create(**REQUEST)
        except api_error as error:
            return {"status": "discard", "error": type(error).__name__}
        finally:
            client.close()

    async with running([busy]) as run:
        record = (await run.rollout(with_default_settings)).record
    assert len(run.requests) == 3
    assert (record.verdict, record.attempts[0].error.removeprefix("Ark")) == (
        Verdict.DISCARD,
        "RateLimitError",
    )


async def test_sampling_of_the_sample_goes_out_and_what_a_raw_client_sets_wins_with_a_note():
    own = {"max_tokens": 7, "temperature": 0.5, "thinking": {"type": "disabled"}, "stop": ["x"]}
    async with running() as run:
        session = run.session(temperature=0.5, max_new_tokens=100, top_p=0.9)
        await post(run, session, {**REQUEST, **own, "top_k": None, "tools": [], "vendor": 1})
    (request,) = run.requests
    assert request.sampling == {
        "temperature": 0.5,
        "max_new_tokens": 7,
        "top_p": 0.9,
        "thinking": {"type": "disabled"},
        "stop": ["x"],
    }
    assert request.body == {"model": "m", **LINE, "tools": [], "vendor": 1}
    noted = [note for note in session.warnings if note.startswith("raw_sampling_parameter")]
    assert [note.partition(": ")[2] for note in noted] == ["max_new_tokens", "thinking", "stop"]


async def test_what_the_gateway_cannot_do_is_noted():
    async with running() as run:
        session = run.session()
        await post(run, session, {**REQUEST, "n": 4, "seed": 3, "stream": False})
        plain = run.session()
        await post(run, plain, {**REQUEST, "n": 1, "seed": None})
    assert session.warnings[:2] == (
        "raw_sampling_parameter: n (one answer came)",
        "raw_sampling_parameter: seed (not used)",
    )
    assert plain.warnings == ("raw_call_not_processed",)
    assert run.requests[0].body == REQUEST


async def test_a_long_conversation_fits():
    text = "x" * 3_000_000
    long = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    async with running([text]) as run:
        status, body, _ = await post(run, run.session(), data=io.BytesIO(long))
    assert (status, body["choices"][0]["message"]["content"]) == (200, text)


@pytest.mark.parametrize("again", [True, False])
async def test_a_request_that_comes_again_after_an_error_is_noted(again):
    body = REQUEST if again else {**REQUEST, "messages": [{"role": "user", "content": "other"}]}
    error = EndpointResponseError("slow down", status=429, is_transient=True)
    async with running([error, "fine", "fine"], retries=NO_RETRIES) as run:
        session = run.session()
        assert (await post(run, session))[0] == 429
        assert (await post(run, session, body))[0] == 200
        assert (await post(run, session, {**REQUEST, "user": "someone"}))[0] == 200
    assert ("client_retried" in session.warnings) == again


async def test_the_same_request_at_the_same_time_is_none_that_comes_again():
    async with running(["fine"], delay_s=0.5) as run:
        session = run.session()
        await asyncio.gather(post(run, session), post(run, session))
    assert "client_retried" not in session.warnings


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_client_that_hangs_up_leaves_a_fault_unless_its_attempt_has_ended(has_ended):
    async with running(["late"], delay_s=60) as run:
        session = run.session()
        call = asyncio.create_task(post(run, session))
        await a_request_of(run)
        if has_ended:
            run.gateway.close(session)
        call.cancel()
        await asyncio.wait({call})
        async with asyncio.timeout(60):
            while session._under_way:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.01)
    faults = [(fault.kind, fault.target, fault.is_injected) for fault in session.faults]
    assert faults == ([] if has_ended else [("timeout", "call 1", False)])
