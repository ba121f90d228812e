"""Responses and Chat Completions, translated both ways (SURFACE GROUP-13, GROUP-16)."""

import os

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from arkdev.errors import TranslationError
from arkdev.plugin.responses import (
    answer_of_response,
    chat_body_of_responses,
    chat_tool_choice,
    chat_tools,
    items_of_messages,
    messages_of_input,
    response_of_answer,
    responses_body_of_chat,
)
from tests.running import answer, tool_call, with_tokens

USER = {"role": "user", "content": "how is the weather?"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FLAT_TOOL = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}
NESTED_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": SCHEMA},
}
PICTURE = "data:image/png;base64,AA=="


def reasoning_item(text):
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}]}


def call_item(call_id="c1", name="f", arguments="{}"):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output_item(output="22", call_id="c1"):
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def chat_call(call_id="c1", name="f", arguments="{}"):
    return tool_call(name, arguments, id=call_id)


def assistant(content=None, **fields):
    return {"role": "assistant", "content": content, **fields}


def result(content="22", call_id="c1"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def response_of(chat_answer, **request):
    return response_of_answer(
        chat_answer, response_id="resp_1", previous_response_id=None, request=request
    )


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ("hi", [{"role": "user", "content": "hi"}]),
        ([USER], [USER]),
        ([{"type": "message", **USER, "id": "m1", "status": "completed"}], [USER]),
        ([{"role": "developer", "content": "d"}], [{"role": "developer", "content": "d"}]),
        # one text part is a text: text-only models take no list
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
            [{"role": "user", "content": "a"}],
        ),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "a"},
                        {"type": "input_image", "image_url": PICTURE, "detail": "low"},
                        {"type": "input_video", "video_url": "http://v", "fps": 1},
                    ],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
                        {"type": "video_url", "video_url": {"url": "http://v", "fps": 1}},
                    ],
                }
            ],
        ),
        (
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "a", "annotations": []},
                        {"type": "output_text", "text": "b", "annotations": []},
                    ],
                }
            ],
            [assistant("ab")],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [assistant(refusal="no")],
        ),
        # one turn: reasoning, text and calls are one message
        (
            [
                reasoning_item("hm"),
                {"role": "assistant", "content": "I look."},
                call_item(),
                call_item("c2"),
                output_item("1"),
                output_item("2", "c2"),
            ],
            [
                assistant(
                    "I look.",
                    reasoning_content="hm",
                    tool_calls=[chat_call(), chat_call("c2")],
                ),
                result("1"),
                result("2", "c2"),
            ],
        ),
        # two turns: a result ends the first
        (
            [call_item(), output_item(), call_item("c2"), output_item("23", "c2")],
            [
                assistant(tool_calls=[chat_call()]),
                result(),
                assistant(tool_calls=[chat_call("c2")]),
                result("23", "c2"),
            ],
        ),
        # what comes between a call and its result belongs to the call's message
        (
            [call_item(), reasoning_item("hm"), call_item("c2"), {**assistant("text")}],
            [assistant("text", reasoning_content="hm", tool_calls=[chat_call(), chat_call("c2")])],
        ),
        ([assistant("a"), assistant("b")], [assistant("a"), assistant("b")]),
        (
            [assistant("a"), reasoning_item("hm"), assistant("b")],
            [assistant("a"), assistant("b", reasoning_content="hm")],
        ),
        (
            [
                call_item(),
                output_item([{"type": "input_text", "text": "22"}]),
            ],
            [assistant(tool_calls=[chat_call()]), result()],
        ),
        (
            [{"type": "reasoning", "summary": [], "content": [{"text": "hm"}]}, assistant("a")],
            [assistant("a", reasoning_content="hm")],
        ),
        ([{"type": "reasoning", "summary": []}, USER], [USER]),
    ],
)
def test_input_items_become_messages(items, messages):
    assert messages_of_input(items) == messages


