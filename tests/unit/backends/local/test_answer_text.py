"""Reading reasoning and tool calls out of an answer; nothing is mended."""

import json

import pytest

from arkdev.backends.local.answer_text import (
    CallText,
    read_call,
    split_bare_call,
    split_calls,
    split_reasoning,
    tool_call_documents,
)

CALL = '<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "has_begun", "reasoning", "rest"),
    [
        ("hello", False, None, "hello"),
        ("<think>\nhm\n</think>\n\nhello", False, "hm", "hello"),
        ("\n<think>hm</think>hello", False, "hm", "hello"),
        ("hm\n</think>\n\nhello", True, "hm", "hello"),
        ("<think>\nhm", False, "hm", ""),
        ("hm", True, "hm", ""),
        ("<think>\n\n</think>\n\nhello", False, "", "hello"),
        ("I say <think> and </think>", False, None, "I say <think> and </think>"),
    ],
)
def test_reasoning_stands_at_the_beginning(text, has_begun, reasoning, rest):
    assert split_reasoning(text, has_begun=has_begun) == (reasoning, rest)


def test_a_text_without_calls_stays_as_it_is():
    assert split_calls(" two\n\nlines \n") == (" two\n\nlines \n", [])


def test_calls_are_read_in_order_and_the_text_beside_them_is_the_content():
    text = f"Let me look.\n{CALL}\n{CALL.replace('f', 'g')}\nThere."
    content, calls = split_calls(text)
    assert content == "Let me look.\nThere."
    assert calls == [CallText("f", '{"a":1}'), CallText("g", '{"a":1}')]


def test_arguments_are_the_text_that_was_sampled():
    call = read_call('{"arguments" : {"n": 1e2, "n": "\\u00e9 }"} , "name":"f","x":[1]}')
    assert call == CallText("f", '{"n": 1e2, "n": "\\u00e9 }"}')


@pytest.mark.parametrize(
    "written",
    [
        '{"name": "f", "arguments": {"a": 1}',
        '{"name": "f", "arguments": {a: 1}}',
        '{"name": "f", "arguments": {"a": 1}}}',
        '"name": "f"',
    ],
)
def test_broken_json_stays_broken_in_the_arguments(written):
    call = read_call(written)
    assert call == CallText("f", written)
    with pytest.raises(ValueError):
        json.loads(call.arguments)


@pytest.mark.parametrize("written", ['{"name": "f", "arguments": "{}"}', '{"name": "f"}'])
def test_arguments_that_are_no_object_are_handed_on(written):
    call = read_call(written)
    assert call.name == "f"
    assert call.arguments in ('"{}"', "")


@pytest.mark.parametrize("written", ["f(1)", '{"name": 3}', '["f"]', '{"name": ""}', ""])
def test_a_call_without_a_name_stays_in_sight(written):
    text = f"Look: <tool_call>\n{written}\n</tool_call>"
    assert split_calls(text) == (text, [])


def test_a_call_that_was_cut_is_not_mended():
    _, calls = split_calls('<tool_call>\n{"name": "f", "arguments": {"a"')
    assert calls == [CallText("f", '{"name": "f", "arguments": {"a"')]
    assert split_calls('<tool_call>\n{"na') == ('<tool_call>\n{"na', [])


@pytest.mark.parametrize("again", ['{"a": ', "["])
def test_a_policy_that_says_the_same_again_and_again_is_read(again):
    deep = again * 50_000
    call = read_call(f'{{"name": "f", "arguments": {deep}')
    assert call.name == "f" and call.arguments.endswith(deep)
    assert split_calls(f"<tool_call>{deep}") == (f"<tool_call>{deep}", [])
    assert split_bare_call(deep) == (deep, [])


def test_a_name_with_half_a_character_is_none():
    written = r'{"name": "\ud83d", "parameters": {}}'
    assert read_call(written) is None
    assert split_bare_call(written) == (written, [])


def test_a_good_call_beside_a_bad_one_is_read():
    content, calls = split_calls(f"<tool_call>oh</tool_call>\n{CALL}")
    assert (content, calls) == ("<tool_call>oh</tool_call>", [CallText("f", '{"a":1}')])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "f", "parameters": {"a":1}}', ("", [CallText("f", '{"a":1}')])),
        ('<|python_tag|>{"name": "f", "parameters": {}}', ("", [CallText("f", "{}")])),
        ('{"a": 1}', ('{"a": 1}', [])),
        ('{"name": "Bo"}', ('{"name": "Bo"}', [])),
        ("fine", ("fine", [])),
    ],
)
def test_a_call_without_marks_is_a_whole_answer(text, expected):
    assert split_bare_call(text) == expected


def test_ids_of_calls_differ_between_turns_and_repeat_in_a_repeated_run():
    def ids(prompt, sampled):
        documents = tool_call_documents(
            [CallText("f", "{}")] * 2, token_ids=sampled, prompt_token_ids=prompt
        )
        return [document["id"] for document in documents]

    assert ids([1], [2]) == ids((1,), (2,))
    assert len({*ids([1], [2]), *ids([1, 2], [2])}) == 4
