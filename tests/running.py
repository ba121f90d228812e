"""The plugin side of a run, for tests: real sessions, gateway, host and engine, a fake endpoint.

async with running(["first answer", "second answer"]) as run:
    finished = await run.rollout(my_rollout)
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from arkdev import group_grader
from arkdev.endpoints.endpoint import EndpointCapabilities, ModelRequest
from arkdev.harness.engine import Engine, EngineSettings
from arkdev.harness.grading import Grader, GroupGrading
from arkdev.harness.rollouts import FinishedRollout, RolloutRunner, SampleToRun
from arkdev.plugin.host import InProcessHost
from arkdev.plugin.loading import LoadedPlugin, load_plugin
from arkdev.plugin.proxy import InferenceProxy
from arkdev.runs.records import GroupRecord
from arkdev.sessions.background import BackgroundLoop
from arkdev.sessions.faults.grammar import parse_faults
from arkdev.sessions.faults.plan import FaultPlan
from arkdev.sessions.gateway import Gateway
from arkdev.sessions.identity import AttemptIdentity
from arkdev.sessions.retries import RetryPolicy
from arkdev.sessions.session import Session, SessionServices
from arkdev.types import ChatCompletionSample, PluginContext

LINE = {"messages": [{"role": "user", "content": "how is the weather?"}]}
QUESTION = {"model": "m", **LINE}
"""Arguments of `chat.completions.create`."""
WEATHER_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}

_ids = itertools.count()


def tool_call(
    name: str = "get_weather", arguments: str = "{}", *, id: str = "call_1"
) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(
    content: Any = "fine",
    *,
    tool_calls: Sequence[dict[str, Any]] = (),
    finish_reason: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A Chat Completions answer. `fields` replace parts of it; `...` removes one."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if tool_calls:
        message["tool_calls"] = list(tool_calls)
    body = {
        "id": f"answer-{next(_ids)}",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish_reason or ("tool_calls" if tool_calls else "stop"),
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        **fields,
    }
    return {name: value for name, value in body.items() if value is not ...}


def with_tokens(
    prompt: list[int], sampled: list[int], logprobs: list[float], *, content: str = "fine"
) -> dict[str, Any]:
    """An answer with token evidence, as vLLM returns it."""
    body = answer(content, prompt_token_ids=prompt)
    body["choices"][0]["token_ids"] = sampled
    body["choices"][0]["logprobs"] = {"content": [{"logprob": value} for value in logprobs]}
    body["usage"] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(sampled),
        "total_tokens": len(prompt) + len(sampled),
    }
    return body


async def a_request_of(run: Run) -> None:
    """Wait for the first request at the endpoint, from whichever event loop."""
    async with asyncio.timeout(60):
        while not run.requests:  # noqa: ASYNC110 (the endpoint tells nobody)
            await asyncio.sleep(0.001)


Answer = dict[str, Any] | str | Exception


class FakeEndpoint:
    """Answers from a list, of which the last is repeated, or from a function of the request."""

    name = "fake"
    model = "fake"
    capabilities = EndpointCapabilities()

    def __init__(
        self, answers: Sequence[Answer] | Callable[[ModelRequest], Answer], *, delay_s: float = 0.0
    ) -> None:
        self._answers = answers
        self._delay_s = delay_s
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        self.requests.append(request)
        number = len(self.requests) - 1
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if callable(self._answers):
            given = self._answers(request)
        else:
            given = self._answers[min(number, len(self._answers) - 1)]
        if isinstance(given, Exception):
            raise given
        return answer(given) if isinstance(given, str) else given

    async def close(self) -> None:
        pass


def plugin_of_function(function: Any) -> LoadedPlugin:
    return load_plugin(function, root=Path())


class Run:
    """A run whose services are up."""

    def __init__(self, endpoint: FakeEndpoint, gateway: Gateway, services: SessionServices) -> None:
        self.endpoint = endpoint
        self.gateway = gateway
        self.services = services
        self.host = InProcessHost()
        self.context = PluginContext(phase="test")
        self.finished: list[FinishedRollout] = []
        self.groups: list[GroupRecord] = []

    @property
    def requests(self) -> list[ModelRequest]:
        return self.endpoint.requests

    @property
    def sent(self) -> list[list[dict[str, Any]]]:
        """The messages of each request."""
        return [request.body["messages"] for request in self.requests]

    def session(self, identity: AttemptIdentity | None = None, **sampling: Any) -> Session:
        """An open attempt."""
        session = Session(
            identity or AttemptIdentity(0, 0, 0), sampling=sampling, services=self.services
        )
        self.gateway.open(session)
        return session

    def proxy(self, session: Session | None = None) -> InferenceProxy:
        return InferenceProxy(ChatCompletionSample(**LINE), access=session or self.session())

    def runner(self, rollout: Any) -> RolloutRunner:
        return RolloutRunner(
            rollout if isinstance(rollout, LoadedPlugin) else plugin_of_function(rollout),
            host=self.host,
            door=self.gateway,
            new_session=lambda identity, sampling: Session(
                identity, sampling=sampling, services=self.services
            ),
            context=self.context,
        )

    def grading(self, *graders: Any) -> GroupGrading:
        return GroupGrading(
            [grader if isinstance(grader, Grader) else as_grader(grader) for grader in graders],
            host=self.host,
            context=self.context,
        )

    async def rollout(
        self, function: Any, line: dict[str, Any] = LINE, *, index: int = 0, **sampling: Any
    ) -> FinishedRollout:
        """One rollout with its attempts."""
        sample = sample_to_run(line, index=index, **sampling)
        (finished,) = await self.runner(function).run(sample, generations=range(1), run_seed=0)
        return finished

    async def group(
        self, function: Any, line: dict[str, Any] = LINE, *, n: int = 2, run_seed: int = 0
    ) -> list[FinishedRollout]:
        """One call of a group rollout with its attempts."""
        sample = sample_to_run(line)
        return await self.runner(function).run(sample, generations=range(n), run_seed=run_seed)

    async def samples(
        self,
        function: Any,
        *graders: Any,
        lines: Iterable[dict[str, Any]] = (LINE,),
        n: int = 1,
        concurrency: int = 4,
    ) -> list[GroupRecord]:
        """Run samples through rollout and graders; the records are in `finished` and `groups`."""
        engine = Engine(
            self.runner(function),
            self.grading(*(graders or (always_one,))),
            EngineSettings(num_generations=n, concurrency=concurrency),
            on_rollout=self.finished.append,
            on_group=self.groups.append,
        )
        await engine.run(sample_to_run(line, index=index) for index, line in enumerate(lines))
        return sorted(self.groups, key=lambda group: group.sample_index)


def lines(count: int) -> list[dict[str, Any]]:
    """Dataset lines that know their number."""
    return [{**LINE, "extra": {"index": index}} for index in range(count)]


def sample_to_run(line: dict[str, Any] = LINE, *, index: int = 0, **sampling: Any) -> SampleToRun:
    return SampleToRun(index, json.dumps(line, ensure_ascii=False), sampling)


def as_grader(function: Any, *, weight: float = 1.0, name: str | None = None) -> Grader:
    loaded = plugin_of_function(function)
    return Grader(loaded, name=name or loaded.plugin.name, weight=weight)


@group_grader
async def always_one(context, sample, trajectories):
    return [1.0] * len(trajectories)


@asynccontextmanager
async def running(
    answers: Sequence[Answer] | Callable[[ModelRequest], Answer] = ("fine",),
    *,
    delay_s: float = 0.0,
    retries: RetryPolicy | None = None,
    inject: str = "",
) -> AsyncIterator[Run]:
    endpoint = FakeEndpoint(answers, delay_s=delay_s)
    background = BackgroundLoop()
    background.start()
    gateway = Gateway()
    await background.call(gateway.start())
    services = SessionServices(
        endpoint=endpoint,
        gateway_url=gateway.url,
        blocking_loop=background.loop,
        retries=retries or RetryPolicy(first_wait_s=0.001),
        faults=FaultPlan(parse_faults(inject), seed=0) if inject else None,
    )
    try:
        yield Run(endpoint, gateway, services)
    finally:
        await background.call(gateway.stop())
        background.stop()
