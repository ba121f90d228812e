"""A fake Chat Completions server on loopback: records requests, answers what a test says."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def completion(message=None, **fields):
    message = message or {"role": "assistant", "content": "hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    whole = {"id": "r1", "object": "chat.completion", "model": "m1", "choices": [choice]}
    return {**whole, **fields}


class ChatServer:
    """`answer` makes each response; `requests` has (headers, decoded body) of what came in."""

    def __init__(self):
        self.requests = []
        self.url = ""
        self.in_flight = 0
        self.peak_in_flight = 0
        self.answer: Answer = self.say(completion())

    @staticmethod
    def say(body, *, status=200, delay_s=0.0, headers=None, content_type="application/json"):
        """An answer with `body` (JSON unless it is a str)."""
        text = body if isinstance(body, str) else json.dumps(body)

        async def answer(request):
            await asyncio.sleep(delay_s)
            return web.Response(
                text=text, status=status, headers=headers, content_type=content_type
            )

        return answer

    async def handle(self, request):
        self.requests.append((request.headers.copy(), await request.json()))
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            return await self.answer(request)
        finally:
            self.in_flight -= 1

    @asynccontextmanager
    async def running(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}/v1"
            yield self
        finally:
            await runner.cleanup()
