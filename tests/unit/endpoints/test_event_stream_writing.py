"""Complete answers as streams of events."""

import json

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from arkdev.endpoints.event_stream import (
    DONE,
    EventStreamError,
    assemble,
    chat_chunks,
    event_lines,
)
from arkdev.endpoints.response_events import assemble_response, response_events
from arkdev.plugin.responses import response_of_answer
from tests.running import answer, tool_call, with_tokens

TWO_CALLS = [tool_call(id="c1", arguments='{"city": "北京"}'), tool_call("g", id="c2")]


def thoughtful(**fields):
    body = answer("It is 22 degrees in the city.", **fields)
    body["choices"][0]["message"]["reasoning_content"] = "The tool said 22."
    return body


def refused():
    body = answer(None)
    body["choices"][0]["message"]["refusal"] = "I will not."
    return body


def with_evidence():
    body = with_tokens([1, 2], [3, 4], [-0.1, -0.2])
    for token in body["choices"][0]["logprobs"]["content"]:
        token.update(token="x", bytes=[120], top_logprobs=[])
    return body


ANSWERS = [
    answer("a"),
    answer(""),
    answer(None, tool_calls=TWO_CALLS),
    thoughtful(tool_calls=TWO_CALLS),
    thoughtful(finish_reason="length"),
    refused(),
    with_evidence(),
]


def response_of(body):
    return response_of_answer(body, response_id="resp_1", previous_response_id=None, request={})


@pytest.mark.parametrize("body", ANSWERS)
def test_a_chat_stream_put_together_is_the_answer(body):
    chunks = list(chat_chunks(body, include_usage=True))
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True)
    assert assemble("".join([*event_lines(chunks), DONE])) == body


def test_text_comes_in_a_few_pieces():
    chunks = list(chat_chunks(thoughtful()))
    said = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert 2 <= len([piece for piece in said if piece]) <= 4
    assert "".join(said) == "It is 22 degrees in the city."


def test_usage_comes_last_and_only_when_asked_for():
    *rest, last = chat_chunks(answer("a"), include_usage=True)
    assert last["choices"] == [] and last["usage"]["total_tokens"] == 7
    for chunk in (*rest, *chat_chunks(answer("a")), *chat_chunks(answer(usage=None))):
        assert chunk["choices"] and "usage" not in chunk


@pytest.mark.parametrize("body", ANSWERS)
def test_a_response_stream_ends_with_the_response(body):
    response = response_of(body)
    events = list(response_events(response))
    adapter = TypeAdapter(ResponseStreamEvent)
    for event in events:
        assert adapter.validate_python(event).type == event["type"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == f"response.{response['status']}"
    assert assemble_response("".join(event_lines(events))) == response


def test_the_deltas_of_a_response_make_its_items():
    response = response_of(thoughtful(tool_calls=TWO_CALLS))
    events = list(response_events(response))
    deltas = {}
    for event in events:
        if event["type"].endswith(".delta"):
            place = (event["output_index"], event["type"])
            deltas[place] = deltas.get(place, "") + event["delta"]
    assert list(deltas.values()) == [
        "The tool said 22.",
        "It is 22 degrees in the city.",
        '{"city": "北京"}',
        "{}",
    ]
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == response["output"]
    added = [e["item"] for e in events if e["type"] == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert added[1]["content"] == [] and added[2]["arguments"] == ""


def test_events_of_responses_are_named_and_chunks_are_not():
    assert next(event_lines([{"type": "a", "b": 1}])) == 'event: a\ndata: {"type": "a", "b": 1}\n\n'
    assert next(event_lines([{"b": 1}])) == 'data: {"b": 1}\n\n'


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"message": "overloaded"}},
        {"type": "error", "code": "ServerOverloaded", "message": "overloaded"},
    ],
)
def test_an_error_event_of_a_responses_stream_is_an_error_body(event):
    assembled = assemble_response(f"data: {json.dumps(event)}\n\n")
    assert assembled["error"]["message"] == "overloaded"


@pytest.mark.parametrize("text", ["", "data: {\n\n", 'data: {"type": "response.created"}\n\n'])
def test_a_responses_stream_without_an_end_is_refused(text):
    with pytest.raises(EventStreamError):
        assemble_response(text)
