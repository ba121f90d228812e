"""Prompts extend what was sampled; field cases 1.1 and 1.2."""

import threading

import pytest

from arkdev.backends.local.conversations import Conversations
from arkdev.plugin.conversation import Conversation
from tests.running import WEATHER_TOOL, with_tokens
from tests.unit.backends.local.toy_rendering import ToyRendering

USER = {"role": "user", "content": "how is it"}
TOOL = {"role": "tool", "content": "rain"}


class Talk:
    """Turns with a toy model: what a server does with `Conversations`."""

    def __init__(self, *, max_tokens=1 << 20, drops_notes=False):
        self.rendering = ToyRendering(drops_notes=drops_notes)
        self.conversations = Conversations(self.rendering, max_tokens=max_tokens)
        self.num_turns = 0

    def turn(self, messages, pieces, *, says=None, **options):
        """Sample `pieces`, words that may be half ones, and return prompt, message and id."""
        prompt = self.conversations.prompt(messages, **options)
        ids = self.rendering.ids(pieces)
        message = {"role": "assistant", "content": says or pieces.removesuffix(" <end>")}
        self.num_turns += 1
        response_id = f"r{self.num_turns}"
        self.conversations.remember(
            response_id,
            prompt=prompt,
            message=message,
            token_ids=ids,
            logprobs=[-float(token) for token in ids],
        )
        return prompt, message, response_id

    def text(self, prompt):
        return self.rendering.decode(prompt.token_ids)


def test_sampled_ids_stand_in_the_next_prompt_and_are_never_joined():
    """Field case 1.1: he, llo stay two tokens."""
    talk = Talk()
    first, message, _ = talk.turn([USER], "he llo <end>", says="hello")
    second, *_ = talk.turn([USER, message, TOOL], "fine <end>")
    assert talk.text(second) == (
        "<user> how is it <end> <glue> <assistant> he llo <end> <glue> "
        "<tool> rain <end> <glue> <assistant>"
    )
    assert second.num_kept == len(first.token_ids) + 3
    assert (second.follows, second.is_written_anew) == ("r1", False)


def test_the_evidence_of_a_trajectory_holds_them_with_their_logprobs():
    """Field case 1.1, the record's side."""
    talk = Talk()
    conversation = Conversation()
    messages = [USER]
    for pieces, says in [("he llo <end>", "hello"), ("fine <end>", None)]:
        _, message, response_id = talk.turn(messages, pieces, says=says)
        remembered = talk.conversations.turn(response_id)
        answer = with_tokens(
            list(remembered.prompt_token_ids),
            list(remembered.token_ids),
            list(remembered.logprobs),
        )
        conversation.add_call(messages, answer)
        messages = [*messages, message, TOOL]
    evidence = conversation.tokens
    he, llo = talk.rendering.ids("he llo")
    at = evidence.token_ids.index(he)
    assert evidence.token_ids[at : at + 2] == (he, llo)
    assert evidence.logprobs[at : at + 2] == (-he, -llo)
    trained = [
        token
        for token, weight in zip(evidence.token_ids, evidence.loss_weight, strict=True)
        if weight
    ]
    assert talk.rendering.decode(trained) == "he llo <end> fine <end>"


def test_glue_and_new_messages_come_from_the_template_alone():
    """Field case 1.2: nothing that the template writes between turns is lost."""
    talk = Talk()
    messages = [USER]
    for pieces in ("one <end>", "two <end>", "three <end>"):
        prompt, message, _ = talk.turn(messages, pieces)
        assert list(prompt.token_ids) == talk.rendering.render(messages)
        messages = [*messages, message, TOOL]
    assert talk.conversations.counts.extended == 2


def test_an_answer_that_was_cut_is_closed_in_the_next_prompt():
    talk = Talk()
    _, message, _ = talk.turn([USER], "half an")
    prompt, *_ = talk.turn([USER, message, USER], "yes <end>")
    assert "half an <end> <glue> <user>" in talk.text(prompt)