def test_instructions_are_the_first_system_message():
    assert messages_of_input("hi", instructions="be brief") == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


def test_output_objects_of_the_client_can_be_passed_back():
    chat = answer("I look.", tool_calls=[tool_call(id="c1")])
    chat["choices"][0]["message"]["reasoning_content"] = "hm"
    response = Response.model_validate(response_of(chat))
    assert messages_of_input([USER, *response.output, output_item()]) == [
        USER,
        assistant("I look.", reasoning_content="hm", tool_calls=[tool_call(id="c1")]),
        result(),
    ]


@pytest.mark.parametrize(
    ("items", "param", "says"),
    [
        (None, "input", "neither a text nor a list"),
        ({"role": "user"}, "input", "neither a text nor a list"),
        (["hi"], "input[0]", "not an object"),
        ([{"type": "item_reference", "id": "m1"}], "input[0]", "would have to remember"),
        ([USER, {"id": "m1"}], "input[1]", "would have to remember"),
        ([{"type": "web_search_call", "id": "w"}], "input[0]", "web_search_call"),
        ([result()], "input[0]", "role 'tool'"),
        ([assistant(tool_calls=[chat_call()])], "input[0]", "with tool_calls"),
        ([{"role": "boss", "content": "x"}], "input[0].role", "boss"),
        ([{"role": "user", "content": None}], "input[0].content", "neither a text nor a list"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
            "input[0].content[0]",
            "t",
        ),
        (
            [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
            "input[0].content[0]",
            "input_file",
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
            "input[0].content[0]",
            "uploaded files",
        ),
        ([{"type": "function_call", "name": "f", "arguments": ""}], "input[0].call_id", "missing"),
        ([{**call_item(), "arguments": {}}], "input[0].arguments", "not a text"),
        ([output_item({"t": 22})], "input[0].output", "neither a text nor a list"),
        (
            [{"type": "reasoning", "summary": [], "encrypted_content": "x"}],
            "input[0]",
            "encrypted",
        ),
    ],
)
def test_what_has_no_chat_form_is_refused_by_place_and_name(items, param, says):
    with pytest.raises(TranslationError) as caught:
        messages_of_input(items)
    assert caught.value.param == param
    assert says in caught.value.message


def test_function_tools_of_responses_have_no_nested_function():
    assert chat_tools([FLAT_TOOL]) == [NESTED_TOOL]
    with pytest.raises(TranslationError, match="nested `function`") as caught:
        chat_tools([NESTED_TOOL])
    assert '"name"' in caught.value.hint
    assert responses_body_of_chat({"messages": [USER], "tools": [NESTED_TOOL]})["tools"] == [
        FLAT_TOOL
    ]


@pytest.mark.parametrize("kind", ["web_search", "file_search", "mcp", "custom", None])
def test_tools_built_into_a_server_are_refused_by_type(kind):
    with pytest.raises(TranslationError, match=str(kind)) as caught:
        chat_tools([FLAT_TOOL, {"type": kind, "name": "x"}])
    assert caught.value.param == "tools[1]"


def test_tool_choice_is_translated():
    named = {"type": "function", "name": "f"}
    nested = {"type": "function", "function": {"name": "f"}}
    assert [chat_tool_choice(word) for word in ("auto", "required")] == ["auto", "required"]
    assert chat_tool_choice(named) == nested
    sent = responses_body_of_chat({"messages": [USER], "tool_choice": nested})
    assert sent["tool_choice"] == named
    for wrong in ({"type": "web_search"}, nested):
        with pytest.raises(TranslationError, match="tool_choice"):
            chat_tool_choice(wrong)


def test_a_request_is_translated_as_a_whole():
    text_format = {"type": "json_schema", "name": "out", "schema": SCHEMA, "strict": True}
    body = chat_body_of_responses(
        {
            "model": "m",
            "input": "hi",
            "instructions": "be brief",
            "tools": [FLAT_TOOL],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "text": {"format": text_format},
            "reasoning": {"effort": "low", "summary": "auto"},
            "max_output_tokens": 9,
            "temperature": 0.5,
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
            "truncation": "disabled",
            "background": False,
            "metadata": {"a": "b"},
            "store": True,
            "stream": True,
            "user": None,
            "chat_template_kwargs": {"a": 1},
        }
    )
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "tools": [NESTED_TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "out", "schema": SCHEMA, "strict": True},
        },
        "reasoning_effort": "low",
        "max_tokens": 9,
        "temperature": 0.5,
        "logprobs": True,
        "chat_template_kwargs": {"a": 1},
    }


