"""What the loss of a step is made of, by trajectory, group and length; and who counted."""

import dataclasses

import pytest

from arkdev.harness.loss_shares import LossShares, Member, loss_shares, shares_of
from arkdev.harness.loss_weights import LossAggMode
from arkdev.harness.steps import StepRecord
from arkdev.harness.token_counts import CountedBy, TokenCount, token_counts
from arkdev.runs.records import TurnRecord
from tests.unit.harness.test_contexts import trajectory


def member(name, size, *, advantage=None, by=CountedBy.TOKEN_IDS, whole=None, weights=None):
    count = TokenCount(size, float(size), num_tokens=whole)
    sample = int(name.partition(".")[0])
    return Member(name, sample, {by: count}, advantage, loss_weight=weights)


FOUR = [
    member("0.0", 10, advantage=1.0),
    member("0.1", 30, advantage=-1.0),
    member("1.0", 40, advantage=0.0),
    member("1.1", 20, advantage=0.5),
]


def test_token_mean_gives_long_answers_more_of_the_loss_and_sequence_means_do_not():
    by_tokens = shares_of(FOUR, mode=LossAggMode.TOKEN_MEAN)
    assert [share.loss for share in by_tokens.values()] == pytest.approx([0.1, 0.3, 0.4, 0.2])
    by_answers = shares_of(FOUR, mode=LossAggMode.SEQ_MEAN_TOKEN_MEAN)
    assert [share.loss for share in by_answers.values()] == pytest.approx([0.25] * 4)
    by_sums = shares_of(FOUR, mode=LossAggMode.SEQ_MEAN_TOKEN_SUM_NORM, norm_tokens=99)
    assert [share.loss for share in by_sums.values()] == pytest.approx([0.1, 0.3, 0.4, 0.2])


def test_the_signal_is_the_loss_times_the_advantage():
    """Weights 10, 30, 40, 20 times 1, 1, 0, 0.5: 10, 30, 0, 10 of 50."""
    shares = shares_of(FOUR, mode=LossAggMode.TOKEN_MEAN)
    assert [share.signal for share in shares.values()] == pytest.approx([0.2, 0.6, 0.0, 0.2])


def test_advantages_of_tokens_count_where_they_are_trained_on():
    own = member("0.0", 2, advantage=(9.0, 1.0, 3.0), weights=(0.0, 1.0, 1.0))
    other = member("0.1", 4, advantage=1.0)
    shares = shares_of([own, other], mode=LossAggMode.TOKEN_MEAN)
    assert shares["0.0"].signal == pytest.approx(4 / 8)


def test_without_any_advantage_there_is_no_signal_and_no_division():
    for advantage in (0.0, None):
        shares = shares_of([member("0.0", 3, advantage=advantage)], mode=LossAggMode.TOKEN_MEAN)
        assert (shares["0.0"].loss, shares["0.0"].signal) == (1.0, None)


def test_a_step_that_is_masked_as_a_whole_has_shares_of_0_and_its_real_lengths():
    """Field case 3.4: lengths are not read off the mask."""
    found = loss_shares([member("0.0", 0, whole=20, advantage=1.0)], mode=LossAggMode.TOKEN_MEAN)
    assert (found.num_kept, found.num_masked) == (0, 20)
    assert found.metrics()["tokens.mean"] == 20.0
    assert found.metrics()["tokens/masked"] == 20.0
    assert found.metrics()["loss_share->longest_quarter"] == 0.0


def test_groups_and_lengths_add_up_to_the_whole():
    found = loss_shares(FOUR, mode=LossAggMode.TOKEN_MEAN)
    assert [(group.sample_index, group.loss) for group in found.groups] == [
        (1, pytest.approx(0.6)),
        (0, pytest.approx(0.4)),
    ]
    assert [(each.shortest, each.loss) for each in found.lengths] == [
        (10, pytest.approx(0.1)),
        (20, pytest.approx(0.2)),
        (30, pytest.approx(0.3)),
        (40, pytest.approx(0.4)),
    ]


def test_one_measure_counts_all_and_without_one_nothing_is_made_up():
    mixed = [member("0.0", 5), member("0.1", 5, by=CountedBy.USAGE)]
    found = loss_shares(mixed, mode=LossAggMode.TOKEN_MEAN)
    assert (found.counted_by, found.num_uncounted, found.lengths) == (None, 1, ())
    assert found.metrics() == {}
    assert shares_of([], mode=LossAggMode.TOKEN_MEAN) == {}


def test_a_step_reads_its_loss_back():
    loss = loss_shares(FOUR, mode=LossAggMode.TOKEN_MEAN)
    step = StepRecord(0, "train", 0, 2, 2, 0, {}, 1.0, {}, loss=loss)
    assert StepRecord.from_json(step.to_json()) == step
    assert LossShares.from_json(loss.to_json()) == loss


def test_token_ids_count_kept_and_masked_tokens_and_the_real_length():
    found = token_counts(trajectory(turns=1), loss_weight=[0.0, 0.0, 1.0, 0.5, 0.0])
    count = found[CountedBy.TOKEN_IDS]
    assert (count.num_kept, count.kept_weight) == (2, 1.5)
    assert (count.num_tokens, count.num_masked) == (5, 3)


def turn(prompt, answer):
    return TurnRecord(0.0, 0.0, prompt_tokens=prompt, completion_tokens=answer)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([turn(10, 5), turn(20, 7)], (12, 27)),
        ([turn(None, 5)], (5, None)),
        ([turn(10, 50), turn(12, 1)], (51, None)),  # the history was cut: no whole length is known
        ([turn(10, None), turn(20, 7)], None),
        ([], None),
    ],
)
def test_usage_counts_answers_and_the_last_context(turns, expected):
    record = dataclasses.replace(trajectory(turns=0), turns=tuple(turns))
    count = token_counts(record).get(CountedBy.USAGE)
    assert (count and (count.num_kept, count.num_tokens)) == expected


def test_a_local_tokenizer_counts_the_policys_answers_apart_from_the_rest():
    messages = (
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "three four five"},
    )
    record = trajectory(messages=messages, turns=1)
    count = token_counts(record, count=lambda text: len(text.split()))[CountedBy.TOKENIZER]
    assert (count.num_kept, count.num_tokens) == (3, 5)
