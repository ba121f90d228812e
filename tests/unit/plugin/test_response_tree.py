"""The tree of responses: paths, isolation, ids, places."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from arkdev.errors import PluginError
from arkdev.plugin.response_tree import ResponseTree
from tests.running import answer, with_tokens


def user(text):
    return {"role": "user", "content": text}


def say(tree, parent_id, text, reply, *, instructions=None, body=None):
    """Ask `text` after a response; return the new node."""
    parent = tree.node(parent_id)
    head = [{"role": "system", "content": instructions}] if instructions else []
    history = [*head, *parent.messages, user(text)]
    key = tree.next_key(parent, body={"messages": history}, num_instructions=len(head))
    return tree.add(
        parent,
        key=key,
        history=history,
        answer=body or answer(reply),
        num_instructions=len(head),
    )


def texts(messages):
    return [message["content"] for message in messages]


def test_a_path_runs_from_the_first_call_to_the_response():
    tree = ResponseTree()
    r1 = say(tree, None, "q1", "a1")
    r2 = say(tree, r1.id, "q2", "a2")
    r3 = say(tree, r2.id, "q3", "a3")
    r4 = say(tree, r1.id, "q4", "a4")
    assert r3.path == [r1, r2, r3]
    assert r4.path == [r1, r4]
    assert tree.node(None).path == []
    assert len(tree) == 4


def test_a_branch_knows_nothing_of_its_siblings():
    tree = ResponseTree()
    r1 = say(tree, None, "q1", "a1")
    left = say(tree, r1.id, "left", "L")
    right = say(tree, r1.id, "right", "R")
    assert texts(tree.conversation(left.id).plain_messages) == ["q1", "a1", "left", "L"]
    assert texts(tree.conversation(right.id).plain_messages) == ["q1", "a1", "right", "R"]
    assert texts(tree.conversation(r1.id).plain_messages) == ["q1", "a1"]


def test_usage_and_finish_reason_are_those_of_the_path():
    tree = ResponseTree()
    r1 = say(tree, None, "q1", "", body=answer("a1", finish_reason="length"))
    r2 = say(tree, r1.id, "q2", "a2")
    say(tree, r1.id, "q3", "a3")
    assert tree.conversation(r1.id).finish_reason == "length"
    assert tree.conversation(r2.id).finish_reason == "stop"
    assert tree.conversation(r2.id).usage.total_tokens == 14


def test_an_unknown_id_names_those_that_there_are():
    tree = ResponseTree()
    with pytest.raises(PluginError, match="no response 'nope'") as none_yet:
        tree.node("nope")
    assert none_yet.value.hint == "it has none yet"
    ids = [say(tree, None, f"q{i}", "a").id for i in range(7)]
    with pytest.raises(PluginError) as some:
        tree.node("nope")
    assert some.value.hint == f"its responses are {', '.join(ids[-5:])}"
    assert "test_response_tree.py:" in some.value.where


def test_instructions_count_for_their_own_call_alone():
    tree = ResponseTree()
    r1 = say(tree, None, "q1", "a1", instructions="be brief")
    assert texts(r1.history) == ["be brief", "q1"]
    assert texts(r1.messages) == ["q1", "a1"]
    again = say(tree, r1.id, "q2", "a2", instructions="be brief")
    conversation = tree.conversation(again.id)
    assert texts(conversation.plain_messages) == ["be brief", "q1", "a1", "q2", "a2"]
    assert not conversation.was_rewritten
    without = tree.conversation(say(tree, r1.id, "q3", "a3").id)
    assert texts(without.plain_messages) == ["q1", "a1", "q3", "a3"]
    assert without.was_rewritten  # the last call did not see what the first one saw


def test_inserted_messages_can_be_branched_from_and_returned():
    tree = ResponseTree()
    r1 = say(tree, None, "q1", "a1")
    inserted = tree.insert(
        [user("q2"), {"role": "assistant", "content": "given"}], previous_response_id=r1.id
    )
    r2 = say(tree, inserted, "q3", "a3")
    assert texts(tree.conversation(inserted).plain_messages) == ["q1", "a1", "q2", "given"]
    assert tree.conversation(inserted).num_calls == 1
    assert texts(tree.conversation(r2.id).plain_messages)[2:] == ["q2", "given", "q3", "a3"]
    first = tree.insert([user("q0")], previous_response_id=None)
    assert texts(tree.conversation(first).plain_messages) == ["q0"]


def test_inserted_tokens_are_not_trained_on():
    tree = ResponseTree()
    r1 = say(tree, None, "q1", "", body=with_tokens([1], [2, 3], [-0.1, -0.2]))
    inserted = tree.insert([user("q2")], previous_response_id=r1.id)
    r2 = say(tree, inserted, "q3", "", body=with_tokens([1, 2, 3, 4, 5], [6], [-0.3]))
    tokens = tree.conversation(r2.id).tokens
    assert tokens.token_ids == (1, 2, 3, 4, 5, 6)
    assert tokens.loss_weight == (0, 1, 1, 0, 0, 1)


def test_branches_that_share_a_beginning_have_tokens_of_their_own():
    tree = ResponseTree()
    r1 = say(tree, None, "q", "", body=with_tokens([1], [2], [-0.1]))
    left = say(tree, r1.id, "l", "", body=with_tokens([1, 2, 3], [4], [-0.2]))
    right = say(tree, r1.id, "r", "", body=with_tokens([1, 2, 5], [6], [-0.3]))
    assert tree.conversation(left.id).tokens.logprobs == (0, -0.1, 0, -0.2)
    assert tree.conversation(right.id).tokens.logprobs == (0, -0.1, 0, -0.3)


def test_the_place_of_a_question_does_not_depend_on_the_order_of_asking():
    questions = ["a", "b", "b", "c"]
    places = []
    for order in (questions, questions[::-1]):
        tree = ResponseTree()
        root = say(tree, None, "root", "reply")
        places.append(sorted(say(tree, root.id, text, "x").key for text in order))
    assert places[0] == places[1]
    assert len(set(places[0])) == 4


def test_a_place_tells_instructions_options_and_depth_apart():
    tree = ResponseTree()
    r1 = say(tree, None, "q", "a")
    keys = {
        r1.key,
        say(tree, None, "q", "a", instructions="i").key,
        say(tree, r1.id, "q", "a").key,
        tree.next_key(tree.node(None), body={"messages": [user("q")], "tools": []}),
    }
    assert len(keys) == 4
    assert all(json.dumps(key) for key in keys)


def test_half_a_character_in_a_question_is_no_obstacle():
    tree = ResponseTree()
    node = say(tree, None, "\ud83d", "a")
    assert tree.node(node.id) is node


def test_many_threads_may_add_responses():
    tree = ResponseTree()
    root = say(tree, None, "root", "reply")
    barrier = threading.Barrier(8)

    def branch(number):
        barrier.wait(60)
        return [say(tree, root.id, "same", f"{number}/{i}").key for i in range(20)]

    with ThreadPoolExecutor(8) as pool:
        keys = [key for keys in pool.map(branch, range(8)) for key in keys]
    assert len(tree) == 161
    assert len(set(keys)) == 160
