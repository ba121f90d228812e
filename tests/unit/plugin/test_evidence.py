"""Token evidence of a trajectory; field cases 1.3 to 1.6."""

import pytest

from arkdev import rollout
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.evidence import TokenRecordBuilder
from arkdev.runs.records import Verdict
from tests.running import LINE, answer, running, with_tokens


def joined(*answers):
    builder = TokenRecordBuilder()
    for body in answers:
        builder.add_call(body)
    return builder


CALL_1 = with_tokens([5, 6], [7, 8], [-0.1, -0.2])
CALL_2 = with_tokens([5, 6, 7, 8, 9], [4], [-0.3])


def test_the_example_of_the_docstring():
    evidence = joined(CALL_1, CALL_2).built()
    assert evidence.token_ids == (5, 6, 7, 8, 9, 4)
    assert evidence.loss_weight == (0, 0, 1, 1, 0, 1)
    assert evidence.logprobs == (0, 0, -0.1, -0.2, 0, -0.3)


def test_sampled_ids_are_never_joined_to_other_tokens():
    he, llo, hello = 1, 2, 3
    again = with_tokens([9, he, llo, 8], [hello], [-0.5])
    evidence = joined(with_tokens([9], [he, llo], [-1.0, -2.0]), again).built()
    assert evidence.token_ids == (9, he, llo, 8, hello)
    assert evidence.logprobs[1:3] == (-1.0, -2.0)


@pytest.mark.parametrize(
    ("prompt", "ids", "weights"),
    [
        ([5, 6, 7, 1], (5, 6, 7, 1, 4), (0, 0, 1, 0, 1)),
        ([5], (5, 4), (0, 1)),
        ([1, 2], (1, 2, 4), (0, 0, 1)),
    ],
)
def test_a_rewritten_history_keeps_the_longest_common_beginning(prompt, ids, weights):
    evidence = joined(CALL_1, with_tokens(prompt, [4], [-0.3])).built()
    assert (evidence.token_ids, evidence.loss_weight) == (ids, weights)
    assert len(evidence.logprobs) == len(ids)


def test_an_endpoint_without_evidence_gives_none_and_no_complaint():
    builder = joined(answer())
    assert (builder.built(), builder.missing_reason) == (None, None)
    assert joined().built() is None
    assert joined(CALL_1, answer()).built() is None


def test_fewer_token_ids_than_reported_are_incomplete_with_both_numbers():
    short = with_tokens([1], list(range(9)), [-0.1] * 9)
    short["usage"]["completion_tokens"] = 20
    builder = joined(CALL_1, short)
    assert builder.built() is None
    assert "call 2" in builder.missing_reason
    assert "20 completion tokens" in builder.missing_reason
    assert "9 token ids" in builder.missing_reason


def test_a_logprob_missing_for_one_token_is_incomplete():
    builder = joined(with_tokens([1], [2, 3], [-0.1]))
    assert builder.built() is None
    assert "2 token ids with 1 logprobs" in builder.missing_reason


def test_an_emoji_over_four_tokens_without_ids_is_no_evidence_and_said_so():
    """Field case 1.6: the text is whole, ids are not rebuilt from the texts of tokens."""
    logprobs = {"content": [{"token": "\ufffd", "logprob": -0.1}] * 4}
    body = answer("🌧")
    body["choices"][0]["logprobs"] = logprobs
    conversation = Conversation()
    conversation.add_call(LINE["messages"], body)
    assert conversation.messages[-1].content == "🌧"
    assert conversation.tokens is None
    assert conversation.evidence_problem == (
        "call 1: the endpoint gave logprobs without prompt_token_ids and token_ids; "
        "nothing is put in its place"
    )


def test_ids_without_logprobs_are_said_to_lack_them():
    body = with_tokens([5], [7], [-0.1])
    body["choices"][0]["logprobs"] = None
    assert "without logprobs" in joined(body).missing_reason


def test_empty_logprobs_of_a_server_without_them_are_no_complaint():
    body = answer()
    body["choices"][0]["logprobs"] = {"content": []}
    assert joined(body).missing_reason is None


def test_a_trajectory_without_trainable_tokens_is_recognised():
    """Field case 1.4: an answer without a token, and a history that cuts all that was sampled."""
    assert joined(with_tokens([5, 6], [], [])).built().num_trainable == 0
    assert joined(CALL_1, with_tokens([5], [], [])).built().num_trainable == 0
    assert joined(CALL_1, CALL_2).built().num_trainable == 3
    assert joined(answer()).built() is None, "without ids and logprobs there is not even that"


def test_every_stop_token_that_was_sampled_is_trained():
    """Field case 1.5: also a secondary one, and one whose id is the padding's."""
    for end in (9, 7):
        evidence = joined(with_tokens([5, 7], [4, end], [-0.1, -0.2])).built()
        assert evidence.loss_weight == (0, 0, 1, 1)


def test_unreported_usage_does_not_make_evidence_incomplete():
    assert joined({**CALL_1, "usage": None}).built() is not None


async def test_incomplete_evidence_is_noted_and_the_text_is_still_graded():
    short = with_tokens([1], list(range(9)), [-0.1] * 9)
    short["usage"]["completion_tokens"] = 20

    @rollout
    async def asks(context, proxy, sample):
        client = proxy.async_rollout_client()
        await client.chat.completions.create(model="m", messages=LINE["messages"])

    async with running([short]) as run:
        (group,) = await run.samples(asks)
    (finished,) = run.finished
    assert (group.verdict, group.rewards) == (Verdict.SUCCESS, (1.0,))
    assert finished.evidence is None
    (warning,) = finished.record.warnings
    assert warning.startswith("evidence_incomplete: call 1: the endpoint reported 20")
    assert "gave 9 token ids" in warning
