"""The policy as sessions call it: answers with evidence, honoured parameters, named refusals."""

import asyncio
import json
from dataclasses import replace

import pytest

from arkdev.backends.local.endpoint import PolicyEndpoint
from arkdev.endpoints.endpoint import ModelRequest
from arkdev.errors import EndpointResponseError, EndpointUnreachableError, PolicyEngineError
from arkdev.plugin.evidence import TokenRecordBuilder
from tests.unit.backends.local.letters import (
    CALL,
    END,
    QUESTION,
    WEATHER,
    LetterRendering,
    ToldEngine,
    policy,
)


def asking(*messages, sampling=None, scope="", seed=None, **fields):
    body = {"messages": list(messages or [QUESTION]), **fields}
    return ModelRequest(body, sampling=sampling or {}, seed=seed, scope=scope)


def text_of(token_ids):
    return "".join(map(chr, token_ids))


async def test_an_answer_has_its_content_usage_version_and_token_evidence():
    endpoint = policy("It rains.")
    answer = await endpoint.complete(asking())
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "It rains."}
    assert choice["finish_reason"] == "stop" and answer["model"] == "told"
    assert text_of(choice["token_ids"]) == "It rains." + END
    assert text_of(answer["prompt_token_ids"]).endswith("\x02assistant\n")
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [-0.5] * 10
    assert choice["logprobs"]["content"][0]["bytes"] == [ord("I")]
    num_prompt = len(answer["prompt_token_ids"])
    assert answer["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": 10,
        "total_tokens": num_prompt + 10,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert answer["policy_version"] == 7 and endpoint.capabilities.has_token_evidence


async def test_reasoning_and_tool_calls_are_told_apart_from_content():
    said = f"<think>\nI look.\n</think>\n\nOne moment.\n{CALL}\n{CALL}"
    answer = await policy(said).complete(asking(tools=[WEATHER]))
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("One moment.", "I look.")
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [
        {"city": "Oslo"},
        {"city": "Oslo"},
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_following_turn_extends_the_sampled_tokens_of_its_scope():
    endpoint = policy(CALL, "It rains.")
    builder = TokenRecordBuilder()
    first = await endpoint.complete(asking(tools=[WEATHER], scope="a 1"))
    said = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "rain"}
    last = await endpoint.complete(asking(QUESTION, said, result, tools=[WEATHER], scope="a 1"))
    for answer in (first, last):
        builder.add_call(answer)
    before = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"]]
    assert last["prompt_token_ids"][: len(before)] == before
    evidence = builder.built()
    sampled = [t for t, w in zip(evidence.token_ids, evidence.loss_weight, strict=True) if w]
    assert text_of(sampled) == CALL + END + "It rains." + END
    # another attempt did not sample these tokens: for it they are read from the messages
    other = await endpoint.complete(asking(QUESTION, said, result, tools=[WEATHER], scope="a 2"))
    assert other["prompt_token_ids"][: len(before)] != before


async def test_a_branch_extends_the_answer_that_it_names_of_two_that_say_the_same():
    endpoint = policy("Hello", "<think>\n\n</think>\n\nHello", "x")
    answers = [await endpoint.complete(asking(scope="a 1")) for _ in range(2)]
    messages = [answer["choices"][0]["message"] for answer in answers]
    assert messages[0] == messages[1]
    for answer in answers:
        request = asking(QUESTION, messages[0], QUESTION, scope="a 1")
        last = await endpoint.complete(replace(request, previous_response_id=answer["id"]))
        before = [*answer["prompt_token_ids"], *answer["choices"][0]["token_ids"]]
        assert last["prompt_token_ids"][: len(before)] == before


async def test_sampling_parameters_reach_the_engine_under_their_contract_names():
    endpoint = policy("x")
    sampling = {"max_new_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3}
    await endpoint.complete(asking(sampling={**sampling, "repetition_penalty": 1.1}, seed=4))
    given = endpoint.engine.requests[0].sampling
    assert {name: getattr(given, name) for name in sampling} == sampling
    assert (given.repetition_penalty, given.seed) == (1.1, 4)
    assert given.stop_token_ids == {ord(END)}


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("disabled", "</think>\n\n"), ("enabled", "assistant\n"), ("auto", "assistant\n")],
)
async def test_thinking_reaches_the_template(kind, ending):
    answer = await policy("x").complete(asking(sampling={"thinking": {"type": kind}}))
    assert text_of(answer["prompt_token_ids"]).endswith(ending)


async def test_thinking_without_a_switch_is_refused_unless_it_is_off_anyway():
    rendering = LetterRendering(has_thinking_switch=False)
    endpoint = PolicyEndpoint(ToldEngine("x"), rendering, model_name="told")
    await endpoint.complete(asking(sampling={"thinking": {"type": "disabled"}}))
    with pytest.raises(EndpointResponseError, match="no switch"):
        await endpoint.complete(asking(sampling={"thinking": {"type": "enabled"}}))