def test_a_history_goes_between_the_instructions_and_the_new_input():
    body = chat_body_of_responses(
        {"input": "and now?", "instructions": "be brief", "previous_response_id": "resp_1"},
        history=[USER, assistant("fine")],
    )
    assert [message["content"] for message in body["messages"]] == [
        "be brief",
        USER["content"],
        "fine",
        "and now?",
    ]
    assert "previous_response_id" not in body


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", "conv_1"),
        ("prompt", {"id": "p"}),
        ("background", True),
        ("truncation", "auto"),
        ("instructions", ["x"]),
        ("text", "json"),
        ("input", None),
    ],
)
def test_parameters_without_a_chat_form_are_refused_by_name(name, value):
    with pytest.raises(TranslationError) as caught:
        chat_body_of_responses({"input": "hi", name: value})
    assert caught.value.param == name and name in caught.value.message


def test_an_answer_is_a_response_of_the_openai_library():
    chat = answer("22 degrees", system_fingerprint=None)
    chat["choices"][0]["message"]["reasoning_content"] = "hm"
    request = {"tools": [FLAT_TOOL], "metadata": {"a": "b"}, "instructions": "be brief"}
    made = Response.model_validate(response_of(chat, **request))
    assert made.output_text == "22 degrees" and made.status == "completed"
    assert [item.type for item in made.output] == ["reasoning", "message"]
    assert made.output[0].summary[0].text == "hm"
    assert made.metadata == {"a": "b"} and made.instructions == "be brief"
    assert (made.usage.input_tokens, made.usage.output_tokens) == (5, 2)


def test_an_answer_is_a_response_of_the_ark_library():
    if not os.environ.get("CI"):
        pytest.importorskip("volcenginesdkarkruntime")
    from volcenginesdkarkruntime.types.responses import Response as ArkResponse

    chat = answer(None, tool_calls=[tool_call(id="c1"), tool_call("g", id="c2")])
    chat["choices"][0]["message"]["reasoning_content"] = "hm"
    made = ArkResponse.model_validate(response_of(chat, tools=[FLAT_TOOL], tool_choice="auto"))
    assert [item.type for item in made.output] == ["reasoning", "function_call", "function_call"]
    assert [item.call_id for item in made.output[1:]] == ["c1", "c2"]
    assert ArkResponse.model_validate(response_of(answer("text"))).usage.total_tokens == 7


