"""When failed model calls go out again; field case 5.6."""

import asyncio
import json
import random
import time
from email.utils import formatdate
from itertools import pairwise

import pytest
from pydantic import SecretStr

from arkdev import rollout
from arkdev.endpoints.limits import LimitedEndpoint
from arkdev.endpoints.remote import RemoteEndpoint
from arkdev.endpoints.spec import EndpointLimits, EndpointSpec
from arkdev.errors import (
    EndpointResponseError,
    EndpointUnreachableError,
    LateCallError,
)
from arkdev.sessions.retries import RetryPolicy, asked_wait_s
from tests.running import LINE, QUESTION, a_request_of, running
from tests.unit.endpoints.chat_server import ChatServer, completion

NOW = 1_790_000_000.4
RANDOM = random.Random(7)


def busy(status=429, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return EndpointResponseError("slow down", status=status, headers=named, is_transient=True)


def wait(error, *, retry=0, draw=RANDOM.random):
    return RetryPolicy(draw=draw, now=lambda: NOW).wait_after(error, retry=retry)


def date(seconds_ahead):
    return formatdate(NOW + seconds_ahead, usegmt=True)


def test_a_date_two_seconds_ahead_is_waited_for_and_callers_spread_out():
    waits = [wait(busy(retry_after=date(2))) for _ in range(20)]
    assert 2 <= min(waits) <= max(waits) <= 6
    gaps = [later - earlier for earlier, later in pairwise(sorted(waits))]
    assert max(waits) - min(waits) > 0.5
    assert max(gaps) < 0.4
    assert len(set(waits)) == 20


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry_after": "3"}, 3, 4),
        ({"retry_after": "40"}, 40, 50),
        ({"retry_after": "1.5"}, 1.5, 2.5),
        ({"retry_after_ms": "2500", "retry_after": "9"}, 2.5, 3.5),
        ({"retry_after": date(20)}, 20, 26.5),
    ],
)
def test_what_the_endpoint_asks_for_is_the_least_that_is_waited(status, headers, low, high):
    assert wait(busy(status, **headers), draw=lambda: 0.0) == pytest.approx(low, abs=1.0)
    assert all(low <= wait(busy(status, **headers)) <= high for _ in range(20))


@pytest.mark.parametrize(
    "text",
    [date(-5), date(-100_000), "0", "abc", "", "-3", "nan", "inf", "1e999", "12 apples", "²"],
)
def test_a_past_date_and_rubbish_mean_the_back_off(text):
    for retry, (low, high) in enumerate([(1, 2), (2, 4), (4, 8)]):
        assert all(low <= wait(busy(retry_after=text), retry=retry) <= high for _ in range(20))


def test_the_three_forms_of_a_date_are_one_moment():
    forms = (
        "Sun, 06 Nov 2094 08:49:37 GMT",
        "Sun Nov  6 08:49:37 2094",
        "Sun, 06 Nov 2094 09:49:37 +0100",
    )
    assert len({asked_wait_s({"retry-after": form}, now=NOW) for form in forms}) == 1
    assert asked_wait_s({"retry-after": "Sunday, 06-Nov-94 08:49:37 GMT"}, now=0.0) > 0


@pytest.mark.parametrize("text", ["3600", "61", date(3600)])
def test_an_hour_is_an_error_that_names_it(text):
    with pytest.raises(EndpointResponseError, match="arkdev waits at most 60 s") as refused:
        wait(busy(retry_after=text))
    seconds = "61" if text == "61" else "3,60"
    assert f"asks to wait {seconds}" in str(refused.value)
    assert refused.value.message.startswith("slow down")
    assert (refused.value.status, refused.value.is_transient) == (429, False)
    assert refused.value.hint


def test_a_connection_that_broke_asks_for_nothing():
    assert 1 <= wait(EndpointUnreachableError("gone")) <= 2