async def test_an_answer_that_is_cut_has_the_finish_reason_length():
    answer = await policy("It rains.").complete(asking(sampling={"max_new_tokens": 4}))
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("It r", "length")


async def test_the_limit_is_an_upper_bound_and_the_context_another():
    endpoint = policy("word " * 100, max_context_tokens=100)
    answer = await endpoint.complete(asking(sampling={"max_new_tokens": 4096}))
    assert answer["usage"]["total_tokens"] == 100
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_prompt_without_room_for_an_answer_is_a_400_of_its_own_code():
    endpoint = policy("x", max_context_tokens=20)
    with pytest.raises(EndpointResponseError, match="20 tokens and the prompt has") as caught:
        await endpoint.complete(asking())
    assert caught.value.status == 400 and not caught.value.is_transient
    assert caught.value.body["error"]["code"] == "context_length_exceeded"
    assert endpoint.engine.requests == []


@pytest.mark.parametrize(
    ("stop", "content"),
    [
        (["rain"], "It "),
        ("ns", "It rai"),
        (["none of it", ". "], "It rains"),
        (["s. And", "ns"], "It rai"),
        (["snow"], "It rains. And more"),
    ],
)
async def test_a_stop_text_ends_the_sampling_and_is_not_in_the_content(stop, content):
    endpoint = policy("It rains. And more")
    answer = await endpoint.complete(asking(sampling={"stop": stop}))
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, "stop")
    found = content != "It rains. And more"
    assert text_of(choice["token_ids"]).startswith(content)
    assert endpoint.engine.num_sampled == len(choice["token_ids"])
    assert endpoint.engine.num_sampled < len("It rains. And more") if found else True


async def test_stop_token_ids_end_an_answer_and_say_nothing():
    endpoint = policy("It rains. And more")
    answer = await endpoint.complete(asking(stop_token_ids=[ord(".")]))
    choice = answer["choices"][0]
    assert choice["message"]["content"] == "It rains"
    assert text_of(choice["token_ids"]) == "It rains."


async def test_tool_choice_none_shows_no_tools_and_a_call_is_text():
    endpoint = policy(f"<think>\nhm\n</think>\n\nHere: {CALL}")
    answer = await endpoint.complete(asking(tools=[WEATHER], tool_choice="none"))
    message = answer["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": f"Here: {CALL}",
        "reasoning_content": "hm",
    }
    assert "get_weather" not in text_of(answer["prompt_token_ids"])
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {}}}),
        ("n", 2),
        ("logit_bias", {"5": 1}),
        ("frequency_penalty", 0.5),
        ("reasoning_effort", "low"),
        ("parallel_tool_calls", False),
        ("guided_regex", "a+"),
        ("top_logprobs", 21),
        ("temperature", 3),
        ("repetition_penalty", 0),
        ("stop", [""]),
        ("thinking", {"type": "hard"}),
        ("chat_template_kwargs", {"language": "de"}),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(name, value):
    endpoint = policy("x")
    with pytest.raises(EndpointResponseError, match=name) as caught:
        await endpoint.complete(asking(tools=[WEATHER], **{name: value}))
    assert caught.value.status == 400
    assert caught.value.body["error"]["param"].startswith(name)
    assert endpoint.engine.requests == []


async def test_top_logprobs_leave_out_what_could_not_be_sampled():
    answer = await policy("ab").complete(asking(logprobs=True, top_logprobs=2))
    entry = answer["choices"][0]["logprobs"]["content"][0]
    assert [top["token"] for top in entry["top_logprobs"]] == ["a"]


async def test_a_teacher_is_asked_for_the_logprobs_of_a_given_answer():
    endpoint = policy("x")
    said = {"role": "assistant", "content": "It rains."}
    fields = {"prompt_logprobs": 0, "add_generation_prompt": False}
    answer = await endpoint.complete(
        asking(QUESTION, said, sampling={"max_new_tokens": 1}, **fields)
    )
    prompt = answer["prompt_token_ids"]
    assert text_of(prompt).endswith("assistant\nIt rains." + END)
    assert answer["prompt_logprobs"][0] is None and len(answer["prompt_logprobs"]) == len(prompt)
    assert answer["prompt_logprobs"][-1][str(ord(END))]["logprob"] == -0.25


async def test_an_engine_that_died_is_unreachable_and_says_why():
    endpoint = policy("x")
    endpoint.engine.fails = PolicyEngineError("the engine has died: out of memory")
    with pytest.raises(EndpointUnreachableError, match="out of memory"):
        await endpoint.complete(asking())


async def test_cancelling_a_call_ends_its_sampling():
    endpoint = policy("a" * 500, pause_s=0.002)
    call = asyncio.create_task(endpoint.complete(asking()))
    await asyncio.to_thread(endpoint.engine.has_begun.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert endpoint.engine.was_cancelled.is_set() and endpoint.engine.num_sampled < 400


async def test_closing_it_closes_the_engine():
    endpoint = policy("x")
    await endpoint.close()
    assert endpoint.engine.is_closed