def test_messages_that_mean_the_same_are_the_same():
    talk = Talk()
    _, message, _ = talk.turn([USER], "he llo <end>", says="hello")
    again = {"role": "assistant", "content": "hello", "tool_calls": None, "refusal": None}
    parts = {"role": "user", "content": [{"type": "text", "text": USER["content"]}]}
    prompt = talk.conversations.prompt([USER, again, TOOL])
    assert prompt.follows == "r1"
    assert talk.conversations.prompt([parts, message, TOOL]).follows == "r1"


def test_rewritten_history_is_cut_where_it_diverges():
    talk = Talk()
    first, answer, _ = talk.turn([USER], "he llo <end>", says="hello")
    _, later, _ = talk.turn([USER, answer, TOOL], "o k <end>", says="ok")
    edited = [USER, answer, {"role": "tool", "content": "snow"}, later, USER]
    prompt = talk.conversations.prompt(edited)
    assert talk.text(prompt).startswith(
        "<user> how is it <end> <glue> <assistant> he llo <end> <glue>"
    )
    assert "snow" in talk.text(prompt) and "rain" not in talk.text(prompt)
    assert "ok" in talk.text(prompt), "what followed the change is rendered"
    assert (prompt.num_kept, prompt.follows) == (len(first.token_ids) + 3, "r1")


def test_a_system_message_put_before_everything_begins_anew():
    talk = Talk()
    _, answer, _ = talk.turn([USER], "he llo <end>", says="hello")
    prompt = talk.conversations.prompt([{"role": "system", "content": "be brief"}, USER, answer])
    assert (prompt.follows, prompt.is_written_anew, prompt.num_kept) == (None, False, 0)
    assert "hello" in talk.text(prompt)


def test_other_tools_are_another_prompt():
    talk = Talk()
    _, answer, _ = talk.turn([USER], "he llo <end>", says="hello")
    prompt = talk.conversations.prompt([USER, answer, USER], tools=[WEATHER_TOOL])
    assert (prompt.follows, prompt.token_ids[0]) == (None, talk.rendering.ids("get_weather")[0])


def test_a_template_that_rewrites_earlier_turns_is_followed_and_counted():
    """What it writes is the prompt; what it left out of a turn is lost, and said to be."""
    talk = Talk(drops_notes=True)
    messages = [USER]
    _, answer, _ = talk.turn(messages, "(hmm) he llo <end>", says="(hmm) hello")
    prompt = talk.conversations.prompt([*messages, answer, TOOL])
    assert not prompt.is_written_anew, "nothing is rewritten while the question is the same"
    rewritten = [*messages, answer, USER]
    prompt = talk.conversations.prompt(rewritten)
    assert list(prompt.token_ids) == talk.rendering.render(rewritten)
    assert prompt.is_written_anew
    assert prompt.num_kept == len(talk.rendering.render(messages)), "up to the note"
    assert talk.conversations.counts.written_anew == 1


def test_turns_before_the_rewritten_one_keep_their_ids():
    talk = Talk(drops_notes=True)
    messages = [USER]
    for pieces, says in [("he llo <end>", "hello"), ("a b <end>", "ab"), ("(hmm) c <end>", None)]:
        _, answer, _ = talk.turn(messages, pieces, says=says)
        messages = [*messages, answer, TOOL]
    prompt = talk.conversations.prompt([*messages, USER])
    assert (prompt.follows, prompt.is_written_anew) == ("r2", True)
    text = talk.text(prompt)
    assert "he llo <end>" in text and "a b <end>" in text and "(hmm)" not in text


def test_attempts_that_say_the_same_keep_their_own_ids():
    talk = Talk()
    _, answer, _ = talk.turn([USER], "he llo <end>", says="hello", scope="a")
    talk.turn([USER], "h ello <end>", says="hello", scope="b")
    history = [USER, answer, TOOL]
    assert "he llo" in talk.text(talk.conversations.prompt(history, scope="a"))
    assert "h ello" in talk.text(talk.conversations.prompt(history, scope="b"))
    assert talk.conversations.prompt(history, scope="c").follows is None