@pytest.mark.parametrize(
    ("finish_reason", "status", "reason"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_the_finish_reason_is_the_status(finish_reason, status, reason):
    made = Response.model_validate(response_of(answer("a", finish_reason=finish_reason)))
    assert made.status == status
    assert (made.incomplete_details and made.incomplete_details.reason) == reason
    assert answer_of_response(made.model_dump())["choices"][0]["finish_reason"] == finish_reason


def test_unknown_usage_stays_unknown():
    for usage in (None, ..., {"prompt_tokens": 5, "completion_tokens": None}):
        made = response_of(answer(usage=usage))
        assert made["usage"] is None
        assert answer_of_response(made)["usage"] is None


def test_usage_details_are_translated_both_ways():
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    made = Response.model_validate(response_of(answer(usage=usage)))
    assert made.usage.input_tokens_details.cached_tokens == 3
    assert made.usage.output_tokens_details.reasoning_tokens == 2
    back = answer_of_response(made.model_dump())["usage"]
    assert back["prompt_tokens_details"]["cached_tokens"] == 3


def test_token_evidence_is_kept_in_both_directions():
    chat = with_tokens([1, 2], [3, 4], [-0.1, -0.2])
    made = response_of(chat)
    assert Response.model_validate(made).token_ids == [3, 4]
    back = answer_of_response(made)
    assert back["prompt_token_ids"] == [1, 2]
    assert back["choices"][0]["token_ids"] == [3, 4]
    assert back["choices"][0]["logprobs"] == chat["choices"][0]["logprobs"]


def test_logprobs_stand_in_the_text_part_when_the_request_includes_them():
    chat = answer("hi")
    token = {"token": "hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    chat["choices"][0]["logprobs"] = {"content": [token]}
    made = Response.model_validate(response_of(chat, include=["message.output_text.logprobs"]))
    assert made.output[0].content[0].logprobs[0].logprob == -0.5


CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
        ],
    },
    assistant("I look.", reasoning_content="hm", tool_calls=[chat_call(), chat_call("c2")]),
    result("1"),
    result("2", "c2"),
    assistant(tool_calls=[chat_call("c3", arguments='{"a": "北京"}')]),
    result("3", "c3"),
    assistant(refusal="no"),
    {"role": "user", "content": "why?"},
    assistant("because"),
]


def test_a_history_survives_the_way_there_and_back():
    assert messages_of_input(items_of_messages(CONVERSATION)) == CONVERSATION


@pytest.mark.parametrize(
    "message",
    [
        assistant("text"),
        assistant("", reasoning_content="hm"),
        assistant(tool_calls=[chat_call(), chat_call("c2", arguments="not json")]),
        assistant("both", reasoning_content="hm", tool_calls=[chat_call()]),
        assistant(refusal="no"),
    ],
)
def test_an_answer_survives_the_way_there_and_back(message):
    chat = answer()
    chat["choices"][0].update(
        message=message, finish_reason="tool_calls" if "tool_calls" in message else "stop"
    )
    back = answer_of_response(response_of(chat))
    assert back["choices"] == chat["choices"]
    ChatCompletion.model_validate(back)


def test_a_call_without_an_id_gets_one():
    made = response_of(answer(None, tool_calls=[tool_call(id=None)]))
    assert made["output"][0]["call_id"]


def test_an_answer_without_text_or_calls_has_an_empty_text():
    assert Response.model_validate(response_of(answer(None))).output_text == ""


def test_a_chat_body_becomes_a_request_that_needs_no_store():
    sent = responses_body_of_chat(
        {
            "model": "m",
            "messages": CONVERSATION,
            "tools": [NESTED_TOOL],
            "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": {}}},
            "verbosity": "low",
            "reasoning_effort": "high",
            "max_completion_tokens": 7,
            "logprobs": True,
            "top_logprobs": 2,
            "n": 1,
            "stream": False,
            "user": None,
        }
    )
    assert sent.pop("input") == items_of_messages(CONVERSATION)
    assert sent == {
        "model": "m",
        "store": False,
        "tools": [FLAT_TOOL],
        "text": {"format": {"type": "json_schema", "name": "o", "schema": {}}, "verbosity": "low"},
        "reasoning": {"effort": "high"},
        "max_output_tokens": 7,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [USER], "n": 2}, "n"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ],
)
def test_what_has_no_responses_form_is_refused_by_place(body, param):
    with pytest.raises(TranslationError) as caught:
        responses_body_of_chat(body)
    assert caught.value.param == param


def test_output_of_a_server_s_own_tools_is_refused():
    with pytest.raises(TranslationError, match="web_search_call"):
        answer_of_response({"output": [{"type": "web_search_call"}]})
