"""`check_endpoint` against servers on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from arkdev.endpoints.capability_check.records import CAPABILITIES, Finding
from arkdev.endpoints.registry import SCRIPTED
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ConfigurationError, EndpointUnreachableError
from arkdev.flows.check_endpoint import CheckProgress, EndpointCheck, check_endpoint

KEY = "sk-0123456789abcdef"
Answer = Callable[[dict[str, Any]], tuple[int, Any]]


class Server:
    """Chat Completions on loopback; `answer` gives (status, body) for a request body."""

    def __init__(self, answer: Answer, *, models: list[str]) -> None:
        self.answer, self.models = answer, models
        self.bodies: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self.url = ""

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        status, answer = self.answer(body)
        if isinstance(answer, web.Response):
            return answer
        return web.json_response(answer, status=status)

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name} for name in self.models]})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._list)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()


def hello(body: dict[str, Any]) -> tuple[int, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}}
    return 200, {"id": "r1", "choices": [choice | {"finish_reason": "stop"}]}


def refusing(status: int, message: str) -> Answer:
    return lambda body: (status, {"error": {"message": message, "code": "Refused"}})


def spec_of(url: str, *, model: str | None = "m1", key: str | None = None) -> EndpointSpec:
    return EndpointSpec(
        name="lab",
        base_url=url,
        model=model,
        api_key_env=key,
        family="generic",
        source="command line",
    )


async def checked(
    answer: Answer, *, models: tuple[str, ...] = (), **spec: Any
) -> tuple[EndpointCheck, Server]:
    async with Server(answer, models=list(models)).running() as server:
        check = await check_endpoint(spec_of(server.url, **spec), progress=CheckProgress())
        return check, server


async def test_every_capability_has_one_finding_in_the_table_s_order() -> None:
    check, server = await checked(hello)
    assert [finding.capability for finding in check.findings] == [
        "chat",
        "usage",
        "tool_calls",
        "parallel_tool_calls",
        "tool_results",
        "responses",
        "responses_follow_up",
        "streaming",
        "structured_output",
        "logprobs",
        "token_ids",
    ]
    assert list(CAPABILITIES) == [finding.capability for finding in check.findings]
    assert {body["model"] for body in server.bodies} == {"m1"}


async def test_requests_are_few_and_one_at_a_time() -> None:
    check, server = await checked(hello)
    assert server.most_at_once == 1
    # the Responses call, to a path that is not there, is counted and not in `bodies`
    assert check.num_requests == len(server.bodies) + 1 <= 12


async def test_a_server_that_refuses_all_but_chat_is_asked_at_most_12_times() -> None:
    def only_chat(body: dict[str, Any]) -> tuple[int, Any]:
        is_plain = body.keys() == {"model", "messages", "max_tokens", "temperature", "stream"}
        return hello(body) if is_plain and not body["stream"] else (400, {"error": "extra field"})

    check, _ = await checked(only_chat)
    assert check.num_requests <= 12
    supports = {finding.capability: finding.support.value for finding in check.findings}
    assert supports == {**dict.fromkeys(CAPABILITIES, "no"), "chat": "yes"}


async def test_progress_is_told_before_and_after_each_step() -> None:
    told: list[str] = []

    def on_findings(findings: list[Finding]) -> None:
        told.extend(finding.capability for finding in findings)

    progress = CheckProgress(on_start=told.append, on_findings=on_findings)
    async with Server(hello, models=[]).running() as server:
        await check_endpoint(spec_of(server.url), progress=progress)
    assert told[:3] == ["a chat call", "chat", "usage"] and told[-1] == "token_ids"


async def test_the_only_model_of_the_list_is_taken() -> None:
    check, server = await checked(hello, models=("tiny",), model=None)
    assert check.model == "tiny" and server.bodies[0]["model"] == "tiny"


@pytest.mark.parametrize("models", [(), ("a", "b")])
async def test_which_of_several_models_must_be_said(models: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="needs a model") as caught:
        await checked(hello, models=models, model=None)
    assert "--model" in caught.value.hint and all(name in caught.value.hint for name in models)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refusal_of_the_first_call_that_holds_for_all_ends_the_check(status: int) -> None:
    with pytest.raises(ConfigurationError, match="no such thing") as caught:
        await checked(refusing(status, "no such thing"))
    assert str(status) in caught.value.message and caught.value.exit_code == 2


async def test_a_web_page_ends_the_check() -> None:
    page = web.Response(text="<html>Sign in", content_type="text/html")
    with pytest.raises(ConfigurationError, match="web page") as caught:
        await checked(lambda body: (200, page))
    assert "/v1" in caught.value.hint


async def test_nothing_there_is_unreachable() -> None:
    with socket.socket() as taken:  # as long as it is, nobody else listens there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(EndpointUnreachableError) as caught:
            await check_endpoint(spec_of(url), progress=CheckProgress())
        assert caught.value.exit_code == 4
        with pytest.raises(EndpointUnreachableError):
            await check_endpoint(spec_of(url, model=None), progress=CheckProgress())


async def test_a_server_that_is_silent_on_one_thing_is_unknown_in_that_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arkdev.flows.check_endpoint.REQUEST_TIMEOUT_S", 2.0)
    closed: list[bool] = []

    class Silent(Server):
        async def _chat(self, request: web.Request) -> web.StreamResponse:
            if "response_format" in (body := await request.json()):
                try:
                    await asyncio.sleep(60)
                finally:
                    closed.append(True)
            return web.json_response(hello(body)[1])

    async with Silent(hello, models=[]).running() as server:
        check = await check_endpoint(spec_of(server.url), progress=CheckProgress())
    unknown = [f for f in check.findings if f.support == "unknown"]
    assert [finding.capability for finding in unknown] == ["structured_output"]
    assert "within 2 s" in unknown[0].evidence


async def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)

    def echo(body: dict[str, Any]) -> tuple[int, Any]:
        if "tools" in body:
            return 400, {"error": {"message": "x" * 180 + f" your key {KEY} may not"}}
        if "response_format" in body:
            return 200, {"choices": [{"message": {"content": f"key {KEY}"}}]}
        return hello(body)

    check, _ = await checked(echo, key="LAB_KEY")
    shown = repr(check)
    assert KEY not in shown and KEY[:8] not in shown and "[API key]" in shown


async def test_a_streaming_only_server_is_seen_as_one() -> None:
    def stream(body: dict[str, Any]) -> tuple[int, Any]:
        message = {"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]}
        text = f"data: {json.dumps(message)}\n\ndata: [DONE]\n\n"
        return 200, web.Response(text=text, content_type="text/event-stream")

    check, _ = await checked(stream)
    assert check.findings[0].support == "partly"
    assert check.features[0].reason == "streaming-only server: answers are assembled"


async def test_the_scripted_model_is_served_for_the_check() -> None:
    check = await check_endpoint(SCRIPTED, progress=CheckProgress())
    supports = {finding.capability: finding.support.value for finding in check.findings}
    assert supports["chat"] == supports["tool_calls"] == supports["structured_output"] == "yes"
    assert check.url.startswith("http://127.0.0.1:") and check.name == "scripted"


async def test_a_server_with_responses_alone_is_checked() -> None:
    async def respond(request: web.Request) -> web.Response:
        item = {"type": "message", "content": [{"type": "output_text", "text": "Plum"}]}
        return web.json_response({"id": "resp_1", "object": "response", "output": [item]})

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    check = await check_endpoint(spec_of(url), progress=CheckProgress())
    await runner.cleanup()
    supports = {finding.capability: finding.support.value for finding in check.findings}
    assert supports["chat"] == "no" and supports["responses_follow_up"] == "yes"
    assert 'api = "responses"' in check.features[0].reason
