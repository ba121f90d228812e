"""Requests to instances over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from arkdev.faas_emulator.answers import Answer, ConnectionLostError
from arkdev.faas_emulator.instance_client import HttpInstanceClient
from arkdev.observe.attempt import attempt_here, current_attempt


@asynccontextmanager
async def instance(handle):
    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = HttpInstanceClient()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", client
    finally:
        await client.close()
        await runner.cleanup()


async def test_an_answer_is_handed_back_with_its_status_and_the_request_has_its_id():
    async def handle(request):
        document = {"id": request.headers["X-Faas-Request-Id"], "given": await request.json()}
        return web.json_response(document, status=500)

    async with instance(handle) as (url, client):
        answer = await client.post(url, b'{"a": 1}', request_id="r1")
    assert answer == Answer(500, {"id": "r1", "given": {"a": 1}})


async def test_a_port_that_nobody_listens_on_never_saw_the_request():
    async def handle(request): ...

    async with instance(handle) as (url, _):
        pass
    client = HttpInstanceClient()
    with pytest.raises(ConnectionLostError) as lost:
        await client.post(url, b"{}", request_id="r1")
    assert not lost.value.was_sent
    await client.close()


async def test_a_connection_that_is_cut_may_have_reached_the_plugin():
    async def handle(request):
        await request.read()
        request.transport.abort()
        return web.Response()

    async with instance(handle) as (url, client):
        with pytest.raises(ConnectionLostError) as lost:
            await client.post(url, b"{}", request_id="r1")
        assert lost.value.was_sent


async def test_what_is_no_json_object_is_no_answer():
    async def handle(request):
        return web.Response(text="<html>", status=502)

    async with instance(handle) as (url, client):
        with pytest.raises(ConnectionLostError, match="status 502, and no JSON: '<html>'"):
            await client.post(url, b"{}", request_id="r1")


async def test_a_request_belongs_to_no_attempt():
    """Else it would be counted as an HTTP call of the plugin's own."""
    seen = []

    async def handle(request):
        return web.json_response({})

    async with instance(handle) as (url, client):
        original = client._session._request

        async def watched(*args, **kwargs):
            seen.append(attempt_here())
            return await original(*args, **kwargs)

        client._session.__dict__["_request"] = watched
        token = current_attempt.set(object())
        try:
            await client.post(url, b"{}", request_id="r1")
        finally:
            current_attempt.reset(token)
    assert seen == [None]
