"""A call goes into an instance as JSON, and what came of it comes back."""

import json
import math
from pathlib import Path

import pytest

from arkdev.errors import InstanceError, PluginResultError
from arkdev.faas_emulator.worker.answers import answer_of, answer_text, read_result
from arkdev.faas_emulator.worker.requests import BadRequestError, read_request, request_body
from arkdev.plugin.decorators import Plugin, PluginKind
from arkdev.plugin.proxy import InferenceProxy
from arkdev.types import (
    ChatCompletionSample,
    GroupGraderResult,
    PluginContext,
    RolloutResult,
    Trajectory,
)
from tests.running import running

ROLLOUT = Plugin(kind=PluginKind.SINGLE_ROLLOUT, name="r")
GROUP_ROLLOUT = Plugin(kind=PluginKind.GROUP_ROLLOUT, name="g")
GRADER = Plugin(kind=PluginKind.SINGLE_GRADER, name="s")
GROUP_GRADER = Plugin(kind=PluginKind.GROUP_GRADER, name="a")
SAMPLE = ChatCompletionSample(
    messages=[{"role": "user", "content": "half \ud83d"}], top_p=1.0, mine=[1]
)


def crossed(plugin, arguments):
    body = json.loads(json.dumps(request_body(plugin, arguments)))
    return body, read_request(body, plugin=plugin)


def test_a_sample_keeps_what_it_sets_itself_and_its_own_keys():
    proxy = InferenceProxy(SAMPLE, "http://h/v", "key")
    proxy.headers["x"] = "y"
    body, read = crossed(GROUP_ROLLOUT, (PluginContext(phase="train", x=1), proxy, SAMPLE, 4))
    assert read.sample == SAMPLE
    assert read.sample.model_fields_set == {"messages", "top_p", "mine"}
    assert (read.context.phase, read.context["x"], read.rest) == ("train", 1, (4,))
    assert body["proxy"] == {
        "url": "http://h/v", "jwt_token": "key", "mode": "inference", "headers": {"x": "y"}
    }  # fmt: skip


async def test_the_proxy_of_a_run_says_whose_attempt_it_is_and_takes_another_address():
    async with running() as run:
        session = run.session()
        arguments = (PluginContext(), run.proxy(session), SAMPLE)
        body = request_body(ROLLOUT, arguments, url="http://relay:1/api/v3")
    assert body["proxy"]["attempt"] == {"name": "0.0", "number": 1}
    assert body["proxy"]["url"] == "http://relay:1/api/v3"


def test_numbers_that_are_not_finite_cross_both_ways():
    trajectory = Trajectory(messages=[], total_token_logprobs=[-math.inf], total_token_ids=[1])
    _, read = crossed(GROUP_GRADER, (PluginContext(), SAMPLE, [trajectory]))
    assert read.rest[0] == [trajectory]
    result = read_result(
        {"rewards": [1], "metrics": {"m": math.inf}}, plugin=GROUP_GRADER, rest=read.rest
    )
    text = answer_text(result, plugin=GROUP_GRADER)
    back = answer_of(json.loads(text), plugin=GROUP_GRADER, root=Path())
    assert back == GroupGraderResult(rewards=[1.0], metrics={"m": math.inf})


@pytest.mark.parametrize(
    ("plugin", "body", "problem"),
    [
        (GRADER, [], "a JSON list"),
        (GRADER, {"sample": {"messages": []}}, "no trajectory"),
        (GRADER, {"context": {}, "trajectory": {"messages": []}}, "no sample"),
        (GRADER, {"sample": {"messages": [3]}, "trajectory": {}}, r"sample\.messages\.0"),
        (GROUP_GRADER, {"sample": {"messages": []}, "trajectories": {}}, "not a list"),
        (ROLLOUT, {"sample": {"messages": []}}, "no proxy"),
        (ROLLOUT, {"sample": {"messages": []}, "proxy": {"mode": "odd"}}, "'odd'"),
        (ROLLOUT, {"sample": {"messages": []}, "proxy": {"url": "http://h:x"}}, "proxy.url"),
        (GROUP_ROLLOUT, {"sample": {"messages": []}, "proxy": {}, "n_sample": True}, "n_sample"),
        (ROLLOUT, {"sample": {"messages": []}, "proxy": {"url": 5}}, "proxy.url is not a text"),
        (
            ROLLOUT,
            {"sample": {"messages": []}, "proxy": {"jwt_token": ["t"]}},
            "proxy.jwt_token is not a text",
        ),
    ],
)
def test_a_request_that_is_none_says_what_is_wrong(plugin, body, problem):
    with pytest.raises(BadRequestError, match=problem):
        read_request(body, plugin=plugin)


def test_an_answer_says_its_status_also_where_the_plugin_returned_nothing():
    assert answer_text(RolloutResult(), plugin=ROLLOUT) == '{"result": {"status": "success"}}'


def test_a_result_that_json_cannot_hold_is_an_error_and_not_left_out():
    with pytest.raises(PluginResultError, match="cannot leave its function as JSON"):
        answer_text(RolloutResult(extra={"client": object()}), plugin=ROLLOUT)


def test_what_is_neither_a_result_nor_an_error_is_the_instances_fault():
    with pytest.raises(InstanceError, match="its instance answered: 'x'"):
        answer_of("x", plugin=ROLLOUT, root=Path())
    with pytest.raises(InstanceError, match="too many"):
        answer_of({"error": {"code": "C", "message": "too many"}}, plugin=ROLLOUT, root=Path())
