"""The front door of functions, over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from arkdev.errors import EndpointUnreachableError, InstanceError
from arkdev.faas_emulator.gateway import MAX_BODY_BYTES, FunctionGateway
from tests.unit.faas_emulator.fake_instances import fake_pool

ID = "X-Faas-Request-Id"


@asynccontextmanager
async def serving(*, max_queued=10, prepare=None, **pool):
    run = fake_pool(start_s=0.0, **pool)
    gateway = FunctionGateway({"grader": run.pool}, max_queued=max_queued, prepare=prepare)
    url = await gateway.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield run, session, url
    finally:
        await gateway.stop()
        await run.pool.close()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (the pool tells nobody)
            await asyncio.sleep(0.005)


async def told(response):
    document = await response.json()
    assert response.headers[ID] in document["error"]["message"]
    return response.status, document["error"]["code"]


async def test_a_call_is_answered_with_the_callers_request_id_or_a_new_one():
    async with serving() as (run, session, url):
        request = {"number": 1, "takes_s": 0}
        async with session.post(f"{url}/grader", json=request, headers={ID: "mine"}) as response:
            assert (response.status, await response.json()) == (200, {"result": 1})
            assert response.headers[ID] == "mine"
        async with session.post(f"{url}/grader", json=request) as response:
            assert len(response.headers[ID]) == 16
        assert run.invocations[0].request_id == "mine"


async def test_errors_have_the_clouds_envelope():
    async with serving(timeout=1.5) as (_, session, url):
        async with session.post(f"{url}/grader") as response:
            assert await told(response) == (400, "MissingParameter")
        for body in (b"{", b"[1]"):
            async with session.post(f"{url}/grader", data=body) as response:
                assert await told(response) == (400, "InvalidParameter")
        async with session.post(f"{url}/other", json={}) as response:
            assert await told(response) == (404, "ResourceNotFound")
        async with session.get(f"{url}/grader") as response:
            assert await told(response) == (404, "ResourceNotFound")
        crash = {"number": 0, "takes_s": 0, "crash": "out_of_memory"}
        async with session.post(f"{url}/grader", json=crash) as response:
            assert await told(response) == (500, "InternalServiceError")
        async with session.post(f"{url}/grader", json={"number": 0, "takes_s": 60}) as response:
            assert await told(response) == (504, "TimeoutError")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RecursionError(), "the body is nested too deeply."),
        (
            EndpointUnreachableError("nothing listens", hint="start it"),
            "nothing listens; start it.",
        ),
    ],
)
async def test_a_request_that_cannot_be_handed_on_is_refused_in_the_envelope(error, said):
    async def prepare(function, body):
        raise error

    async with (
        serving(prepare=prepare) as (_, session, url),
        session.post(f"{url}/grader", json={}) as response,
    ):
        assert response.status == 400
        document = (await response.json())["error"]
    assert document["code"] == "InvalidParameter"
    assert document["message"] == f"{said} Request id: {response.headers[ID]}"


async def test_a_function_that_cannot_start_is_a_fault_of_the_service():
    async with serving(failures=[InstanceError("ImportError: no")] * 3) as (run, session, url):
        run.pool._scaler._num_failed_starts = 2  # no waits in a test
        async with session.post(f"{url}/grader", json={"number": 0, "takes_s": 0}) as response:
            assert await told(response) == (500, "InternalServiceError")


async def test_a_full_queue_refuses_calls():
    async with serving(max_queued=1, max_concurrency=1, max_replicas=1) as (run, session, url):

        async def call(number, takes_s=0.0):
            body = {"number": number, "takes_s": takes_s}
            async with session.post(f"{url}/grader", json=body) as response:
                return response.status, (await response.json()).get("error", {}).get("code")

        first = asyncio.create_task(call(0, takes_s=2.5))
        await until(lambda: run.pool.num_running)
        second = asyncio.create_task(call(1))
        await until(lambda: run.pool.num_queued)
        assert await call(2) == (429, "QuotaExceeded")
        assert [await first, await second] == [(200, None)] * 2


async def test_a_body_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("arkdev.faas_emulator.gateway.MAX_BODY_BYTES", 100)
    assert MAX_BODY_BYTES == 64 * 2**20
    async with (
        serving() as (_, session, url),
        session.post(f"{url}/grader", data=b"x" * 200) as response,
    ):
        assert await told(response) == (413, "InvalidParameter")


async def test_its_health_tells_how_the_functions_are_doing():
    async with serving() as (_, session, url):
        async with session.post(f"{url}/grader", json={"number": 1, "takes_s": 0}) as response:
            assert response.status == 200
        async with session.get(url) as response:
            assert (await response.json())["functions"]["grader"] == {
                "calls": 1,
                "queued": 0,
                "running": 0,
                "instances": 1,
                "max_replicas": 10,
            }


async def test_a_caller_that_hangs_up_gives_its_call_up():
    async with serving(max_concurrency=1, max_replicas=1) as (run, session, url):
        body = {"number": 0, "takes_s": 60}
        call = asyncio.create_task(session.post(f"{url}/grader", json=body))
        await until(lambda: run.pool.num_running)
        call.cancel()
        await until(lambda: run.invocations)
        assert run.invocations[0].status == "cancelled"
