"""A plugin does the same in an instance of its own as in arkdev's process: every record is equal.

The session, the gateway and the retries are real on both sides, the endpoint answers by what it is
asked; the instance is a child process.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest

from arkdev.errors import EndpointResponseError
from arkdev.faas_emulator.functions import function_of
from arkdev.faas_emulator.processes.process_instance import ProcessLauncher
from arkdev.faas_emulator.worker.answers import answer_of
from arkdev.faas_emulator.worker.requests import request_body
from arkdev.harness.grading import Grader
from arkdev.plugin.host import HostCapabilities
from arkdev.plugin.loading import LoadedPlugin, load_plugin
from tests.running import Run, answer, running, sample_to_run, tool_call, with_tokens

PLUGINS = """
import asyncio
import threading

import openai

from arkdev import (
    GroupRolloutResult,
    PluginStatus,
    RolloutResult,
    RolloutRetryException,
    SingleResponse,
    group_grader,
    group_rollout,
    rollout,
    single_grader,
    wrap_client_inplace,
)

late = []


@rollout
def do(context, proxy, sample):
    return SYNC[sample.extra["case"]](proxy, sample)


@rollout
async def do_async(context, proxy, sample):
    return await ASYNC[sample.extra["case"]](proxy, sample)


def ask(proxy, text, **more):
    client = proxy.rollout_client()
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], **more)


def chat_with_tools(proxy, sample):
    client = proxy.rollout_client()
    messages = sample.model_dump()["messages"]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
    for _ in range(3):
        completion = client.chat.completions.create(model="m", messages=messages, tools=tools)
        message = completion.choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    return RolloutResult(extra={
        "last": proxy.messages[-1].content, "usage": proxy.usage.model_dump(),
        "finish": proxy.finish_reason, "type": type(completion).__module__,
        "changed": sample.extra.pop("case"),
    }, config={"critic_context": []})


def asks(proxy, sample):
    client = proxy.rollout_client()
    client.chat.completions.create(model="m", messages=sample.model_dump()["messages"])
    return RolloutResult(extra={"tokens": proxy.conversation.tokens.token_ids})


def streams(proxy, sample):
    parts = [chunk.choices[0].delta.content for chunk in ask(proxy, "s", stream=True)
             if chunk.choices]
    return RolloutResult(extra={"text": "".join(part or "" for part in parts)})


def raw(proxy, sample):
    client = openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token, max_retries=0)
    messages = [{"role": "user", "content": "by hand"}]
    for number in range(2):
        proxy.update_state_from_messages(messages)
        completion = client.chat.completions.create(
            model="m", messages=messages, extra_body=proxy.get_extra_body())
        proxy.process_completion(completion)
        messages = [*proxy.messages, {"role": "user", "content": f"and {number}?"}]
    return {"extra": {"count": len(proxy.messages)}}


def raw_unprocessed(proxy, sample):
    client = openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token, max_retries=0)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}],
                                   temperature=0.1)


def processed_from_elsewhere(proxy, sample):
    proxy.update_state_from_messages(sample.messages)
    proxy.process_completion({"id": "own", "choices": [
        {"message": {"role": "assistant", "content": "made up"}, "finish_reason": "stop"}]})


def own_client(proxy, sample):
    client = openai.OpenAI(base_url=proxy.url, api_key="other", timeout=5.0)
    wrap_client_inplace(client, proxy)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


def fails_at_times(proxy, sample):
    text = ask(proxy, "a seed of each attempt").choices[0].message.content
    if int(text[-1], 16) % 4:
        return RolloutResult(status=PluginStatus.FAILURE, error=f"not {text}")


def gives_up(proxy, sample):
    return RolloutResult(status=PluginStatus.DISCARD, error="hopeless", extra={"n": float("inf")})


def wants_a_retry(proxy, sample):
    def tool():
        raise RolloutRetryException("the tool is busy")
    tool()