async def test_an_hour_s_wait_ends_the_call_after_one_request():
    async with running([busy(retry_after="3600")]) as run:
        async with asyncio.timeout(60):
            with pytest.raises(EndpointResponseError, match="3,600 s"):
                await run.session().complete(QUESTION)
        assert len(run.requests) == 1


async def test_other_samples_go_on_while_one_waits_and_it_holds_no_place():
    async with running([busy(retry_after_ms="2500"), "quick", "late"]) as run:
        run.services.endpoint = LimitedEndpoint(
            run.endpoint, EndpointLimits(max_in_flight=1), loop=run.services.blocking_loop
        )
        waiting = asyncio.create_task(run.session().complete(QUESTION))
        await a_request_of(run)
        quick = await run.session().complete(QUESTION)
        assert quick["choices"][0]["message"]["content"] == "quick"
        assert not waiting.done()
        assert (await waiting)["choices"][0]["message"]["content"] == "late"


async def test_a_real_answer_s_headers_are_read():
    async with ChatServer().running() as server:

        async def first_busy(request):
            if len(server.requests) > 1:
                return await server.say(completion())(request)
            headers = {"Retry-After-Ms": "300"}
            return await server.say({"error": "slow"}, status=429, headers=headers)(request)

        server.answer = first_busy
        spec = EndpointSpec("t", server.url, "m", "K", "generic", "command line")
        endpoint = RemoteEndpoint(spec, api_key=SecretStr("k" * 8), max_in_flight=4, timeout_s=60)
        async with running() as run:
            run.services.endpoint = endpoint
            started = time.monotonic()
            await run.session().complete(QUESTION)
            assert time.monotonic() - started > 0.29  # by the policy of the run it were 1 ms
        await endpoint.close()
    assert len(server.requests) == 2


@pytest.mark.parametrize("way", ["asynchronous", "blocking", "raw"])
async def test_a_call_that_is_under_way_when_its_attempt_ends_is_cut(way):
    """It would hold a place of the endpoint for as long as the endpoint takes."""
    async with running(delay_s=300) as run:
        limited = LimitedEndpoint(
            run.endpoint, EndpointLimits(max_in_flight=1), loop=run.services.blocking_loop
        )
        run.services.endpoint = limited
        session = run.session()
        if way == "asynchronous":
            call = asyncio.create_task(session.complete(QUESTION))
        elif way == "blocking":
            call = asyncio.create_task(asyncio.to_thread(session.complete_blocking, QUESTION))
        else:
            call = asyncio.create_task(_post(session))
        await a_request_of(run)
        run.gateway.close(session)
        if way == "raw":
            assert "came after the end" in await asyncio.wait_for(call, 60)
        else:
            with pytest.raises(LateCallError):
                await asyncio.wait_for(call, 60)
        run.endpoint._delay_s = 0.0
        await asyncio.wait_for(run.session().complete(QUESTION), 60)
    assert session.turns == ()


async def _post(session):
    import aiohttp

    headers = {"Authorization": f"Bearer {session.jwt_token}"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{session.url}/chat/completions", json=QUESTION, headers=headers) as answer,
    ):
        return json.dumps(await answer.json())


async def test_a_rollout_whose_endpoint_asks_for_a_long_wait_is_not_attempted_again():
    @rollout
    async def patient(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=LINE["messages"])

    async with running([busy(retry_after="3600")]) as run:
        finished = await run.rollout(patient)
    assert len(run.requests) == 1
    (attempt,) = finished.record.attempts
    assert "asks to wait 3,600 s" in attempt.error


@pytest.mark.parametrize("text", ["1_0", "+10", "inf", "nan", "1e1", "١٠", "10 s"])
def test_a_wait_is_read_only_from_digits(text):
    assert asked_wait_s({"retry-after": text}, now=0.0) is None
    assert asked_wait_s({"retry-after-ms": text, "retry-after": "7"}, now=0.0) == 7
