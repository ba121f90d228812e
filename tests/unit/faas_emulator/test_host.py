"""A host whose plugins run in instances: arguments out, results and errors back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from arkdev import SingleGraderResult, single_grader
from arkdev.errors import InstanceError, PluginError
from arkdev.faas_emulator.answers import Answer
from arkdev.faas_emulator.functions import function_of
from arkdev.faas_emulator.host import Deployed, FaasHost, Requests
from arkdev.faas_emulator.pool import Pool
from arkdev.observe.attempt import AttemptPlace, current_attempt
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.plugin.host import InProcessHost
from arkdev.types import ChatCompletionSample, PluginContext, Trajectory
from tests.running import plugin_of_function
from tests.unit.faas_emulator.fake_instances import FakeLauncher

MESSAGES = [{"role": "user", "content": "hello"}]
ARGUMENTS = (
    PluginContext(phase="train"),
    ChatCompletionSample(messages=MESSAGES),
    Trajectory(messages=MESSAGES),
)


@single_grader
def one(context, sample, trajectory):
    return SingleGraderResult(reward=1.0)


@single_grader
def other(context, sample, trajectory):
    return 0.5


class Client:
    """Answers with what it is given, and keeps what was sent."""

    def __init__(self, status, document):
        self.answer = Answer(status, document)
        self.sent = []

    async def post(self, url, body, *, request_id):
        self.sent.append((json.loads(body), request_id))
        return self.answer


async def graded(client, *, requests=None):
    loaded = plugin_of_function(one)
    pool = Pool(function_of(loaded, root=Path("/ws"), envs={}), FakeLauncher(start_s=0), client)
    host = FaasHost(
        [Deployed(loaded, pool)],
        requests=requests or Requests(),
        gateway_url="http://gateway",
        built_in=InProcessHost(),
    )
    try:
        return await host.invoke(loaded, ARGUMENTS)
    finally:
        await host.close()


async def test_the_documented_request_is_sent_and_its_result_is_a_record():
    client = Client(200, {"result": {"reward": 0.5}})
    assert await graded(client) == SingleGraderResult(reward=0.5)
    ((body, _),) = client.sent
    assert body == {
        "context": {"phase": "train"},
        "sample": {"messages": MESSAGES},
        "trajectory": {"messages": MESSAGES},
    }


async def test_what_a_plugin_raised_is_raised_here():
    error = {"code": "PluginError", "type": "ValueError", "message": "no", "where": "a.py:3"}
    with pytest.raises(Exception, match="ValueError: no") as raised:
        await graded(Client(500, {"error": error}))
    assert raised.value.where == "/ws/a.py:3"
    with pytest.raises(RolloutRetryException):
        await graded(Client(500, {"error": {**error, "retry": True}}))
    ours = {**error, "type": "PluginResultError", "arkdev": {}}
    with pytest.raises(PluginError, match="no"):
        await graded(Client(500, {"error": ours}))


async def test_what_is_no_answer_of_a_plugin_is_the_instances_fault():
    with pytest.raises(InstanceError, match="its instance answered"):
        await graded(Client(400, {"error": {"code": "InvalidParameter", "message": "bad"}}))


async def test_a_request_is_known_by_the_attempt_that_made_it():
    class Attempt:
        place = AttemptPlace(("7.1",), 2, "judge")

    requests, client = Requests(), Client(200, {"result": {"reward": 1.0}})
    token = current_attempt.set(Attempt())
    try:
        await graded(client, requests=requests)
    finally:
        current_attempt.reset(token)
    ((_, request_id),) = client.sent
    assert requests.place_of(request_id) == Attempt.place
    assert requests.place_of("unknown") is None


async def test_the_platforms_own_plugins_run_here_and_no_others():
    host = FaasHost([], requests=Requests(), gateway_url="", built_in=InProcessHost())
    built_in = replace(plugin_of_function(other), reference="arkdev.plugin.built_in:other")
    assert await host.invoke(built_in, ARGUMENTS) == 0.5
    with pytest.raises(LookupError, match="other is no function"):
        await host.invoke(plugin_of_function(other), ARGUMENTS)
