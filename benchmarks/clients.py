"""The client variants that harness.py compares: the same rollout over different transports.

Each is an async context manager that yields `complete(messages) -> assistant message as a dict`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather at a place.",
            "parameters": {
                "type": "object",
                "properties": {"location": {"type": "string"}},
                "required": ["location"],
            },
        },
    }
]
PROMPT = [
    {"role": "system", "content": "You answer questions about the weather; use the tool."},
    {"role": "user", "content": "What is the weather like in Beijing and in Shanghai today?"},
]
TIMEOUT_S = 120.0

Complete = Callable[[list[dict[str, Any]]], Awaitable[dict[str, Any]]]


async def bare_rollout(complete: Complete) -> int:
    """One rollout as a plain loop: call, run the tool, call again. Returns its model calls."""
    messages: list[dict[str, Any]] = list(PROMPT)
    num_calls = 0
    while True:
        message = await complete(messages)
        num_calls += 1
        messages.append(message)
        if not message.get("tool_calls"):
            return num_calls
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "sunny"})


@asynccontextmanager
async def openai_default(url: str, in_flight: int) -> AsyncIterator[Complete]:
    """(b) one shared AsyncOpenAI client with its default transport."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S
    ) as client:
        yield _openai_complete(client)


@asynccontextmanager
async def openai_aiohttp(url: str, in_flight: int) -> AsyncIterator[Complete]:
    """(c) the same over openai's aiohttp transport."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    async with (
        DefaultAioHttpClient(timeout=TIMEOUT_S) as transport,
        AsyncOpenAI(
            base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S, http_client=transport
        ) as client,
    ):
        yield _openai_complete(client)


def _openai_complete(client: Any) -> Complete:
    async def complete(messages: list[dict[str, Any]]) -> dict[str, Any]:
        answer = await client.chat.completions.create(model="bench", messages=messages, tools=TOOLS)
        message: dict[str, Any] = answer.choices[0].message.model_dump(exclude_none=True)
        return message

    return complete


@asynccontextmanager
async def raw_aiohttp(url: str, in_flight: int) -> AsyncIterator[Complete]:
    """(d) aiohttp, JSON in and out, nothing else: what a client on this machine can reach."""
    import aiohttp

    headers = {"Authorization": "Bearer none", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=in_flight),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
    ) as session:

        async def complete(messages: list[dict[str, Any]]) -> dict[str, Any]:
            data = json.dumps({"model": "bench", "messages": messages, "tools": TOOLS}).encode()
            async with session.post(
                f"{url}/chat/completions", data=data, headers=headers
            ) as response:
                answer = json.loads(await response.read())
            message: dict[str, Any] = answer["choices"][0]["message"]
            return message

        yield complete


@asynccontextmanager
async def remote_endpoint(url: str, in_flight: int) -> AsyncIterator[Complete]:
    """(d') arkdev's remote endpoint, driven by the same bare loop."""
    from arkdev.endpoints.endpoint import ModelRequest
    from arkdev.endpoints.registry import open_endpoint, resolve_endpoint

    spec = resolve_endpoint(url, model="bench", workspace_endpoints={}, user_config=None)
    endpoint = open_endpoint(spec, max_in_flight=in_flight, timeout_s=TIMEOUT_S)
    sampling = {"max_new_tokens": 64, "temperature": 1.0, "top_p": 1.0, "top_k": 0}

    async def complete(messages: list[dict[str, Any]]) -> dict[str, Any]:
        request = ModelRequest(
            body={"messages": messages, "tools": TOOLS}, sampling=sampling, seed=7
        )
        answer = await endpoint.complete(request)
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    try:
        yield complete
    finally:
        await endpoint.close()
