"""Streams put together into one completion."""

import json

import pytest

from arkdev.endpoints.event_stream import EventStreamError, assemble


def events(*parts, end="data: [DONE]\n\n"):
    chunks = [{"choices": [part]} for part in parts]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end


def message(text):
    return assemble(text)["choices"][0]["message"]


def call_part(arguments="", *, name=None, **fields):
    return {
        "delta": {"tool_calls": [{**fields, "function": {"name": name, "arguments": arguments}}]}
    }


def test_text_and_reasoning_are_joined():
    text = events(
        {"delta": {"role": "assistant", "content": "", "reasoning_content": "hm"}},
        {"delta": {"content": "你"}},
        {"delta": {"content": "好"}, "finish_reason": "stop"},
    )
    assert message(text) == {"role": "assistant", "content": "你好", "reasoning_content": "hm"}


@pytest.mark.parametrize(
    "parts",
    [
        # ids once, then empty, never an index
        [
            call_part(name="a", id="1"),
            call_part("{}", id=""),
            call_part(name="b", id="2"),
            call_part("[]", id=""),
        ],
        # index on every chunk, ids once, interleaved
        [
            call_part(name="a", id="1", index=0),
            call_part(name="b", id="2", index=1),
            call_part("{}", index=0),
            call_part("[]", index=1),
        ],
        # one index for all, a new id for each call
        [
            call_part("{}", name="a", id="1", index=0),
            call_part("[]", name="b", id="2", index=0),
        ],
        # the id repeated on every chunk
        [
            call_part(name="a", id="1"),
            call_part(name="b", id="2"),
            call_part("{}", id="1"),
            call_part("[]", id="2"),
        ],
    ],
)
def test_two_calls_are_told_apart(parts):
    calls = message(events(*parts))["tool_calls"]
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls] == [
        ("1", "a", "{}"),
        ("2", "b", "[]"),
    ]


def test_logprobs_token_ids_and_the_last_usage_are_kept():
    first = {
        "delta": {"content": "a"},
        "logprobs": {"content": [{"logprob": -1}]},
        "token_ids": [5],
    }
    second = {
        "delta": {"content": "b"},
        "logprobs": {"content": [{"logprob": -2}]},
        "token_ids": [6],
    }
    usage = 'data: {"choices": [], "usage": {"total_tokens": 9}}\n\ndata: [DONE]\n\n'
    answer = assemble(events(first, second, end=usage))
    choice = answer["choices"][0]
    assert choice["token_ids"] == [5, 6]
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [-1, -2]
    assert answer["usage"] == {"total_tokens": 9}


def test_comments_line_ends_and_a_missing_last_blank_line_do_not_matter():
    text = ': ping\r\n\r\ndata:{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}'
    assert message(text)["content"] == "a"


def test_a_stream_cut_before_its_end_is_refused():
    with pytest.raises(EventStreamError, match="ended before"):
        assemble(events({"delta": {"content": "a"}}, end=""))


@pytest.mark.parametrize("text", ["", "data: [DONE]\n\n", "data: [1]\n\n", "data: {\n\n"])
def test_a_stream_without_an_answer_is_refused(text):
    with pytest.raises(EventStreamError):
        assemble(text)


def test_content_parts_and_an_object_as_arguments_are_joined():
    parts = message(
        events(
            {"delta": {"content": [{"type": "text", "text": "a"}]}},
            {"delta": {"content": "b"}},
            call_part({"city": "北京"}, name="f", id="1"),
        )
    )
    assert [part["text"] for part in parts["content"]] == ["a", "b"]
    assert parts["tool_calls"][0]["function"]["arguments"] == '{"city": "北京"}'


def test_one_event_with_the_whole_message_is_the_answer():
    whole = {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    assert message(events(whole)) == {"role": "assistant", "content": "hello"}


def test_reasoning_under_its_other_name_is_joined():
    text = events({"delta": {"reasoning": "a"}}, {"delta": {"reasoning": "b"}})
    assert message(text)["reasoning"] == "ab"


def test_a_choice_that_is_no_object_is_refused():
    with pytest.raises(EventStreamError, match="choice"):
        assemble(events("text"))
