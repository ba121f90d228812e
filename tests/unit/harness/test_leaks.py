"""Whether an answer or a context reached the policy's prompt, and what is no leak."""

import pytest

from arkdev.harness.contexts import InsertedContext
from arkdev.harness.leaks import find_leaks
from arkdev.sessions.sent import SentBeside
from tests.unit.harness.test_contexts import trajectory

LONG = "the treaty of Westphalia"
WIDE = "威斯特伐利亚和约"
ASK = {"role": "user", "content": "Which treaty ended the war?"}
ANSWER = {"role": "assistant", "content": "I do not know"}


def leaks(*messages, extra=None, contexts=(), line=(ASK,), turns=1):
    record = trajectory(messages=messages, turns=turns)
    sample = {"messages": list(line), "extra": extra or {"answer": LONG}}
    return [
        (leak.what, leak.message, leak.role)
        for leak in find_leaks(record, sample=sample, contexts=contexts)
    ]


def user(text):
    return {"role": "user", "content": text}


def test_an_answer_that_the_plugin_put_into_a_prompt_is_found_where_it_stands():
    hint = {"role": "system", "content": "Hint:  THE TREATY\nof westphalia."}
    assert leaks(hint, ASK, ANSWER) == [("extra.answer", 0, "system")]


def test_text_in_parts_and_in_arguments_of_calls_is_searched():
    parts = {"role": "user", "content": [{"type": "text", "text": f"it is {LONG}"}]}
    assert leaks(ASK, parts, ANSWER) == [("extra.answer", 1, "user")]


@pytest.mark.parametrize("key", ["Answer", "ground_truth", "reference_answer", "rubric"])
def test_the_kin_of_answer_are_searched_for_too(key):
    assert leaks(user(LONG), ANSWER, extra={key: [LONG, "x"]}) == [(f"extra.{key}", 0, "user")]


def test_each_thing_is_told_once():
    assert len(leaks(user(f"a {LONG}"), user(f"b {LONG}"), ANSWER)) == 1


@pytest.mark.parametrize("short", ["yes", "3", "Paris", "21", 3.5, True, None, "北京"])
def test_short_answers_are_not_searched_for(short):
    assert leaks(user(f"{short} yes 3 Paris 21"), ANSWER, extra={"answer": short}) == []


def test_six_wide_characters_are_long_enough():
    assert leaks(user(f"是{WIDE}"), ANSWER, extra={"answer": WIDE})


def test_options_of_the_dataset_line_are_no_leak():
    options = user(f"Which one? A) {LONG} B) the peace of Augsburg")
    assert leaks(options, ANSWER, line=(options,)) == []
    again = user(f"Choose: {LONG}, or another")
    assert leaks(options, again, ANSWER, line=(options,)) == []


def test_what_a_tool_found_is_no_leak():
    found = {"role": "tool", "content": f"It was {LONG}."}
    assert leaks(ASK, {"role": "assistant", "content": "search"}, found, ANSWER, turns=2) == []


def test_what_the_policy_said_itself_is_no_leak():
    said = {"role": "assistant", "content": f"It was {LONG}"}
    assert leaks(ASK, said, user(f"Are you sure of {LONG}?"), ANSWER, turns=2) == []


def test_a_context_is_hidden_from_tool_messages_too():
    critic = InsertedContext("critic", ((0, user(f"reference answer: {LONG}")),))
    found = {"role": "tool", "content": f"reference answer: {LONG}"}
    told = leaks(
        ASK, {"role": "assistant", "content": "x"}, found, ANSWER, turns=2, contexts=[critic]
    )
    assert told == [("critic_context", 2, "tool")]


def test_what_stays_hidden_is_no_leak():
    critic = InsertedContext("critic", ((0, user(f"reference answer: {LONG}")),))
    assert leaks(ASK, ANSWER, contexts=[critic]) == []


def test_a_message_that_was_taken_out_again_is_searched_too():
    hint = user(f"it is {LONG}")
    record = trajectory(messages=(ASK, ANSWER), turns=1)
    sample = {"messages": [ASK], "extra": {"answer": LONG}}
    (leak,) = find_leaks(record, sample=sample, beside=SentBeside((hint,)))
    assert (leak.what, leak.message, leak.role) == ("extra.answer", None, "user")


def test_what_the_policy_said_beside_its_trajectory_is_no_leak():
    said = {"role": "assistant", "content": f"perhaps {LONG}?"}
    record = trajectory(messages=(ASK, ANSWER), turns=1)
    sample = {"messages": [ASK], "extra": {"answer": LONG}}
    again = user(f"you said {LONG}")
    assert find_leaks(record, sample=sample, beside=SentBeside((again,), (said,))) == []


def test_what_a_tool_is_described_with_is_a_part_of_the_prompt():
    tool = {"type": "function", "function": {"name": "f", "description": f"say {LONG}"}}
    record = trajectory(messages=(ASK, ANSWER), turns=1)
    sample = {"messages": [ASK], "extra": {"answer": LONG}}
    offered = SentBeside(tools=(tool,))
    (leak,) = find_leaks(record, sample=sample, beside=offered)
    assert (leak.what, leak.message, leak.role) == ("extra.answer", None, "tools")
    assert find_leaks(record, sample={**sample, "tools": [tool]}, beside=offered) == []
    choice = {"function": {"parameters": {"properties": {"x": {"enum": [LONG, "another"]}}}}}
    assert find_leaks(record, sample=sample, beside=SentBeside(tools=(choice,))) == []


def test_a_thought_that_the_plugin_puts_into_the_mouth_of_the_policy_is_searched():
    thought = {"role": "assistant", "content": "", "reasoning_content": f"so it is {LONG}"}
    assert leaks(ASK, thought, user("go on"), ANSWER) == [("extra.answer", 1, "assistant")]


def test_an_answer_inside_of_an_object_is_searched_for():
    nested = {"answer": {"text": LONG, "aliases": ["x"]}, "reference": [{"value": "no such text"}]}
    assert leaks(user(f"it is {LONG}"), ANSWER, extra=nested) == [("extra.answer", 0, "user")]
