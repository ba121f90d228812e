"""One conversation: what the last call saw, and its answer."""

import pytest

from arkdev.plugin.conversation import Conversation, canonical, clean_message, continues
from arkdev.plugin.plain import plain_messages
from arkdev.types import ChatCompletionMessage
from tests.running import answer, tool_call

USER = {"role": "user", "content": "q"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "q"}]}
CALL = {"role": "assistant", "content": None, "tool_calls": [tool_call()]}
TEXT = {"role": "assistant", "content": "a"}

SAME = [
    (USER, PARTS),
    (TEXT, {**TEXT, "tool_calls": None, "refusal": None, "reasoning_content": ""}),
    (TEXT, {**TEXT, "tool_calls": []}),
    (CALL, {"role": "assistant", "tool_calls": [tool_call()]}),
    (CALL, {**CALL, "content": ""}),
    (CALL, {**CALL, "tool_calls": [{**tool_call(), "index": None}]}),
]
DIFFERENT = [
    (USER, {**USER, "content": "Q"}),
    (USER, {**USER, "role": "system"}),
    (TEXT, {**TEXT, "reasoning_content": "because"}),
    (CALL, {**CALL, "tool_calls": [tool_call(arguments='{"a": 1}')]}),
    (CALL, {**CALL, "tool_calls": [tool_call(id="other")]}),
    (PARTS, {"role": "user", "content": [*PARTS["content"], {"type": "text", "text": "more"}]}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_messages_that_mean_the_same_are_equal(one, other):
    assert canonical(one) == canonical(other)
    assert continues([one], [other, TEXT])


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_messages_that_differ_are_not(one, other):
    assert canonical(one) != canonical(other)
    assert not continues([one], [other, TEXT])


def test_a_shorter_history_does_not_continue():
    assert continues([USER], [USER])
    assert not continues([USER, TEXT], [USER])


def test_the_trajectory_is_the_context_of_the_last_call():
    conversation = Conversation()
    conversation.add_call([USER], answer("a"))
    conversation.add_call([{**USER, "content": "other"}], answer("b", finish_reason="length"))
    assert [message.content for message in conversation.messages] == ["other", "b"]
    assert (conversation.finish_reason, conversation.num_calls) == ("length", 2)
    assert conversation.was_rewritten


def test_a_history_that_grows_is_not_rewritten():
    conversation = Conversation()
    conversation.set_history([USER])
    conversation.add_call([USER], answer("a"))
    conversation.add_call([PARTS, TEXT, {**USER, "content": "and?"}], answer("b"))
    assert not conversation.was_rewritten
    assert len(conversation.messages) == 4


@pytest.mark.parametrize("first", [0, 1])
def test_of_overlapping_calls_the_one_made_last_counts(first):
    conversation = Conversation()
    calls = [([{**USER, "content": f"q{order}"}], answer(f"a{order}"), order) for order in (0, 1)]
    for messages, body, order in (calls[first], calls[1 - first]):
        conversation.add_call(messages, body, order=order)
    assert [message.content for message in conversation.messages] == ["q1", "a1"]
    assert (conversation.num_calls, conversation.usage.total_tokens) == (2, 14)


def test_a_count_that_a_call_lacked_is_unknown_and_not_zero():
    conversation = Conversation()
    assert conversation.usage is None
    conversation.add_call([USER], answer())
    conversation.add_call([USER], answer(usage={"prompt_tokens": 3}))
    assert conversation.usage.model_dump() == {
        "prompt_tokens": 8,
        "completion_tokens": None,
        "total_tokens": None,
    }
    for usage in (None, ...):
        unknown = Conversation()
        unknown.add_call([USER], answer(usage=usage))
        assert set(unknown.usage.model_dump().values()) == {None}


def test_nulls_are_dropped_but_content_is_kept():
    dumped = ChatCompletionMessage(**CALL).model_dump()
    assert clean_message({**dumped, "refusal": None, "tool_call_id": None}) == CALL
    assert clean_message({"role": "assistant", "reasoning_content": "r"}) == {
        "role": "assistant",
        "reasoning_content": "r",
    }


def test_recorded_messages_are_out_of_the_plugins_reach():
    mine = [{"role": "user", "content": [{"type": "text", "text": "q"}]}]
    conversation = Conversation()
    conversation.set_history(plain_messages(mine))
    mine[0]["content"][0]["text"] = "changed"
    conversation.plain_messages.clear()
    assert conversation.messages[0].content == [{"type": "text", "text": "q"}]


def test_a_message_that_is_not_json_is_refused():
    with pytest.raises(TypeError, match=r"\(object\) is not JSON"):
        plain_messages([{"role": "user", "content": object()}])
