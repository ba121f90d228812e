"""A server's own habits, brought into the standard form."""

from __future__ import annotations

from typing import Any

import pytest

from arkdev.endpoints.normal_form import normalize_completion


def normalized(message: dict[str, Any], **choice: Any) -> tuple[dict[str, Any], list[str]]:
    """(the message, what was mended) of a completion with one choice."""
    completion = {
        "id": "r1",
        "created": 1,
        "choices": [{"message": message, "finish_reason": "stop", **choice}],
    }
    mended = normalize_completion(completion, model="m1")
    return completion["choices"][0]["message"], mended


def call(call_id: str | None = "c1", *, arguments: Any = "{}") -> dict[str, Any]:
    made = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return made if call_id is None else {"id": call_id, **made}


def test_a_standard_answer_stays_as_it_is() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call()], "refusal": None}
    assert normalized(dict(message)) == (message, [])


def test_text_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "你"}, {"type": "output_text", "text": "好"}, "!"]
    message, mended = normalized({"role": "assistant", "content": parts})
    assert message["content"] == "你好!"
    assert mended == ["content is a list of parts"]


def test_thinking_parts_become_the_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    message, _ = normalized({"role": "assistant", "content": [thinking, "4"]})
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "hm"}


def test_parts_that_are_no_text_stay_parts() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    message, mended = normalized({"role": "assistant", "content": parts})
    assert message["content"] == parts and mended == []


def test_reasoning_under_its_other_name_is_read_and_kept() -> None:
    message, mended = normalized({"role": "assistant", "content": "4", "reasoning": "2 and 2"})
    assert message["reasoning_content"] == "2 and 2" and message["reasoning"] == "2 and 2"
    assert mended == ["reasoning_content is called reasoning"]


@pytest.mark.parametrize("ids", [(None, None), ("", ""), ("c1", "c1"), ("call", None)])
def test_tool_calls_have_ids_of_their_own(ids: tuple[str | None, str | None]) -> None:
    message, mended = normalized(
        {"role": "assistant", "content": None, "tool_calls": [call(call_id) for call_id in ids]}
    )
    given = [made["id"] for made in message["tool_calls"]]
    assert all(given) and len(set(given)) == 2 and mended
    assert given[0] == ids[0] or not ids[0]


def test_arguments_are_a_text() -> None:
    calls = [call(arguments={"city": "北京"}), call("c2", arguments=None)]
    message, mended = normalized({"role": "assistant", "content": None, "tool_calls": calls})
    assert [made["function"]["arguments"] for made in message["tool_calls"]] == [
        '{"city": "北京"}',
        "{}",
    ]
    assert len(mended) == 2


@pytest.mark.parametrize("text", ['{"Query": "a', '"{\\"a\\": 1}"', ""])
def test_an_argument_text_is_never_changed(text: str) -> None:
    message, mended = normalized(
        {"role": "assistant", "content": None, "tool_calls": [call(arguments=text)]}
    )
    assert message["tool_calls"][0]["function"]["arguments"] == text and mended == []


def test_missing_fields_are_there_and_unknown_ones_are_null() -> None:
    completion: dict[str, Any] = {"created": 1.5, "choices": [{"message": {}}]}
    mended = normalize_completion(completion, model="m1")
    assert completion["id"] and completion["created"] == 1 and completion["model"] == "m1"
    assert completion["object"] == "chat.completion" and "usage" not in completion
    assert completion["choices"] == [
        {"index": 0, "finish_reason": None, "message": {"role": "assistant", "content": None}}
    ]
    assert mended == ["no id", "created is not a whole number", "no finish_reason", "no role"]


def test_odd_tool_calls_do_no_harm() -> None:
    for odd in (None, {}, [None, "x"], [{"id": "c1", "function": None}]):
        message, _ = normalized({"role": "assistant", "content": "a", "tool_calls": odd})
        assert message["content"] == "a"
