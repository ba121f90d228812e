"""What calls sent beside what the trajectories end with."""

from arkdev.sessions.sent import NOTHING, beside_of, sent_beside

ASK = {"role": "user", "content": "which?"}
HINT = {"role": "system", "content": "the answer is 42"}
ANSWER = {"role": "assistant", "content": "I see", "tool_calls": None}


def test_a_conversation_that_only_grew_leaves_nothing_beside():
    kept = [ASK, {"role": "assistant", "content": "I see"}]
    assert sent_beside([[ASK], [dict(ASK), ANSWER]], [ANSWER], kept=[kept]) == NOTHING


def test_messages_are_compared_by_their_meaning():
    parts = {"role": "user", "content": [{"type": "text", "text": "which?"}], "name": None}
    assert sent_beside([[parts]], [], kept=[[ASK]]) == NOTHING


def test_what_was_taken_out_again_is_told_once_and_apart_from_the_answers():
    found = sent_beside(
        [[HINT, ASK], [HINT, ASK, ANSWER], [ASK]],
        [ANSWER, {"role": "assistant", "content": "end"}],
        kept=[[ASK, {"role": "assistant", "content": "end"}]],
    )
    assert found.messages == (HINT,)
    assert [answer["content"] for answer in found.answers] == ["I see"]


def test_a_branch_that_is_kept_elsewhere_is_not_beside():
    assert sent_beside([[ASK], [HINT]], [], kept=[[ASK], [HINT]]) == NOTHING


def test_tools_that_calls_offered_are_told_once():
    tool = {"type": "function", "function": {"name": "f", "description": "d"}}
    bodies = [{"messages": [ASK], "tools": [dict(tool)]}, {"messages": [ASK], "tools": [tool]}, {}]
    assert beside_of([], bodies, kept=[]).tools == (tool,)