def raises(proxy, sample):
    ask(proxy, "first")
    try:
        {}["town"]
    except KeyError as error:
        raise ValueError("no such town: \\u5317\\u4eac") from error


def forgets_await(proxy, sample):
    return proxy.rollout_client().chat.completions.create.no_such_thing


def sets_temperature(proxy, sample):
    ask(proxy, "x", temperature=0.2)


def hides_a_refusal(proxy, sample):
    try:
        ask(proxy, "x", max_tokens=3)
    except Exception as error:
        text = f"{type(error).__name__}: {error.message}"  # its place is another there
    ask(proxy, "x")
    return RolloutResult(extra={"refusal": text})


def endpoint_error(proxy, sample):
    ask(proxy, "status 400")


def catches_the_endpoints_error(proxy, sample):
    try:
        ask(proxy, "status 429")
    except openai.RateLimitError as error:
        caught = [str(error), error.status_code, error.body]
    ask(proxy, "again")
    return RolloutResult(extra={"caught": caught})


def runs_out_of_patience(proxy, sample):
    try:
        ask(proxy, "slow", timeout=0.7)
    except openai.APITimeoutError as error:
        return RolloutResult(extra={"caught": str(error)})


def comes_late(proxy, sample):
    if late:
        thread = late[0]
        thread.join()
        raise RuntimeError(f"the late call: {late[1]}")

    def call():
        threading.Event().wait(2)
        try:
            ask(proxy, "late")
        except Exception as error:
            late.append(f"{type(error).__name__}: {error} {error.hint}")
    late.append(threading.Thread(target=call))
    late[0].start()
    raise OSError(5, "first attempt")


def in_a_thread(proxy, sample):
    thread = threading.Thread(target=ask, args=(proxy, "in a thread"))
    thread.start()
    thread.join()


def no_json(proxy, sample):
    ask(proxy, {1})


def bad_result(proxy, sample):
    return {"status": "success", "exta": 1}


def exits(proxy, sample):
    raise SystemExit("bye")


def responses_chain(proxy, sample):
    client = proxy.rollout_client()
    first = client.responses.create(model="m", input="one", instructions="be brief")
    second = client.responses.create(model="m", input="two", previous_response_id=first.id)
    return {"extra": {"ids": [first.id, second.id], "text": second.output_text}}


def unknown_response(proxy, sample):
    client = proxy.rollout_client()
    client.responses.create(model="m", input="one", previous_response_id="resp_unknown")


def not_translatable(proxy, sample):
    client = proxy.rollout_client()
    client.responses.create(model="m", input=[{"type": "computer_call", "x": 1}])


SYNC = {name: value for name, value in list(globals().items()) if callable(value)}


async def overlapping(proxy, sample):
    client = proxy.async_rollout_client()

    async def one(number):
        completion = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": f"call {number}"}])
        return completion.choices[0].message.content
    texts = await asyncio.gather(*(one(number) for number in range(6)))
    return RolloutResult(extra={"texts": texts, "last": proxy.messages[0].content})


async def gives_up_a_call(proxy, sample):
    client = proxy.async_rollout_client()
    call = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "slow"}])
    try:
        await asyncio.wait_for(call, 0.7)
    except asyncio.TimeoutError:
        pass
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "next"}])


async def async_raw_stream(proxy, sample):
    client = openai.AsyncOpenAI(base_url=proxy.url, api_key=proxy.jwt_token, max_retries=0)
    stream = await client.responses.create(model="m", input="raw", stream=True)
    async for event in stream:
        last = event
    own = proxy.async_rollout_client()
    after = await own.responses.create(
        model="m", input="more", previous_response_id=last.response.id)
    await client.close()
    return RolloutResult(extra={"ids": [last.response.id, after.id]})


async def cancels_itself(proxy, sample):
    task = asyncio.ensure_future(asyncio.sleep(10))
    task.cancel()
    await task


