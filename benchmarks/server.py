"""A chat server of fixed latency: two tool calls, then a final answer. Run by harness.py.

It prints its URL as its first line and serves until it is terminated. A request is answered by the
number of tool results in it, so the server holds no state and parses no JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from aiohttp import web

TURNS = 3
"""Model calls per rollout."""


def _completion(message: dict[str, Any], *, finish_reason: str) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": finish_reason,
    }
    usage = {"prompt_tokens": 120, "completion_tokens": 24, "total_tokens": 144}
    answer = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(answer).encode("ascii")


def _tool_call(turn: int) -> bytes:
    function = {"name": "get_weather", "arguments": json.dumps({"location": f"city {turn}"})}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return _completion({"content": None, "tool_calls": [call]}, finish_reason="tool_calls")


ANSWERS = [
    *(_tool_call(turn) for turn in range(TURNS - 1)),
    _completion({"content": "It is sunny."}, finish_reason="stop"),
]


async def serve(*, latency_s: float) -> None:
    """Serve on a free loopback port until cancelled."""

    async def handle(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        num_results = body.count(b'"tool_call_id"')
        await asyncio.sleep(latency_s)
        return web.Response(
            body=ANSWERS[min(num_results, TURNS - 1)], content_type="application/json"
        )

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency-ms", type=float, default=50.0)
    asyncio.run(serve(latency_s=parser.parse_args().latency_ms / 1000))
