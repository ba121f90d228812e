"""An endpoint's error arrives as the exception of the client library that the plugin uses."""

import asyncio

import pytest

from arkdev.errors import (
    ArkdevError,
    EndpointResponseError,
    EndpointUnreachableError,
)
from arkdev.sessions.retries import RetryPolicy
from tests.running import LINE, running

BUSY = EndpointResponseError("slow down", status=429, is_transient=True)
OVERLOADED = EndpointResponseError(
    "the answer holds an error: overloaded",
    status=200,
    body={"error": {"message": "overloaded"}, "choices": None},
    is_transient=True,
)
CUT = EndpointUnreachableError("connection reset")
SLOW = EndpointUnreachableError("no answer", is_timeout=True)
BAD_REQUEST = EndpointResponseError("Unexpected message role.", status=400)


CLIENTS = [
    pytest.param("openai", "OpenAI", ""),
    pytest.param("openai", "AsyncOpenAI", ""),
    pytest.param("volcenginesdkarkruntime", "Ark", "Ark"),
    pytest.param("volcenginesdkarkruntime", "AsyncArk", "Ark"),
]
TRANSLATED = [
    (BUSY, "RateLimitError", 429),
    (BAD_REQUEST, "BadRequestError", 400),
    (EndpointResponseError("who?", status=401), "AuthenticationError", 401),
    (EndpointResponseError("late", status=408, is_transient=True), "APIStatusError", 408),
    (EndpointResponseError("broken", status=503, is_transient=True), "InternalServerError", 503),
    (OVERLOADED, "InternalServerError", 200),
    (CUT, "APIConnectionError", None),
    (SLOW, "APITimeoutError", None),
]


@pytest.mark.parametrize(("library", "client_name", "prefix"), CLIENTS)
@pytest.mark.parametrize(("error", "name", "status"), TRANSLATED)
async def test_errors_arrive_as_the_clients_own(library, client_name, prefix, error, name, status):
    module = pytest.importorskip(library)
    errors = pytest.importorskip(f"{library}._exceptions")
    client = getattr(module, client_name)(base_url="http://127.0.0.1:9", api_key="k")
    wrap = "wrap_async_client_inplace" if client_name.startswith("Async") else "wrap_client_inplace"
    from arkdev.plugin import wrapping

    async with running([error], retries=RetryPolicy(max_retries=0)) as run:
        getattr(wrapping, wrap)(client, run.proxy())
        create = client.chat.completions.create
        with pytest.raises(getattr(errors, prefix + name)) as raised:
            if client_name.startswith("Async"):
                await create(model="m", messages=LINE["messages"])
            else:
                await asyncio.to_thread(create, model="m", messages=LINE["messages"])
    assert type(raised.value).__name__ == prefix + name
    assert getattr(raised.value, "status_code", None) == status
    assert raised.value.__cause__ is error
    if name == "APITimeoutError":
        assert isinstance(raised.value, getattr(errors, f"{prefix}APIConnectionError"))
    else:
        assert error.message in str(raised.value)


async def test_an_error_reads_like_the_librarys_own():
    openai = pytest.importorskip("openai")
    body = {"error": {"code": "RateLimit", "message": "slow", "type": "t", "param": ""}}
    error = EndpointResponseError(
        "slow", status=429, body=body, headers={"retry-after": "3", "x-request-id": "r1"}
    )
    async with running([error]) as run:
        client = run.proxy().async_rollout_client()
        with pytest.raises(openai.RateLimitError) as raised:
            await client.chat.completions.create(model="m", messages=LINE["messages"])
    assert (raised.value.code, raised.value.body) == ("RateLimit", body["error"])
    assert raised.value.response.headers["retry-after"] == "3"
    assert (raised.value.request_id, raised.value.response.status_code) == ("r1", 429)


async def test_an_error_of_ours_stays_ours():
    class Refuses:
        async def complete(self, request):
            raise ArkdevError("no such parameter")

    async with running() as run:
        run.services.endpoint = Refuses()
        with pytest.raises(ArkdevError, match="no such parameter"):
            await run.proxy().async_rollout_client().chat.completions.create(model="m", messages=[])
