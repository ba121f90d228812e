"""The scripted model over HTTP, with the clients that people use."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest

from arkdev.endpoints.scripted.script import Script
from arkdev.endpoints.scripted.server import ScriptedServer

QUESTION = {"role": "user", "content": "北京今天多少摄氏度？"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "获取指定地点的天气信息",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string"},
                "unit": {"type": "string", "enum": ["摄氏度", "华氏度"]},
            },
            "required": ["location"],
        },
    },
}


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[str]:
    server = ScriptedServer(**settings)
    try:
        yield await server.start()
    finally:
        await server.stop()


@pytest.fixture
def url_for_sync_clients() -> Iterator[str]:
    """A server on an event loop of its own, since sync clients block theirs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ScriptedServer(skill=1.0)
    yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


async def post(url: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    sent = {"data": body} if isinstance(body, (bytes, str)) else {"json": body}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, headers=headers, **sent) as response,
    ):
        return response.status, await response.json()


def weather_conversation(client: Any) -> str:
    """The loop of a rollout: ask, run the tool, ask again; returns the answer."""
    messages: list[Any] = [QUESTION]
    first = client.chat.completions.create(model="any", messages=messages, tools=[WEATHER])
    assert first.choices[0].finish_reason == "tool_calls"
    call = first.choices[0].message.tool_calls[0]
    assert call.function.arguments == '{"location": "北京", "unit": "摄氏度"}'
    messages.append(first.choices[0].message.model_dump())
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "北京：晴，22摄氏度"})
    last = client.chat.completions.create(model="any", messages=messages, tools=[WEATHER])
    assert last.usage.total_tokens > last.usage.completion_tokens > 0
    return str(last.choices[0].message.content)


def test_openai_client_runs_a_tool_conversation(url_for_sync_clients: str) -> None:
    with openai.OpenAI(base_url=url_for_sync_clients, api_key="none") as client:
        assert "22" in weather_conversation(client)
        assert [model.id for model in client.models.list()] == ["scripted"]


def test_ark_client_runs_a_tool_conversation(url_for_sync_clients: str) -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("volcenginesdkarkruntime")
    from volcenginesdkarkruntime import Ark

    with Ark(base_url=url_for_sync_clients.replace("/v1", "/api/v3"), api_key="none") as client:
        assert "22" in weather_conversation(client)


async def test_async_openai_client_is_answered_in_parallel() -> None:
    async with (
        serving(skill=1.0, latency_s=1.0) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none") as client,
    ):
        started = time.monotonic()
        made = await asyncio.gather(
            *(
                client.chat.completions.create(
                    model="any", messages=[{"role": "user", "content": f"{n} + 1"}]
                )
                for n in range(10)
            )
        )
        assert 1.0 <= time.monotonic() - started < 9  # one after the other they take 10 s
    contents = [completion.choices[0].message.content for completion in made]
    assert contents == [f"The answer is {n + 1}." for n in range(10)]


async def test_errors_reach_the_openai_client_as_its_exceptions() -> None:
    busy = {"error": {"status": 429, "code": "ServerOverloaded", "message": "busy."}}
    async with (
        serving(script=Script.model_validate({"answers": [busy]})) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hi"}]
            )
    assert caught.value.code == "ServerOverloaded" and "Request id: " in str(caught.value)


async def test_the_seed_header_fixes_the_answer() -> None:
    body = {"messages": [{"role": "user", "content": "12 + 7"}]}
    async with serving(skill=0.5) as url:
        path = f"{url}/chat/completions"
        made = [await post(path, body, **{"x-arkdev-seed": str(s)}) for s in (1, 1, 2, 3, 4, 5)]
        status, refused = await post(path, body, **{"x-arkdev-seed": "x"})
    assert made[0] == made[1]
    assert len({answer["choices"][0]["message"]["content"] for _, answer in made}) > 1
    assert status == 400 and refused["error"]["param"] == "x-arkdev-seed"


async def test_explicit_nulls_and_wire_names_are_accepted() -> None:
    unset = ("temperature", "top_p", "n", "stop", "seed", "tools", "tool_choice", "stream")
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "12 + 7"}]}],
        "max_tokens": 100,
        "max_completion_tokens": 3,
        "thinking": {"type": "disabled"},
        "top_k": 1,
        **dict.fromkeys(unset),
    }
    async with serving(skill=1.0) as url:
        status, made = await post(f"{url}/chat/completions", body)
    assert status == 200 and made["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "InvalidParameter"),
        (b"[]", "InvalidParameter"),
        (b"\xff", "InvalidParameter"),
        ({"model": "m"}, "MissingParameter"),
        ({"messages": []}, "InvalidParameter"),
        ({"messages": [QUESTION], "stream": "yes"}, "InvalidParameter"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "InvalidParameter"),
    ],
)
async def test_bad_requests_get_the_ark_envelope(body: Any, code: str) -> None:
    async with serving() as url:
        status, answer = await post(f"{url}/chat/completions", body)
    assert status == 400
    assert answer["error"]["code"] == code and set(answer["error"]) == {
        *("code", "message", "param", "type")
    }


async def test_a_key_is_asked_for_when_there_is_one() -> None:
    body = {"messages": [QUESTION]}
    async with serving(api_key="k") as url:
        path = f"{url}/chat/completions"
        status, refused = await post(path, body)
        assert (status, refused["error"]["code"]) == (401, "AuthenticationError")
        assert (await post(path, body, Authorization="Bearer k"))[0] == 200


async def test_scripted_text_bodies_and_headers_are_sent_as_they_are() -> None:
    answers = [
        {"raw_body": "<html>", "status": 502, "times": 1},
        {
            "error": {
                "status": 429,
                "code": "C",
                "message": "m",
                "headers": {"Retry-After": "1", "Content-Type": "text/json"},
            }
        },
    ]
    async with (
        serving(script=Script.model_validate({"answers": answers})) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(f"{url}/chat/completions", json={"messages": [QUESTION]}) as first:
            assert (first.status, await first.text()) == (502, "<html>")
        async with session.post(f"{url}/chat/completions", json={"messages": [QUESTION]}) as second:
            assert second.headers["retry-after"] == "1" and second.content_type == "text/json"


async def test_health_and_unknown_paths_answer() -> None:
    async with serving() as url, aiohttp.ClientSession() as session:
        async with session.get(url.replace("/v1", "/health")) as health:
            assert (health.status, await health.json()) == (200, {"status": "ok"})
        async with session.get(f"{url}/nothing") as missing:
            assert missing.status == 404 and "code" in (await missing.json())["error"]


async def test_stop_does_not_wait_for_slow_answers_and_frees_the_port() -> None:
    server = ScriptedServer(latency_s=120)
    url = await server.start()
    port = int(url.split(":")[2].split("/")[0])
    asking = asyncio.create_task(post(f"{url}/chat/completions", {"messages": [QUESTION]}))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    await server.stop()
    await server.stop()
    assert time.monotonic() - started < 60
    with pytest.raises(aiohttp.ClientError):
        await asking
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass
