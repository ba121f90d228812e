"""Whatever an endpoint answers with status 200 is an answer or its own error, never a crash."""

import copy
import json
import math

import pytest

from arkdev import rollout, single_grader
from arkdev.endpoints.answers import check_answer, check_response
from arkdev.endpoints.event_stream import EventStreamError, assemble
from arkdev.endpoints.scripted.endpoint import ScriptedEndpoint
from arkdev.endpoints.scripted.script import Script
from arkdev.errors import EndpointResponseError
from arkdev.runs.lines import encoded
from arkdev.runs.records import Verdict
from tests.running import QUESTION, answer, running, tool_call, with_tokens


def changed(path, value):
    """A good answer with one thing replaced."""
    made = with_tokens([1, 2], [3], [-0.5]) if "token" in path else answer(tool_calls=[tool_call()])
    made = copy.deepcopy(made)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = made
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return made


MESSAGE = "choices.0.message"
CALL = f"{MESSAGE}.tool_calls.0"
DEEP = "[" * 100_000 + "]" * 100_000
MENDED = [
    (f"{MESSAGE}.role", ...),
    (f"{MESSAGE}.role", 3),
    (f"{MESSAGE}.reasoning_content", {"a": 1}),
    (f"{MESSAGE}.refusal", ["no"]),
    (f"{MESSAGE}.tool_calls", {}),
    (f"{CALL}.id", 7),
    (f"{CALL}.type", 7),
    (f"{CALL}.function.arguments", DEEP),
    ("choices.0.finish_reason", ["stop"]),
    ("choices.0.finish_reason", 3),
    ("choices.0.index", "0"),
    ("choices.0.logprobs", ["x"]),
    ("choices.0.logprobs", {"content": [{"logprob": None}]}),
    ("choices.0.logprobs", {"content": "x"}),
    ("usage", "many"),
    ("usage", [1]),
    *[("usage.prompt_tokens", value) for value in (3.5, math.nan, math.inf, 10**400, "5", -1)],
    ("usage.completion_tokens", True),
    ("usage.prompt_tokens_details", "x"),
    ("id", 5),
    ("model", 5),
    ("created", "now"),
    ("created", math.nan),
    ("prompt_token_ids", ["x"]),
    ("choices.0.token_ids", 5),
    ("choices.0.token_ids", [1.5]),
]
REFUSED = [
    (f"{MESSAGE}.content", 5),
    (f"{MESSAGE}.content", {"text": "x"}),
    (f"{MESSAGE}.tool_calls", ["f"]),
    (f"{MESSAGE}.tool_calls", [None]),
    (f"{MESSAGE}.tool_calls", {"function": {}}),
    (f"{CALL}.function", "f"),
    (f"{CALL}.function", ...),
    (f"{CALL}.function.name", ["f"]),
]


@rollout
async def asks(context, proxy, sample):
    await proxy.async_rollout_client().chat.completions.create(**QUESTION)


@rollout
async def asks_responses(context, proxy, sample):
    await proxy.async_rollout_client().responses.create(model="m", input="hello")


@rollout
def asks_raw(context, proxy, sample):
    import openai

    client = openai.OpenAI(base_url=proxy.url, api_key=proxy.jwt_token, max_retries=0)
    with client:
        for chunk in client.chat.completions.create(**QUESTION, stream=True):
            assert chunk


@single_grader
def one(context, sample, trajectory):
    return 1.0


async def run_with(plugin, raw_body):
    script = Script.model_validate({"answers": [{"raw_body": raw_body}]})
    async with running() as run:
        run.services.endpoint = ScriptedEndpoint(script=script)
        (group,) = await run.samples(plugin, one)
        (finished,) = run.finished
        encoded(finished.record)
        return finished.record, group


@pytest.mark.parametrize("plugin", [asks, asks_responses, asks_raw])
async def test_what_can_be_mended_is_an_answer(plugin):
    wrong = []
    for path, value in MENDED:
        record, group = await run_with(plugin, changed(path, value))
        if (record.verdict, group.rewards) != (Verdict.SUCCESS, (1.0,)):
            wrong.append((path, str(value)[:20], record.attempts[-1].error))
    assert wrong == []


@pytest.mark.parametrize("plugin", [asks, asks_responses, asks_raw])
async def test_what_cannot_be_read_is_the_endpoints_error_and_fails_the_rollout(plugin):
    for path, value in REFUSED:
        record, _ = await run_with(plugin, changed(path, value))
        assert record.verdict is Verdict.FAILURE
        assert "the endpoint answered 200: no usable answer: choices[0].message" in (
            record.attempts[-1].error
        )


def test_the_error_names_the_place_and_what_stands_there():
    with pytest.raises(EndpointResponseError) as refused:
        check_answer(changed(f"{MESSAGE}.tool_calls", ["f"]), status=200, headers={})
    assert "choices[0].message.tool_calls[0] is 'f'; an object is expected" in str(refused.value)
    assert refused.value.is_transient


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"delta": "x"}]},
        {"choices": 5},
        {"choices": [{"index": [1], "delta": {}}]},
        {"choices": [{"delta": {"tool_calls": ["f"]}}]},
        {"choices": [{"delta": {"tool_calls": 5}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]},
        {"choices": [{"delta": {}, "logprobs": 5, "finish_reason": "stop"}]},
        {"choices": [{"delta": {}, "token_ids": 5, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {}}, {"index": "1", "delta": {}}]},
    ],
)
def test_a_broken_chunk_is_a_stream_that_cannot_be_read(chunk):
    with pytest.raises(EventStreamError):
        assemble(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "content": 5},
        {"type": "message", "content": ["x"]},
        {"type": "message", "content": [{"type": "output_text", "text": 5}]},
        {"type": "function_call", "name": 5},
        {"type": "reasoning", "summary": 5},
    ],
)
def test_a_broken_response_is_the_endpoints_error(item):
    with pytest.raises(EndpointResponseError):
        check_response(
            {"object": "response", "status": "completed", "output": [item]}, status=200, headers={}
        )