async def awaits_an_answer(proxy, sample):
    client = proxy.rollout_client()
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


ASYNC = {name: value for name, value in list(globals().items()) if callable(value)}


@group_rollout
async def branches(context, proxy, sample, n_sample):
    client = proxy.async_rollout_client()
    root = await client.responses.create(model="m", input="root")
    inserted = proxy.update_state_from_messages(
        [{"role": "user", "content": "a hint"}], previous_response_id=root.id)

    async def branch(number):
        response = await client.responses.create(
            model="m", input="same question", previous_response_id=inserted)
        extra = {"number": number, "text": response.output_text}
        return SingleResponse(id=response.id, extra=extra)
    return GroupRolloutResult(
        responses=list(await asyncio.gather(*(branch(i) for i in range(n_sample)))))


@group_rollout
def too_few(context, proxy, sample, n_sample):
    return GroupRolloutResult(responses=[])


@single_grader
def score(context, sample, trajectory):
    if "fail" in sample.extra:
        raise ArithmeticError("cannot be scored")
    tokens = trajectory.total_token_ids or []
    return {"reward": len(tokens) + 0.5, "metrics": {"odd": float("nan"), "turns": True}}


@group_grader
async def rank(context, sample, trajectories):
    if sample.extra.get("fail") == "count":
        return [1.0]
    return {"rewards": list(range(len(trajectories))),
            "seq_advantages": [0.5] * len(trajectories)}