def test_branches_follow_the_response_that_they_name_and_share_its_ids():
    talk = Talk()
    first, answer, one = talk.turn([USER], "he llo <end>", says="hello")
    _, _, other = talk.turn([USER], "h ello <end>", says="hello")
    before = talk.conversations.num_tokens
    history = [USER, answer, TOOL]
    for response_id, pieces in [(one, "he llo"), (other, "h ello"), (one, "he llo")]:
        prompt, *_ = talk.turn(history, "yes <end>", previous_response_id=response_id)
        assert pieces in talk.text(prompt)
        assert prompt.follows == response_id
    new = len(talk.rendering.ids("<glue> <tool> rain <end> <glue> <assistant> yes <end>"))
    assert talk.conversations.num_tokens == before + 3 * new
    remembered = talk.conversations.turn("r5")
    assert remembered.prompt_token_ids[: len(first.token_ids)] == first.token_ids


def test_an_unknown_response_id_is_no_hindrance():
    talk = Talk()
    _, answer, _ = talk.turn([USER], "he llo <end>", says="hello")
    prompt = talk.conversations.prompt([USER, answer, TOOL], previous_response_id="forgotten")
    assert prompt.follows == "r1"


@pytest.mark.parametrize("named", [True, False])
def test_a_named_response_whose_messages_were_changed_is_followed_as_far_as_it_goes(named):
    talk = Talk()
    _, answer, _ = talk.turn([USER], "he llo <end>", says="hello")
    _, _, second = talk.turn([USER, answer, TOOL], "o k <end>", says="ok")
    edited = [USER, answer, USER]
    prompt = talk.conversations.prompt(edited, previous_response_id=second if named else None)
    assert prompt.follows == "r1"


def test_the_least_recently_used_conversation_is_forgotten():
    talk = Talk(max_tokens=25)
    histories = {}
    for name in "abc":
        question = {"role": "user", "content": f"{name} how is it"}
        _, answer, _ = talk.turn([question], "he llo <end>", says="hello", scope=name)
        histories[name] = [question, answer, TOOL]
    assert talk.conversations.num_tokens <= 25
    talk.conversations.prompt(histories["b"], scope="b")
    _, _, last = talk.turn([USER], "d <end>", scope="d")
    followed = {
        name: talk.conversations.prompt(history, scope=name).follows
        for name, history in histories.items()
    }
    assert followed == {"a": None, "b": "r2", "c": None}
    assert talk.conversations.turn("r1") is None
    assert talk.conversations.turn(last) is not None


def test_of_a_conversation_with_endless_branches_the_oldest_are_forgotten():
    talk = Talk(max_tokens=200)
    first, answer, root = talk.turn([USER], "he llo <end>", says="hello")
    for _ in range(100):
        history = [USER, answer, TOOL]
        prompt, said, branch = talk.turn(history, "o k <end>", previous_response_id=root)
        prompt, _, leaf = talk.turn([*history, said, USER], "d <end>", previous_response_id=branch)
        assert prompt.token_ids[: len(first.token_ids)] == first.token_ids
        assert prompt.follows == branch
        assert talk.conversations.num_tokens <= 200
    assert talk.conversations.turn(root) is not None and talk.conversations.turn("r2") is None
    kept = talk.conversations.turn(leaf)
    assert (kept.prompt_token_ids, talk.rendering.decode(kept.token_ids)) == (
        prompt.token_ids,
        talk.rendering.decode(talk.rendering.ids("d <end>")),
    )


def test_many_threads_talk_at_once():
    talk = Talk(max_tokens=2000)
    failures = []

    def converse(name):
        messages = [{"role": "user", "content": name}]
        for number in range(20):
            prompt = talk.conversations.prompt(messages, scope=name)
            if number and prompt.follows not in (None, f"{name}{number - 1}"):
                failures.append((name, number, prompt.follows))
            message = {"role": "assistant", "content": "hello"}
            talk.conversations.remember(
                f"{name}{number}",
                prompt=prompt,
                message=message,
                token_ids=talk.rendering.ids("he llo <end>"),
                logprobs=[0.0] * 3,
            )
            messages = [*messages, message, TOOL]

    talk.rendering.ids("a b c d <user> <assistant> <tool> rain hello he llo")  # no race for ids
    threads = [threading.Thread(target=converse, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    counts = talk.conversations.counts
    assert counts.begun + counts.extended + counts.written_anew == 80