"""


def digest(request: Any) -> str:
    text = json.dumps([request.body, request.seed], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=6).hexdigest()


def answered(request: Any) -> Any:
    """The endpoint: what it answers depends on what it is asked, and on the seed."""
    last = request.body["messages"][-1]
    text, name = str(last["content"]), digest(request)
    if text.startswith("status"):
        status = int(text.split()[1])
        return EndpointResponseError(
            f"refused with {status}", status=status, body={"error": {"message": "no", "code": "C"}}
        )
    if request.body.get("tools") and last["role"] == "user":
        return answer(None, tool_calls=[tool_call(id=f"call-{name}")], id=f"answer-{name}")
    if text == "how is the weather?":
        made = with_tokens([1, 2], [3, 4], [-0.5, -0.25], content=f"fine {name}")
        return {**made, "id": f"answer-{name}"}
    return answer(f"fine {name}", id=f"answer-{name}")


class InstanceHost:
    """Calls plugins in instances of their own, without the platform's queue and limits."""

    capabilities = HostCapabilities()

    def __init__(self, root: Path, launcher: ProcessLauncher, client: aiohttp.ClientSession):
        self._root = root
        self._launcher = launcher
        self._client = client
        self._urls: dict[str, str] = {}

    async def invoke(self, loaded: LoadedPlugin, arguments: tuple[Any, ...]) -> Any:
        if loaded.reference not in self._urls:
            function = function_of(loaded, root=self._root, envs={})
            instance = await self._launcher.start(function, on_log=lambda line: None)
            self._urls[loaded.reference] = instance.url
        body = json.dumps(request_body(loaded.plugin, arguments))
        async with self._client.post(self._urls[loaded.reference], data=body) as response:
            document = json.loads(await response.read())
        return answer_of(document, plugin=loaded.plugin, root=self._root)

    async def close(self) -> None:
        pass


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def write_to(self, folder: Path) -> None:
        shutil.copytree(self._root, folder, dirs_exist_ok=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins" / "equal.py").write_text(dedent(PLUGINS), encoding="utf-8")
    return folder


@asynccontextmanager
async def both(root: Path) -> AsyncIterator[tuple[Run, Run]]:
    """One run whose plugins are in this process, and one whose plugins are in instances."""
    launcher = ProcessLauncher(Folder(root))
    async with (
        running(answered) as here,
        running(answered) as there,
        aiohttp.ClientSession() as client,
    ):
        for run in (here, there):
            run.endpoint.complete = slowed(run.endpoint.complete)
        there.host = InstanceHost(root, launcher, client)
        try:
            yield here, there
        finally:
            await launcher.close()


def slowed(complete: Any) -> Any:
    async def slow(request: Any) -> Any:
        if str(request.body["messages"][-1]["content"]) == "slow":
            await asyncio.sleep(5)
        return await complete(request)

    return slow


def plain(record: Any) -> Any:
    """A record without what the clock tells; of tracebacks what is the user's."""

    def cleaned(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: cleaned(item, name) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [cleaned(item) for item in value]
        if key.endswith("_s"):
            return value is not None
        if key == "traceback" and value is not None:
            users = re.findall(r'File "[^"]*/plugins/[^"]*", line \d+, in \w+', value)
            return [users, value.strip().splitlines()[-1]]
        return value

    return json.dumps(cleaned(asdict(record)), indent=1, default=repr).splitlines()


async def compare(root: Path, reference: str, extras: list[dict[str, Any]], *, n: int = 1) -> None:
    loaded = load_plugin(f"plugins.equal:{reference}", root=root)
    async with both(root) as runs:
        for extra in extras:
            line = {
                "messages": [{"role": "user", "content": "how is the weather?"}],
                "extra": extra,
            }
            found = []
            for run in runs:
                finished = await run.runner(loaded).run(
                    sample_to_run(line, temperature=0.5), generations=range(n), run_seed=7
                )
                found.append([(plain(one.record), one.evidence) for one in finished])
            assert found[0] == found[1], extra
        sent = [[(r.body, r.seed, r.sampling) for r in run.requests] for run in runs]
        order = [sorted(requests, key=repr) for requests in sent]
        assert order[0] == order[1]


SYNC_CASES = (
    "asks",
    "chat_with_tools",
    "streams",
    "raw",
    "raw_unprocessed",
    "processed_from_elsewhere",
    "own_client",
    "fails_at_times",
    "gives_up",
    "wants_a_retry",
    "raises",
    "forgets_await",
    "sets_temperature",
    "hides_a_refusal",
    "endpoint_error",
    "catches_the_endpoints_error",
    "runs_out_of_patience",
    "comes_late",
    "in_a_thread",
    "no_json",
    "bad_result",
    "exits",
    "responses_chain",
    "unknown_response",
    "not_translatable",
)
ASYNC_CASES = (
    "overlapping",
    "gives_up_a_call",
    "async_raw_stream",
    "cancels_itself",
    "awaits_an_answer",
)


async def test_a_sync_rollout_leaves_the_same_record_in_an_instance(root):
    await compare(root, "do", [{"case": case} for case in SYNC_CASES])


async def test_an_async_rollout_leaves_the_same_record_in_an_instance(root):
    await compare(root, "do_async", [{"case": case} for case in ASYNC_CASES])


async def test_a_group_rollout_leaves_the_same_branches_in_an_instance(root):
    await compare(root, "branches", [{}], n=4)
    await compare(root, "too_few", [{}], n=2)


@pytest.mark.parametrize("grader", ["score", "rank"])
async def test_graders_give_the_same_in_an_instance(root, grader):
    rollout = load_plugin("plugins.equal:do", root=root)
    loaded = load_plugin(f"plugins.equal:{grader}", root=root)
    async with both(root) as runs:
        for extra in ({}, {"fail": "count"}):
            extra = {"case": "asks", **extra}
            line = {
                "messages": [{"role": "user", "content": "how is the weather?"}],
                "extra": extra,
            }
            found = []
            for run in runs:
                sample = sample_to_run(line)
                rollouts = [
                    (
                        await run.runner(rollout).run(
                            sample, generations=range(g, g + 1), run_seed=1
                        )
                    )[0]
                    for g in range(2)
                ]
                group = await run.grading(Grader(loaded, name="g")).grade(sample, rollouts)
                found.append(plain(group))
            assert found[0] == found[1]
